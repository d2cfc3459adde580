package objects

import (
	"context"
	"errors"
	"math"
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

// Settings say which objects there are, and what each namespace may have. The directive sets Directive,
// Noun, Labels and Read, and the options the other fields.
type Settings struct {
	Directive string // begins messages and the names of metrics
	Noun      string // what objects have: "records" is counted, and limited by max_records
	Labels    string // of ConfigMaps, unless the option says others
	// Show returns a name as objects write it; nil if they write names.
	Show func(owner wire.Name) string
	// Read reads an object, of which it counts at most most and one.
	Read func(o cluster.Object, most int) *Content

	Use  corefile.Directive
	API  cluster.Options
	Most int

	rules Delegations
}

// ParseOptions parses the options of o, which are those of the objects and more. Objects may have names
// below zones.
func (s *Settings) ParseOptions(b *config.Block, o corefile.Directive, zones []wire.Name, most string, more ...corefile.Option) error {
	s.Use = o
	all := false
	err := o.Options(append(append([]corefile.Option{
		s.rules.Option(zones),
		{Usage: "configmaps [LABELS]", Once: true, Set: func(o corefile.Directive) error {
			s.API.ConfigMapLabels = strings.Join(append(o.Words(), s.Labels)[:1], "")
			return nil
		}},
		{Usage: "all_namespaces", Set: corefile.Flag(&all)},
		{Usage: "max_" + s.Noun + " NUMBER", Default: most, Set: corefile.Int(&s.Most, 1, math.MaxInt32)},
		{Usage: "endpoint URL", Set: corefile.String(&s.API.Endpoint)},
	}, more...), sources.LocationOptions(&s.API, b.Path)...)...)

	errs := []error{err}
	if err == nil && s.rules.IsEmpty() {
		errs = append(errs, o.Errorf("want delegate NAMESPACE ZONE...: without it no object may have %s", s.Noun))
	}
	if names, everyone := s.rules.namespaces(); !all && !everyone {
		s.API.Namespaces = strings.Join(names, ",")
	}
	return errors.Join(errs...)
}

// CheckLocation checks the options that say where the objects are.
func (s *Settings) CheckLocation(b *config.Block) error {
	if err := s.API.Check(); err != nil {
		return s.Use.Each(err)
	}
	if err := s.API.CheckFiles(); err != nil { // the server waits for them
		b.Warn(s.Use.Each(err))
	}
	return nil
}

// Rules returns the delegations.
func (s *Settings) Rules() *Delegations { return &s.rules }

// A Key identifies objects that a reload keeps.
type Key struct {
	directive string
	api       cluster.Options
	rules     string
	most      int
}

// Key returns the key of the objects.
func (s *Settings) Key() Key {
	return Key{s.Directive, s.API, s.rules.Text(), s.Most}
}

// Start starts the watch. A reload waits for the objects, and fails without them; the first start does
// not wait. r, which has x, is stopped after an error.
func (x *Objects) Start(start *config.Start, b *config.Block, r config.Stopper) error {
	x.faults.recorder = NewRecorder(start, x.settings.API, b)
	for _, old := range config.Old[interface{ objects() *Objects }](start) {
		// The content of both is in memory until the old plan ends: names are not refused for that.
		if from := old.objects(); from.settings.Directive == x.settings.Directive && x.claim.Succeed(from.claim) {
			break
		}
	}
	x.run(b)
	return Await(start, r, x.synced, x.settings.Use, "objects")
}

// Await has a reload wait until what r reads of a cluster is synced, and fail without it. The first start does not
// wait. After an error r is stopped.
func Await(start *config.Start, r config.Stopper, synced follow.Event, use corefile.Directive, what string) error {
	const timeout = 5 * time.Second
	return start.Await(r, synced, timeout, func() error {
		return use.Errorf("waiting for the %s: no complete list from the API server within %v", what, timeout)
	})
}

// objects returns x, of a type that embeds it.
func (x *Objects) objects() *Objects { return x }

func (x *Objects) run(b *config.Block) {
	x.task = follow.Go(func(ctx context.Context) {
		sources.Run(ctx, x.settings.API, x, b.Log, b.Metrics, x.board, b.Dial)
	})
	x.task.Go(x.ApplyAll)
	x.task.Go(x.rereadAll)
}

// New returns objects without any, whose names it has in a table.
func New(s Settings, table Table, b *config.Block) *Objects {
	x := &Objects{
		settings: s, table: table, kinds: s.API.Kinds(),
		log: b.Log, board: b.Health(), claim: b.Memory.Claim(memory.Files),
		listed: map[cluster.Kind]bool{}, rivals: map[wire.Name][]*Entry{},
		spaces: map[string]*space{}, wanted: map[*Object]want{},
		changed: follow.NewSignal(), reread: follow.NewSignal(), synced: follow.NewEvent(),
		faults: newFaults(s.Directive, s.Noun, b),
	}
	gauge := func(name, help string, count func() int) {
		x.unregister = append(x.unregister, b.Metrics.SharedGauge("seamark_"+s.Directive+"_"+name, help, metrics.Sum, x.locked(count)))
	}
	gauge("objects", "Objects that the directive "+s.Directive+" has read.", x.admitted)
	gauge("objects_faulty", "Of these, objects that have an error, or names that older objects have.", x.faults.count)
	gauge("object_"+s.Noun, strings.ToUpper(s.Noun[:1])+s.Noun[1:]+" in the objects; one of more than 256 bytes counts as several.", x.total)
	return x
}

// Stop ends the watch.
func (x *Objects) Stop() {
	x.task.Stop()
	x.faults.close()
	x.claim.Release()
	for _, unregister := range x.unregister {
		unregister()
	}
}

// locked returns a function for a metric that counts something under x's lock.
func (x *Objects) locked(count func() int) func() float64 {
	return func() float64 {
		x.mu.Lock()
		defer x.mu.Unlock()
		return float64(count())
	}
}

// SetRecorder has Events about objects with errors written.
func (x *Objects) SetRecorder(r Recorder) { x.faults.recorder = r }

// Faults returns a text about the objects with errors, "" if there are none.
func (x *Objects) Faults() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.faults.text()
}
