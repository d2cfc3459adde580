package file

import (
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A library has the versions of zone files that are in use, so that all server blocks and plans
// that use a file share its zones: an unchanged file is read once.
type library struct {
	loading sync.Mutex // held while a file is read: there is memory for one at a time

	mu     sync.Mutex
	latest map[libraryKey]*version
	most   int // the number of versions from which on those without users are dropped
}

// minVersions is the number of versions that a library holds without a search for unused ones.
const minVersions = 64

type libraryKey struct {
	path, origins string
	maxSize       int64
}

// libraryOf returns the library of the server.
func libraryOf(b *config.Block) *library {
	type key struct{}
	return config.Share(b, key{}, func() *library { return &library{latest: map[libraryKey]*version{}} })
}

// read returns the present version of a zone file. The caller must release it, also after an error.
// If there is no memory for it and orOld is set, read logs that and returns the version in use.
func (l *library) read(path string, origins []wire.Name, within limits, orOld bool, log *slog.Logger) (*version, error) {
	l.loading.Lock()
	defer l.loading.Unlock()
	key := libraryKey{path, originsText(origins), within.maxSize}
	old := l.inUse(key)
	if old != nil && old.settled() && !old.stale() {
		return old, nil
	}

	v, err := load(path, origins, within, old, log)
	if err != nil && orOld && old != nil && errors.As(err, new(*memory.Error)) {
		log.Error("file: Failed to read changed zone file, keeping the old version", "file", path, "error", err)
		return old, nil
	}
	old.release()
	if err == nil {
		l.add(key, v)
	}
	return v, err
}

// inUse returns the version of a file that is in use, or nil. The caller must release it.
func (l *library) inUse(key libraryKey) *version {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.latest[key]
	if v == nil || !v.acquire() {
		delete(l.latest, key)
		return nil
	}
	return v
}

func (l *library) add(key libraryKey, v *version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest[key] = v

	// The names of files may change again and again, so versions are dropped before they are as many
	// as those in use.
	if len(l.latest) > max(l.most, minVersions) {
		maps.DeleteFunc(l.latest, func(_ libraryKey, v *version) bool {
			if !v.acquire() {
				return true
			}
			v.release()
			return false
		})
		l.most = 2 * len(l.latest)
	}
}

func originsText(origins []wire.Name) string {
	var text strings.Builder
	for _, o := range origins {
		text.WriteString(string(o))
	}
	return text.String()
}

// A loaded is a zone of a version.
type loaded struct {
	mu    sync.Mutex
	zone  *zone.Zone    // nil without users
	claim *memory.Claim // its memory
	users int           // sources, plans that do not serve yet, and readers
}

// acquire counts a user, unless there is none any more.
func (z *loaded) acquire() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.users == 0 {
		return false
	}
	z.users++
	return true
}

func (z *loaded) release() {
	if z == nil {
		return
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.users--; z.users == 0 {
		z.zone = nil
		z.claim.Release()
	}
}

// acquire counts a user of each zone. It returns false if one of them is not in use any more.
func (v *version) acquire() bool {
	for i, z := range v.zones {
		if !z.acquire() {
			for _, z := range v.zones[:i] {
				z.release()
			}
			return false
		}
	}
	return len(v.zones) > 0
}

func (v *version) release() {
	if v == nil {
		return
	}
	for _, z := range v.zones {
		z.release()
	}
}

// memory returns the memory of the zones.
func (v *version) memory() (bytes int64) {
	if v != nil {
		for _, z := range v.zones {
			bytes += z.zone.Memory()
		}
	}
	return bytes
}

// settled reports whether the time stamps of the files would differ if they had been changed after
// v was read: file systems count in ticks of the kernel.
func (v *version) settled() bool {
	const tick = 10 * time.Millisecond
	for _, f := range v.files {
		if f.Info != nil && v.readAt.Sub(f.Info.ModTime()).Abs() < tick {
			return false
		}
	}
	return true
}
