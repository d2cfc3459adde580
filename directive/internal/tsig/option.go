package tsig

import (
	"fmt"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// A Ref is the key that a directive names in its option key. The zero Ref means no key.
type Ref struct {
	Name wire.Name
	keys []Keys
}

// Option returns the option of a directive of b that sets r.
func (r *Ref) Option(b *config.Block) corefile.Option {
	return corefile.Option{Usage: "key NAME", Once: true, Set: func(o corefile.Directive) (err error) {
		if r.Name, err = wire.ParseName(o.Args[0].Text); err != nil {
			return o.Errorf("not a name of a key: %w", err)
		}
		b.OnPlanned(func() error {
			r.keys = config.Find[Keys](b)
			_, err := r.Key()
			return o.Each(err)
		})
		return nil
	}}
}

// Key returns the key as it is now, nil for the zero Ref.
func (r *Ref) Key() (*Key, error) {
	if r == nil || r.Name == "" {
		return nil, nil
	}
	for _, k := range r.keys {
		if key := k.Lookup(r.Name); key != nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("no directive tsig of the server block defines the key %s", r.Name)
}
