package file

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zone/zonefile"
)

// A version is what a zone file had in it at one time.
type version struct {
	zones []*zone.Zone    // in the order of the origins; none if it could not be read
	files []zonefile.File // it and what it includes
	when  time.Time       // it was read
}

// load reads a file once for each of its zones. There is a version beside the
// error, too: that of which it is true.
func load(path string, origins []wire.Name, log *slog.Logger) (*version, error) {
	v := &version{when: time.Now()}
	for _, origin := range origins {
		build := zone.NewBuilder(origin)
		var beside, outside remark
		files, err := zonefile.Read(path, origin, func(r zonefile.Record) error {
			if r.Class != wire.ClassIN {
				return fmt.Errorf("%s: class %s, want IN", r.Owner, r.Class)
			}
			switch err := build.Add(r.Spelled, r.Type, r.TTL, r.RData); {
			case errors.Is(err, zone.ErrCNAMEConflict):
				beside.add(&r, err)
				return nil
			case !errors.Is(err, zone.ErrOutOfZone):
				return err
			case !slices.ContainsFunc(origins, r.Owner.Within):
				outside.add(&r, err)
			}
			return nil
		})
		if v.files == nil || err != nil {
			v.files = files
		}
		if err != nil {
			return v, err
		}
		z := build.Zone()
		if _, ok := z.Serial(); !ok {
			return v, fmt.Errorf("%s: no SOA record for %s", path, origin)
		}
		beside.warn(log, "")
		outside.warn(log, ": left out")
		v.zones = append(v.zones, z)
	}
	return v, nil
}

// A remark is what is wrong with some records and not an error.
type remark struct {
	first   error
	records int
}

func (m *remark) add(r *zonefile.Record, err error) {
	if m.records++; m.first == nil {
		m.first = r.Errorf("%w", err)
	}
}

// warn says the first of them and how many there are.
func (m *remark) warn(log *slog.Logger, then string) {
	if m.records > 0 {
		log.Warn("plugin/file: "+m.first.Error()+then, "records", m.records)
	}
}

// stale says whether one of the files is not what was read.
func (v *version) stale() bool {
	for _, f := range v.files {
		now, err := os.Stat(f.Path)
		if err != nil || f.Info == nil {
			if (err != nil) != (f.Info == nil) {
				return true
			}
			continue
		}
		if !os.SameFile(now, f.Info) || now.Mode() != f.Info.Mode() || now.Size() != f.Info.Size() || !now.ModTime().Equal(f.Info.ModTime()) {
			return true
		}
	}
	return false
}

// young says whether one of the files was written so soon after the version
// before was read that its writer may not have been done then.
func (v *version) young(before *version) bool {
	for _, f := range v.files {
		if f.Info == nil {
			continue
		}
		if after := f.Info.ModTime().Sub(before.when); -coarse < after && after < settling {
			return true
		}
	}
	return false
}

// settling is the longest that the writing of a file is thought to take; coarse
// is more than a file system's clock is behind.
const (
	settling = 2 * time.Second
	coarse   = 50 * time.Millisecond
)
