package records

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

// ObjectSettings are the options of objects.
type objectSettings struct {
	use   corefile.Directive
	api   cluster.Options
	rules *delegations
	ttl   uint32
	most  int // records of a namespace
}

// mapLabels is the label of ConfigMaps with records.
const mapLabels = "seamark.io/dns=records"

// parseObjects parses the option objects of a directive for zones. The settings are not nil.
func parseObjects(b *config.Block, o corefile.Directive, zones []wire.Name) (*objectSettings, error) {
	s := &objectSettings{use: o, rules: new(delegations)}
	all := false
	err := o.Options(append([]corefile.Option{
		{Usage: "delegate NAMESPACE ZONE...", Set: func(o corefile.Directive) error { return s.rules.add(o, zones) }},
		{Usage: "configmaps [LABELS]", Once: true, Set: func(o corefile.Directive) error {
			s.api.ConfigMapLabels = strings.Join(append(o.Words(), mapLabels)[:1], "")
			return nil
		}},
		{Usage: "dnsendpoints", Set: corefile.Flag(&s.api.DNSEndpoints)},
		{Usage: "all_namespaces", Set: corefile.Flag(&all)},
		{Usage: "max_records NUMBER", Default: "20000", Set: corefile.Int(&s.most, 1, math.MaxInt32)},
		{Usage: "endpoint URL", Set: corefile.String(&s.api.Endpoint)},
	}, sources.LocationOptions(&s.api, b.Path)...)...)

	errs := []error{err}
	if err == nil && len(s.rules.uses) == 0 {
		errs = append(errs, o.Errorf("want delegate NAMESPACE ZONE...: without it no object may have records"))
	}
	if s.api.ConfigMapLabels == "" && !s.api.DNSEndpoints {
		errs = append(errs, o.Errorf("want configmaps or dnsendpoints, or both"))
	}
	if names, everyone := s.rules.namespaces(); !all && !everyone {
		s.api.Namespaces = strings.Join(names, ",")
	}
	if err := s.api.Check(); err != nil {
		errs = append(errs, o.Each(err))
	} else if err := s.api.CheckFiles(); err != nil { // the server waits for them
		b.Warn(o.Each(err))
	}
	return s, errors.Join(errs...)
}

// objectsKey identifies objects that a reload keeps.
type objectsKey struct {
	api   cluster.Options
	rules string
	ttl   uint32
	most  int
}

// startTimeout is how long a reload waits for the objects.
const startTimeout = 5 * time.Second

// start returns the objects of the old plan if the settings are the same, or new ones. A reload waits
// for these, and fails without them; the first start does not wait.
func (s *objectSettings) start(start *config.Start, b *config.Block) (*objects, error) {
	key := objectsKey{s.api, strings.Join(slices.Sorted(slices.Values(s.rules.uses)), "\n"), s.ttl, s.most}
	return config.Keep(start, key, func() (*objects, error) {
		x := newObjects(*s, b)
		x.faults.recorder = sources.NewRecorder(s.api, b.Log, b.Metrics, b.Dial)
		x.task = follow.Go(func(ctx context.Context) { sources.Run(ctx, s.api, x, b.Log, b.Metrics, x.board, b.Dial) })
		x.task.Go(x.run)
		return x, start.Await(x, x.synced, startTimeout, func() error {
			return s.use.Errorf("waiting for the objects: no complete list from the API server within %v", startTimeout)
		})
	})
}

// newObjects returns objects that have none.
func newObjects(s objectSettings, b *config.Block) *objects {
	x := &objects{
		settings: s, kinds: s.api.Kinds(), log: b.Log, board: b.Health(), claim: b.Memory.Claim(memory.Files),
		listed: map[cluster.Kind]bool{}, known: map[string]*object{}, rivals: map[wire.Name][]rival{},
		usage: map[string]usage{}, changed: follow.NewSignal(), synced: make(chan struct{}),
	}
	x.faults = faults{log: b.Log, board: b.Health(), all: map[*object]fault{}, crowded: map[string]bool{}}
	gauge := func(name, help string, count func() int) {
		x.unregister = append(x.unregister, b.Metrics.SharedGauge(name, help, metrics.Sum, x.locked(count)))
	}
	gauge("seamark_records_objects", "ConfigMaps and DNSEndpoints that the directive records has read.",
		func() int { return len(x.known) })
	gauge("seamark_records_objects_faulty", "Of these, objects that have an error, or names that older objects have.",
		x.faults.count)
	gauge("seamark_records_object_records", "Records in the objects; one of more than 256 bytes counts as several.", x.total)
	return x
}

// Stop ends the watch.
func (x *objects) Stop() {
	x.task.Stop()
	if x.faults.recorder != nil {
		x.faults.recorder.Close()
	}
	x.board.Forget(&x.faults)
	x.claim.Release()
	for _, unregister := range x.unregister {
		unregister()
	}
}

// locked returns a function for a metric that counts something under x's lock.
func (x *objects) locked(count func() int) func() float64 {
	return func() float64 {
		x.mu.Lock()
		defer x.mu.Unlock()
		return float64(count())
	}
}

// setCorefile has the objects know which names the Corefile has.
func (x *objects) setCorefile(own *names) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.corefile = own
	for _, o := range x.known {
		x.report(o, x.faults.of(o))
	}
}
