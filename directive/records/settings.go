package records

import (
	"context"
	"errors"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/wire"
)

// ObjectSettings are the options of objects.
type objectSettings struct {
	objects.Settings
	ttl uint32
}

// parseObjects parses the option objects of a directive for zones. The settings are not nil.
func parseObjects(b *config.Block, o corefile.Directive, zones []wire.Name) (*objectSettings, error) {
	s := &objectSettings{Settings: objects.Settings{Directive: "records", Noun: "records", Labels: "seamark.io/dns=records"}}
	s.Read = func(o cluster.Object, most int) *objects.Content { return readObject(o, s.Rules(), s.ttl, most) }
	errs := []error{s.ParseOptions(b, o, zones, "20000",
		corefile.Option{Usage: "dnsendpoints", Set: corefile.Flag(&s.API.DNSEndpoints)})}
	if !s.API.Records() {
		errs = append(errs, o.Errorf("want configmaps or dnsendpoints, or both"))
	}
	return s, errors.Join(append(errs, s.CheckLocation(b))...)
}

// objectsKey identifies objects that a reload keeps.
type objectsKey struct {
	objects.Key
	ttl uint32
}

// An objectNames has the records of objects.
type objectNames struct {
	names
	*objects.Objects
	rules *objects.Delegations
}

// start returns the objects of the old plan if the settings are the same, or new ones.
func (s *objectSettings) start(start *config.Start, b *config.Block) (*objectNames, error) {
	return config.Keep(start, objectsKey{s.Key(), s.ttl}, func() (*objectNames, error) {
		x := s.newObjects(b)
		return x, x.Start(start, b, x)
	})
}

// newObjects returns objects without records.
func (s *objectSettings) newObjects(b *config.Block) *objectNames {
	x := &objectNames{rules: s.Rules()}
	x.Objects = objects.New(s.Settings, &x.names, b)
	return x
}

// CheckObjects returns what is wrong with each object: see [objects.Settings.Check].
func (h *Handler) CheckObjects(ctx context.Context, at cluster.Options) []error {
	if h.settings == nil {
		return nil
	}
	return h.settings.Check(ctx, at, new(names), &h.own)
}
