package objects

import (
	"maps"
	"slices"
	"sync"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
)

// A Report tells what is wrong with objects that a directive reads together, and not one by one as Objects
// does.
type Report struct {
	mu     sync.Mutex
	faults faults
	known  map[string]*Object // those with an error, by objectKey
}

// An ID identifies an object.
type ID struct {
	Kind cluster.Kind
	Key  cluster.Key
}

// String returns the kind and the key, as in "HTTPRoute shop/web".
func (id ID) String() string { return id.Kind.ObjectKind() + " " + id.Key.String() }

// NewReport returns a Report for a directive whose objects have nouns, such as hosts.
func NewReport(directive, noun string, b *config.Block) *Report {
	return &Report{faults: newFaults(directive, noun, b), known: map[string]*Object{}}
}

// SetRecorder has Events about objects with errors written.
func (r *Report) SetRecorder(recorder Recorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults.recorder = recorder
}

// Set tells what is wrong with objects now. All other objects are without errors.
func (r *Report) Set(now map[ID]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byKey := map[string]string{}
	for id, told := range now {
		byKey[objectKey(id.Kind, id.Key)] = told
	}
	for key, o := range r.known {
		if byKey[key] == "" {
			r.faults.clear(o)
			delete(r.known, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if r.known[key] == nil {
			r.known[key] = newObject(key, 0)
		}
		r.faults.set(r.known[key], fault{told: byKey[key]})
	}
}

// Count returns the number of objects with errors.
func (r *Report) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.known)
}

// Text returns a text about the objects with errors, "" if there are none.
func (r *Report) Text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.faults.text()
}

// Close ends the condition and the Events.
func (r *Report) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults.close()
}
