package apiserver

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/sys/clock"
)

// A watch may miss changes, for example if the API server's cache has missed them. Each
// feed therefore compares, every ten minutes, the versions of its objects with the API
// server's. A list of the objects' metadata, in pages, has the versions: the number of
// objects alone, which a list of one object has, would not show a missed update, and the
// API server does not count the objects that a selector matches.
//
// An object that differs may be changing at this moment. The watch delivers changes in the
// order of their versions. So it has missed a change if it has delivered an event or a
// bookmark with the version of the list, or a later one, and the object still differs.

const (
	compareInterval = 10 * time.Minute       // between two comparisons
	compareMany     = 30_000                 // with more objects the interval is longer: fifty objects in a second
	comparePage     = 500                    // objects in a page
	compareTimeout  = time.Minute            // for a page
	compareCheck    = 200 * time.Millisecond // between two checks whether the watch has reached the list
)

// versions are the versions of a resource's objects, as lists and watches delivered them.
type versions struct {
	mu      sync.Mutex
	seed    maphash.Seed
	known   map[uint64]uint64   // by the hash of the key; nil before the first list
	latest  uint64              // version of the last list, event or bookmark
	changed map[uint64]struct{} // hashes of keys with events since the comparison began; nil without one
}

// parseVersion returns zero for a version that is not a number.
func parseVersion(text string) uint64 {
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return version
}

func (v *versions) hash(key cluster.Key) uint64 { return maphash.Comparable(v.seed, key) }

// replace begins anew with the objects of a list.
func (v *versions) replace(listed map[uint64]uint64, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known, v.latest, v.changed = listed, parseVersion(version), nil
}

// set records an event. deleted reports whether the object no longer exists.
func (v *versions) set(key cluster.Key, version string, deleted bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	hash := v.hash(key)
	v.latest = parseVersion(version)
	if deleted {
		delete(v.known, hash)
	} else if v.known != nil {
		v.known[hash] = v.latest
	}
	if v.changed != nil {
		v.changed[hash] = struct{}{}
	}
}

// reached records that the watch has delivered all changes up to a version.
func (v *versions) reached(version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.latest = parseVersion(version)
}

// begin starts a comparison and returns the version of the last event. ok is false if
// there has been no list.
func (v *versions) begin() (latest uint64, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil {
		return 0, false
	}
	v.changed = map[uint64]struct{}{}
	return v.latest, true
}

// missed returns the number of objects that differ from a list with their versions, unless they have changed
// since the comparison began. final reports whether the watch has reached the version of
// the list. ok is false if another list has ended the comparison.
func (v *versions) missed(listed map[uint64]uint64, listVersion uint64) (n int, final, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		return 0, false, false
	}
	differs := func(hash uint64) {
		if _, changed := v.changed[hash]; !changed {
			n++
		}
	}
	for hash, version := range listed {
		if known, ok := v.known[hash]; !ok || known < version { // the watch has not delivered it
			differs(hash)
		}
	}
	for hash, known := range v.known {
		if _, ok := listed[hash]; !ok && known <= listVersion { // a newer one cannot be in the list
			differs(hash)
		}
	}
	return n, v.latest >= listVersion, true
}

// end ends a comparison.
func (v *versions) end() (objects int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changed = nil
	return len(v.known)
}

// count returns the number of objects.
func (v *versions) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.known)
}

// compareRegularly compares until ctx is done, and has the objects listed again if the
// watch has missed changes.
func (f *feed) compareRegularly(ctx context.Context, interval time.Duration) {
	count := func(result string, by int) {
		f.store.source.Metrics.Counter("seamark_kubernetes_comparisons_total",
			"Comparisons of the versions of all objects with the API server. "+
				"After a different result the objects are listed again.",
			"resource", f.Name, "result", result).Add(uint64(by))
	}
	for _, result := range []string{"equal", "different", "failed"} {
		count(result, 0)
	}

	for objects := 0; ; objects = f.store.versions.end() {
		wait := interval * time.Duration(1+objects/compareMany)
		if !clock.Sleep(ctx, wait-wait/10+rand.N(wait/5)) { // so that replicas do not compare at the same time
			return
		}

		latest, ok := f.store.versions.begin()
		if !ok {
			continue
		}
		missed, err := f.compare(ctx, latest)
		switch {
		case err != nil:
			count("failed", 1)
		case missed == 0:
			count("equal", 1)
		default:
			count("different", 1)
			f.store.source.Log.Warn("Watch has missed changes, listing again", f.logAttrs("count", missed)...)
			f.relist()
		}
	}
}

// compare returns the number of objects whose last change the watch has missed. latest is
// the version of the last event before the comparison.
func (f *feed) compare(ctx context.Context, latest uint64) (missed int, err error) {
	listed, version, err := f.listVersions(ctx)
	if err != nil {
		return 0, err
	}
	if version < latest {
		return 0, errors.New("the list is older than the last event")
	}
	for deadline := time.Now().Add(f.detector.compare); ; {
		missed, final, ok := f.store.versions.missed(listed, version)
		switch {
		case !ok:
			return 0, errors.New("listed again meanwhile")
		case missed == 0 || final || time.Now().After(deadline):
			return missed, nil
		case !clock.Sleep(ctx, compareCheck):
			return 0, ctx.Err()
		}
	}
}

// listVersions lists the versions of all objects, by the hashes of their keys. The list is
// the newest one: it has no resourceVersion, for which the API server would use its cache.
func (f *feed) listVersions(ctx context.Context) (listed map[uint64]uint64, version uint64, err error) {
	listed = map[uint64]uint64{}
	list := objectList{put: func(o *api.Decoded) { listed[f.store.versions.hash(o.Key())] = parseVersion(o.Version) }}
	for {
		opts := &metav1.ListOptions{Limit: comparePage, Continue: list.Continue}
		opts.LabelSelector, opts.FieldSelector = f.Labels, f.Fields
		list.Continue = ""
		if err := f.listPage(ctx, opts, &list); err != nil {
			return nil, 0, err
		}
		if version = parseVersion(list.ResourceVersion); version == 0 {
			return nil, 0, errors.New("the list has no version")
		}
		if list.Continue == "" {
			return listed, version, nil
		}
	}
}

// listPage requests a page of a list of metadata.
func (f *feed) listPage(ctx context.Context, opts *metav1.ListOptions, into *objectList) error {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	rest, err := f.client.restClient(f.VersionsOnly(), "list", nil)
	if err != nil {
		return err
	}
	return newRequest(rest, f.Namespace, f.Name, opts).Do(ctx).Into(into)
}
