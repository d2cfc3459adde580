package zone

import (
	"sync"

	"github.com/seamark/seamark/wire"
)

// Followers are the functions that follow the zones of a [Transferable]. The zero value
// has none. It is safe for concurrent use.
type Followers struct {
	mu   sync.Mutex
	next int
	all  map[int]func(wire.Name)
}

// Add adds a function until stop is called.
func (f *Followers) Add(changed func(origin wire.Name)) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[int]func(wire.Name){}
	}
	f.next++
	id := f.next
	f.all[id] = changed
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.all, id)
	}
}

// Changed calls each function with a zone.
func (f *Followers) Changed(origin wire.Name) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, changed := range f.all {
		changed(origin)
	}
}
