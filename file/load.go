package file

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
	"github.com/seamark/seamark/zonefile"
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
		outside, first := 0, error(nil)
		files, err := zonefile.Read(path, origin, func(r zonefile.Record) error {
			if r.Class != wire.ClassIN {
				return fmt.Errorf("%s: class %s, want IN", r.Owner, r.Class)
			}
			switch err := build.Add(r.Spelled, r.Type, r.TTL, r.RData); {
			case errors.Is(err, zone.ErrBeside):
				log.Warn("plugin/file: " + r.Errorf("%w", err).Error())
				return nil
			case !errors.Is(err, zone.ErrOutside):
				return err
			case !within(r.Owner, origins):
				if outside++; first == nil {
					first = r.Errorf("%w", err)
				}
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
		if outside > 0 {
			log.Warn("plugin/file: "+first.Error()+": left out", "records", outside)
		}
		v.zones = append(v.zones, z)
	}
	return v, nil
}

func within(name wire.Name, zones []wire.Name) bool {
	for _, z := range zones {
		if name.Within(z) {
			return true
		}
	}
	return false
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
		if !os.SameFile(now, f.Info) || now.Size() != f.Info.Size() || !now.ModTime().Equal(f.Info.ModTime()) {
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
