package etcd

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/internal/etcdclient"
	"github.com/seamark/seamark/wire"
)

// patience is how long a reload waits for the keys of another etcd.
const patience = 5 * time.Second

// Setup is the Setup of etcd: see Handler.
func Setup(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	h := &Handler{seed: maphash.MakeSeed(), word: b.NewStateKey()}
	o := options{prefix: "/skydns/", most: 1000000, ttl: -1, negative: -1, leaseMin: 30 * time.Second, leaseMax: 24 * time.Hour}
	zones, err := b.ZonesOr(d)
	errs := []error{config.Once(uses), err, o.read(b, d, h)}
	for _, z := range zones {
		errs = append(errs, h.serve(d, z))
	}
	slices.SortStableFunc(h.zones, func(a, b zoneInfo) int { return b.labels - a.labels })
	h.index = newIndex(o.prefix, b.Log)
	b.Handle(h)
	b.OnStart(func(s *config.Start) error { return o.start(s, d, b, h) })
	return errors.Join(errs...)
}

// serve gives h a zone.
func (h *Handler) serve(d corefile.Directive, name wire.Name) error {
	if len(name) > wire.MaxName-len("\x0ahostmaster") {
		return d.Errorf("%s is too long for a zone: the name of its hostmaster would have more than 255 bytes", name)
	}
	h.zones = append(h.zones, zoneInfo{name: name, labels: name.Labels()})
	return nil
}

// options are a directive's, as far as they are not the handler's own.
type options struct {
	etcdclient.Options
	prefix             string
	most               int
	direct             bool // each question is asked of etcd
	ttl, negative      int  // -1 is not given
	leaseMin, leaseMax time.Duration
}

func (o *options) read(b *config.Block, d corefile.Directive, h *Handler) error {
	var watch, compatible string
	priority := 0
	ignored := func(name string, most int) corefile.Option {
		return corefile.Option{Name: name, Max: most, Set: func(e corefile.Directive) error {
			b.Log.Warn("etcd: an option of old means nothing any more, as in CoreDNS", "option", e.Text)
			return nil
		}}
	}
	err := d.Options(
		h.through.Option(),
		corefile.Option{Name: "path", Min: 1, Max: 1, Set: func(e corefile.Directive) error {
			parts := strings.FieldsFunc(e.Args[0].Text, func(c rune) bool { return c == '/' })
			o.prefix = strings.Join(append(append([]string{""}, parts...), ""), "/")
			return nil
		}},
		corefile.Option{Name: "endpoint", Min: 1, Max: -1, Set: func(e corefile.Directive) error {
			o.Endpoints = strings.Join(e.Words(), ",")
			return each(e, etcdclient.Options{Endpoints: o.Endpoints}.Check(), "endpoint: ")
		}},
		corefile.Option{Name: "credentials", Min: 2, Max: 2, Set: func(e corefile.Directive) error {
			o.Username, o.Password = e.Args[0].Text, e.Args[1].Text
			return each(e, etcdclient.Options{Username: o.Username, Password: o.Password}.Check(), "credentials: ")
		}},
		corefile.Option{Name: "tls", Max: 3, Set: func(e corefile.Directive) error {
			var files []string
			for _, file := range e.Words() {
				files = append(files, b.Path(file))
			}
			if o.Cert, o.Key, o.CA = "", "", ""; len(files) > 1 {
				o.Cert, o.Key, files = files[0], files[1], files[2:]
			}
			if len(files) > 0 {
				o.CA = files[0]
			}
			return nil
		}},
		corefile.Option{Name: "min-lease-ttl", Min: 1, Max: 1, Set: seconds(&o.leaseMin, 30*time.Second)},
		corefile.Option{Name: "max-lease-ttl", Min: 1, Max: 1, Set: seconds(&o.leaseMax, 24*time.Hour)},
		corefile.Option{Name: "no_apex_fallback", Set: corefile.Flag(&h.noApexFallback)},
		corefile.Option{Name: "watch", Min: 1, Max: 1, Set: corefile.OneOf(&watch, "on", "off")},
		corefile.Option{Name: "most", Min: 1, Max: 1, Set: corefile.Int(&o.most, 0, math.MaxInt32)},
		corefile.Option{Name: "ttl", Min: 1, Max: 1, Set: corefile.Int(&o.ttl, 0, math.MaxInt32)},
		corefile.Option{Name: "negative_ttl", Min: 1, Max: 1, Set: corefile.Int(&o.negative, 0, math.MaxInt32)},
		corefile.Option{Name: "priority", Min: 1, Max: 1, Set: corefile.Int(&priority, 0, math.MaxUint16)},
		corefile.Option{Name: "hostmaster", Min: 1, Max: 1, Set: nameOf(&h.hostmaster)},
		corefile.Option{Name: "local", Min: 1, Max: 1, Set: nameOf(&h.local)},
		corefile.Option{Name: "compatible", Min: 1, Max: 1, Set: corefile.OneOf(&compatible, "skydns")},
		ignored("stubzones", 0), ignored("debug", 0), ignored("upstream", -1),
	)
	if err == nil {
		err = each(d, o.Check(), "")
	}
	if o.leaseMin > o.leaseMax {
		err = errors.Join(err, d.Errorf("min-lease-ttl is more than max-lease-ttl"))
	}
	o.direct, h.skydns = watch == "off", compatible != ""
	h.priority = uint16(cmp.Or(priority, defaultPriority))
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
	return err
}

