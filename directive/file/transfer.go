package file

import (
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// Version implements [zone.Transferable].
func (f *File) Version(origin wire.Name) zone.Version {
	if s := f.zones.Get(origin); s != nil {
		return s.zone()
	}
	return nil
}

// Follow implements [zone.Transferable].
func (f *File) Follow(changed func(origin wire.Name)) (stop func()) {
	var stops []func()
	for origin, s := range f.zones.All() {
		stops = append(stops, s.source.followers.Add(func(name wire.Name) {
			if name == origin {
				changed(name)
			}
		}))
		changed(origin)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
