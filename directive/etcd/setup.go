package etcd

import (
	"cmp"
	"errors"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster/etcdclient"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// reloadTimeout is how long a reload waits for the first list of a new source.
const reloadTimeout = 5 * time.Second

// Setup sets up the directive etcd: see Handler.
func Setup(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	h := &Handler{seed: maphash.MakeSeed(), stateKey: b.NewStateKey()}
	o := options{ttl: -1, negative: -1}
	zones, err := b.ZonesOr(d)
	errs := []error{config.Once(uses), err, o.read(b, d, h)}
	for _, z := range zones {
		h.zones.Set(z, struct{}{})
		if len(z) > wire.MaxName-len("\x0ahostmaster") {
			errs = append(errs, d.Errorf("zone %s is too long: the name of its hostmaster would exceed 255 bytes", z))
		}
	}

	h.index = newIndex(o.prefix, b.Log)
	b.Handle(h)
	b.Answers(config.Extent{Use: d, Zones: zones, Through: &h.through, Option: "fallthrough"})
	b.OnStart(func(s *config.Start) error { return o.start(s, d, b, h) })
	return errors.Join(errs...)
}

// options are the options of a directive that are not fields of its Handler.
type options struct {
	etcdclient.Options
	prefix             string
	maxKeys            int
	direct             bool // each query reads etcd
	ttl, negative      int  // -1 if not in the Corefile
	leaseMin, leaseMax time.Duration
}

func (o *options) read(b *config.Block, d corefile.Directive, h *Handler) error {
	var watch, compatible string
	priority := 0
	ignored := func(usage string) corefile.Option {
		return corefile.Option{Usage: usage, Set: func(e corefile.Directive) error {
			b.Warn(e.Errorf("ignored, delete this line: the option is obsolete"))
			return nil
		}}
	}

	err := d.Options(
		h.through.Option(),
		corefile.Option{Usage: "path PATH", Default: "/skydns", Set: func(e corefile.Directive) error {
			parts := strings.FieldsFunc(e.Args[0].Text, func(c rune) bool { return c == '/' })
			o.prefix = strings.Join(append(append([]string{""}, parts...), ""), "/")
			return nil
		}},
		corefile.Option{Usage: "endpoint ENDPOINT...", Set: func(e corefile.Directive) error {
			o.Endpoints = strings.Join(e.Words(), ",")
			return e.Each(etcdclient.Options{Endpoints: o.Endpoints}.Check())
		}},
		corefile.Option{Usage: "credentials USERNAME PASSWORD", Set: func(e corefile.Directive) error {
			o.Username, o.Password = e.Args[0].Text, e.Args[1].Text
			return e.Each(etcdclient.Options{Username: o.Username, Password: o.Password}.Check())
		}},
		corefile.Option{Usage: "tls [CERT KEY] [CA]", Set: func(e corefile.Directive) error {
			o.setTLS(b, e.Words())
			b.WarnExposed(e, o.Key)
			if err := o.CheckFiles(); err != nil { // they may be mounted later
				b.Warn(e.Errorf("%w; etcd is not asked until they can be used", err))
			}
			return nil
		}},

		seconds("min-lease-ttl", "30s", &o.leaseMin),
		seconds("max-lease-ttl", "24h", &o.leaseMax),
		corefile.Option{Usage: "no_apex_fallback", Set: corefile.Flag(&h.noApexFallback)},
		corefile.Option{Usage: "watch on|off", Default: "on", Set: corefile.OneOf(&watch, "on", "off")},
		corefile.Option{Usage: "most KEYS", Default: "1000000", Set: corefile.Int(&o.maxKeys, 0, math.MaxInt32)},
		corefile.Option{Usage: "ttl SECONDS", Set: corefile.Int(&o.ttl, 0, math.MaxInt32)},
		corefile.Option{Usage: "negative_ttl SECONDS", Set: corefile.Int(&o.negative, 0, math.MaxInt32)},
		corefile.Option{
			Usage: "priority N", Default: strconv.Itoa(defaultPriority),
			Set: corefile.Int(&priority, 0, math.MaxUint16),
		},
		corefile.Option{Usage: "hostmaster NAME", Set: nameOption(&h.hostmaster)},
		corefile.Option{Usage: "local NAME", Set: nameOption(&h.local)},
		corefile.Option{Usage: "compatible skydns", Set: corefile.OneOf(&compatible, "skydns")},
		ignored("stubzones"), ignored("debug"), ignored("upstream [ADDRESS...]"),
	)

	if err == nil {
		err = d.Each(o.Check())
	}
	if o.leaseMin > o.leaseMax {
		err = errors.Join(err, d.Errorf("min-lease-ttl is greater than max-lease-ttl"))
	}

	o.direct, h.skydns = watch == "off", compatible != ""
	h.priority = uint16(cmp.Or(priority, defaultPriority))
	o.setTTLs(h)
	return err
}

// setTLS sets the files of the option tls.
func (o *options) setTLS(b *config.Block, words []string) {
	var files []string
	for _, file := range words {
		files = append(files, b.Path(file))
	}
	if o.Cert, o.Key, o.CA = "", "", ""; len(files) > 1 {
		o.Cert, o.Key, files = files[0], files[1], files[2:]
	}
	if len(files) > 0 {
		o.CA = files[0]
	}
}

// setTTLs sets the TTLs of h, whose defaults depend on compatible.
func (o *options) setTTLs(h *Handler) {
	h.ttl, h.negative = 300, 30
	if h.skydns {
		h.ttl, h.negative = 3600, 60
	}
	if o.ttl >= 0 {
		h.ttl = uint32(o.ttl)
	}
	if o.negative >= 0 {
		h.negative = uint32(o.negative)
	}
	h.leaseMin, h.leaseMax = uint32(o.leaseMin/time.Second), uint32(o.leaseMax/time.Second)
}

// seconds returns an option that sets *t to a duration or a number of seconds. A value below
// one second means the default, as in CoreDNS.
func seconds(name, standard string, t *time.Duration) corefile.Option {
	return corefile.Option{Usage: name + " SECONDS", Default: standard, Set: func(e corefile.Directive) error {
		err := corefile.Duration(t, 0, 10*365*24*time.Hour)(config.InSeconds(e))
		if *t < time.Second {
			*t, _ = time.ParseDuration(standard)
		}
		return err
	}}
}

// nameOption returns a setter of *name.
func nameOption(name *wire.Name) func(corefile.Directive) error {
	return func(e corefile.Directive) (err error) {
		if *name, err = wire.ParseName(e.Args[0].Text); err != nil {
			return e.Errorf("invalid name: %w", err)
		}
		return nil
	}
}

// start starts a source, or reuses the running plan's. A reload fails if the
// keys are not received within reloadTimeout; the first start does not wait for them.
func (o *options) start(s *config.Start, d corefile.Directive, b *config.Block, h *Handler) error {
	type key struct {
		etcdclient.Options
		prefix  string
		maxKeys int
		direct  bool
	}

	r, err := config.Keep(s, key{o.Options, o.prefix, o.maxKeys, o.direct}, func() (*source, error) {
		from := o.newSource(b)
		if o.direct {
			return from, nil
		}
		from.task.Go(from.run)
		return from, s.Await(from, from.ready, reloadTimeout, func() error {
			return d.Errorf("the keys below %s were not received from %s within %v",
				o.prefix, from.endpoints(), reloadTimeout)
		})
	})
	if err != nil {
		return err
	}

	h.index, h.keyReader, h.direct = r.index, r, r.tooLarge.Load
	if o.direct {
		h.direct = func() bool { return true }
	}
	return nil
}

// worstAge combines the ages of two sources, of which -1 is the worst.
func worstAge(a, b float64) float64 {
	if a < 0 || b < 0 {
		return -1
	}
	return max(a, b)
}

// newSource returns a source whose run has not been called.
func (o *options) newSource(b *config.Block) *source {
	counter := func(name, help string) *metrics.Counter { return b.Metrics.Counter(name, help, "path", o.prefix) }
	s := &source{
		Options: o.Options, prefix: o.prefix, maxKeys: int64(o.maxKeys),
		index: newIndex(o.prefix, b.Log), log: b.Log, health: b.Health(), memory: b.Memory, ready: make(chan struct{}),
		lists:    counter("seamark_etcd_lists_total", "Lists of all keys under the prefix."),
		events:   counter("seamark_etcd_events_total", "Changes of keys that the watch has reported."),
		failures: counter("seamark_etcd_failures_total", "Requests to etcd, and watches, that failed."),
	}
	if !o.direct {
		s.unregister = []func(){
			// Directives with other endpoints or options may have the same path.
			b.Metrics.SharedGauge("seamark_etcd_data_age_seconds",
				"Seconds since etcd last confirmed that the keys are current; -1 before that.",
				worstAge, s.age, "path", o.prefix),
			b.Metrics.SharedGauge("seamark_etcd_keys", "Keys in the index.", metrics.Sum,
				func() float64 { return float64(s.index.count()) }, "path", o.prefix),
		}
	}
	return s
}