// each puts an option's position before every error that is joined in err, and takes
// off what they begin with.
func each(e corefile.Directive, err error, begin string) error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return e.Errorf("%s", strings.TrimPrefix(err.Error(), begin))
	}
	var errs []error
	for _, one := range joined.Unwrap() {
		errs = append(errs, each(e, one, begin))
	}
	return errors.Join(errs...)
}

// seconds sets *t to a duration, or to a number of seconds; zero is what is usual,
// as in CoreDNS.
func seconds(t *time.Duration, usual time.Duration) func(corefile.Directive) error {
	return func(e corefile.Directive) error {
		if text := e.Args[0].Text; number(text) {
			e.Args = []corefile.Token{{Text: text + "s", File: e.File, Line: e.Line}}
		}
		err := corefile.Duration(t, 0, 10*365*24*time.Hour)(e)
		if *t < time.Second {
			*t = usual
		}
		return err
	}
}

func number(text string) bool {
	_, err := strconv.ParseUint(text, 10, 64)
	return err == nil
}

func nameOf(name *wire.Name) func(corefile.Directive) error {
	return func(e corefile.Directive) (err error) {
		if *name, err = wire.ParseName(e.Args[0].Text); err != nil {
			return e.Errorf("not a name: %w", err)
		}
		return nil
	}
}

// running is a source at work: it outlives reloads that do not change it.
type running struct {
	*source
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	drops  []func() // of metrics
}

// Stop ends it.
func (r *running) Stop() {
	r.cancel()
	r.tasks.Wait()
	r.makers.Wait()
	r.disconnect()
	for _, drop := range r.drops {
		drop()
	}
}

// start follows etcd, unless the old plan does already. A reload waits for the keys
// and fails without them; a first start serves at once.
func (o *options) start(s *config.Start, d corefile.Directive, b *config.Block, h *Handler) error {
	type key struct {
		etcdclient.Options
		prefix string
		most   int
		direct bool
	}
	made := false
	r, err := config.Keep(s, key{o.Options, o.prefix, o.most, o.direct}, func() (*running, error) {
		made = true
		ctx, cancel := context.WithCancel(context.Background())
		r := o.follower(ctx, cancel, b)
		if !o.direct {
			r.tasks.Go(func() { r.run(ctx) })
		}
		return r, nil
	})
	if err != nil {
		return err
	}
	h.index, h.asker, h.unheld = r.index, r, r.tooLarge.Load
	if o.direct {
		h.unheld = func() bool { return true }
	}
	if !s.Reload || !made {
		return nil
	}
	return o.wait(s.Context, d, b.Log, h)
}

// follower makes what follows etcd, or asks it.
func (o *options) follower(life context.Context, cancel context.CancelFunc, b *config.Block) *running {
	r := &running{cancel: cancel, source: &source{
		Options: o.Options, life: life, prefix: o.prefix, most: int64(o.most), index: newIndex(o.prefix, b.Log), log: b.Log,
	}}
	r.register(b.Metrics, o.prefix)
	if !o.direct {
		r.drops = []func(){
			b.Metrics.TemporaryGauge("seamark_etcd_data_age_seconds", "How long ago etcd said last that there is nothing else; -1 is never.", r.age, "path", o.prefix),
			b.Metrics.TemporaryGauge("seamark_etcd_keys", "Keys that are held.", func() float64 { return float64(r.index.count()) }, "path", o.prefix),
		}
	}
	return r
}

// wait returns when h can answer. The old plan serves what it knows meanwhile, and
// goes on if this one has nothing to put in its place.
func (o *options) wait(ctx context.Context, d corefile.Directive, log *slog.Logger, h *Handler) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !h.Ready() {
		select {
		case <-look.C:
		case <-timeout.C:
			return d.Errorf("the keys below %s did not come from %s within %v", o.prefix, cmp.Or(o.Endpoints, etcdclient.Local), patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
