package cache

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

const (
	usualEntries    = 9984
	usualSuccessTTL = 3600
	usualDenialTTL  = 1800
	usualLeastTTL   = 5

	longest = 365 * 24 * time.Hour // of any duration
)

// Setup is the Setup of cache.
func Setup(b *config.Block, uses []corefile.Directive) error {
	c := &Cache{metrics: b.Metrics, passages: newPassages(), options: options{
		bounds: [2]bounds{
			{usualEntries, usualLeastTTL, usualSuccessTTL},
			{usualEntries, usualLeastTTL, usualDenialTTL},
		},
		gap: time.Minute, percent: 10, failureFor: 5 * time.Second,
	}}
	err := errors.Join(config.Once(uses), c.arguments(b, uses[0]), c.read(uses[0]))
	c.word = b.NewStateKey()
	b.Handle(c)
	name := ""
	b.OnPlanned(func() error {
		own := b.NameOf(c)
		c.step = slices.IndexFunc(b.Chain.Steps(), func(s dns.Step) bool { return s.Name == own })
		c.label, c.view = zonesText(c.zones), b.Chain.View
		name = strconv.Quote(b.Chain.View) + zonesText(b.Zones) + "\n" + b.Path("")
		return nil
	})
	b.OnStart(func(s *config.Start) error {
		var err error
		if c.store, err = config.Keep(s, storeKey{}, func() (*Store, error) { return NewStore(MaxBytes), nil }); err != nil {
			return err
		}
		// Its key is its own: its gauges end with its plan.
		if _, err = config.Keep(s, c, func() (*Cache, error) { return c, nil }); err != nil {
			return err
		}
		limits := [2]int{c.bounds[0].entries, c.bounds[1].entries}
		c.scope = c.store.scope(name, limits)
		c.ways = waysOf(b, c.step, c.store.seed)
		p, err := config.Keep(s, planKey{s}, func() (*plan, error) { return newPlan(), nil })
		if err != nil {
			return err
		}
		p.use(c.scope, limits, &c.ways)
		b.OnSwap(func() {
			if !p.served { // once for all blocks
				p.served = true
				c.store.commit(p.scopes)
			}
		})
		return nil
	})
	b.OnChain(c.count)
	return err
}

type storeKey struct{}

type planKey struct{ start *config.Start }

// A plan is the scopes that the blocks of one plan use.
type plan struct {
	scopes map[*scope]*use
	limits map[common][2]int
	served bool // the store knows
}

// A common is the blocks that have a scope and get answers in one way: they have
// the same entries. Others with that scope have theirs beside them.
type common struct {
	*scope
	way uint64 // of the names in no forward's zone
}

func newPlan() *plan { return &plan{scopes: map[*scope]*use{}, limits: map[common][2]int{}} }

// Stop is for config.Keep: there is nothing to end.
func (*plan) Stop() {}

func (p *plan) use(s *scope, limits [2]int, ws *ways) {
	u := p.scopes[s]
	if u == nil {
		u = &use{ways: map[uint64]bool{}}
		p.scopes[s] = u
	}
	of := common{s, ws.rest}
	had := p.limits[of]
	for i := range limits {
		limits[i] = max(limits[i], had[i])
		u.limits[i] += limits[i] - had[i]
	}
	p.limits[of] = limits
	for _, w := range ws.all() {
		u.ways[w] = true
	}
}

// arguments reads [TTL] [ZONES…].
func (c *Cache) arguments(b *config.Block, d corefile.Directive) (err error) {
	if len(d.Args) > 0 {
		if _, err := strconv.Atoi(d.Args[0].Text); err == nil {
			most, err := ttl(d, d.Args[0], 1)
			if err != nil {
				return err
			}
			c.bounds[0].most, c.bounds[1].most = most, most
			d.Args = d.Args[1:]
		}
	}
	c.zones, err = b.ZonesOr(d)
	c.everywhere = slices.Contains(c.zones, wire.Root)
	return err
}

// read reads the braces.
func (c *Cache) read(d corefile.Directive) error {
	policy := ""
	err := d.Options(
		corefile.Option{Name: "success", Min: 1, Max: 3, Set: func(o corefile.Directive) error { return c.readBounds(o, 0) }},
		corefile.Option{Name: "denial", Min: 1, Max: 3, Set: func(o corefile.Directive) error { return c.readBounds(o, 1) }},
		corefile.Option{Name: "prefetch", Min: 1, Max: 3, Set: c.readPrefetch},
		corefile.Option{Name: "serve_stale", Max: 5, Set: c.readStale},
		corefile.Option{Name: "serve_stale_policy", Min: 1, Max: 1, Set: corefile.OneOf(&policy, "prefer_positive")},
		corefile.Option{Name: "servfail", Min: 1, Max: 1, Set: corefile.Duration(&c.failureFor, 0, 5*time.Minute)},
		corefile.Option{Name: "disable", Min: 1, Max: -1, Set: c.readDisable},
		corefile.Option{Name: "keepttl", Set: corefile.Flag(&c.keepTTL)},
	)
	c.preferPositive = policy != ""
	return err
}

// only is o with one of its arguments: what corefile's readers look at.
func only(o corefile.Directive, i int) corefile.Directive {
	o.Args = o.Args[i : i+1]
	return o
}

// ttl reads seconds.
func ttl(d corefile.Directive, a corefile.Token, least int) (uint32, error) {
	d.Args = []corefile.Token{a}
	n := 0
	err := corefile.Int(&n, least, math.MaxInt32)(d)
	return uint32(n), err
}

// readBounds reads CAP [TTL] [MINTTL].
func (c *Cache) readBounds(o corefile.Directive, kind int) error {
	to := &c.bounds[kind]
	err := corefile.Int(&to.entries, 0, math.MaxInt32)(only(o, 0))
	if err == nil && len(o.Args) > 1 {
		to.most, err = ttl(o, o.Args[1], 1)
	}
	if err == nil && len(o.Args) > 2 {
		to.least, err = ttl(o, o.Args[2], 0)
	}
	return err
}

// readPrefetch reads N [[DURATION] [PERCENT%]].
func (c *Cache) readPrefetch(o corefile.Directive) error {
	n := 0
	if err := corefile.Int(&n, 0, math.MaxInt32)(only(o, 0)); err != nil {
		return err
	}
	c.prefetch = uint32(n)
	rest := o.Args[1:]
	if len(rest) > 0 && !strings.HasSuffix(rest[0].Text, "%") {
		if err := corefile.Duration(&c.gap, 0, longest)(only(o, 1)); err != nil {
			return err
		}
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return nil
	}
	digits, ok := strings.CutSuffix(rest[0].Text, "%")
	percent, err := strconv.Atoi(digits)
	if !ok || err != nil || percent < 10 || percent > 90 || len(rest) > 1 {
		return o.Errorf("want 10%%..90%%, got %q", rest[len(rest)-1].Text)
	}
	c.percent = percent
	return nil
}

// readStale reads [DURATION] [immediate|verify …].
func (c *Cache) readStale(o corefile.Directive) error {
	c.staleFor, c.verify, c.verifyWithin, c.staleTTL, c.recheck = time.Hour, false, 0, 0, 0
	at := 0
	next := func(t *time.Duration) error {
		if at >= len(o.Args) {
			return nil
		}
		at++
		return corefile.Duration(t, 0, longest)(only(o, at-1))
	}
	mode := ""
	if len(o.Args) > 0 && o.Args[0].Text != "immediate" && o.Args[0].Text != "verify" {
		if err := next(&c.staleFor); err != nil {
			return err
		}
	}
	if at == len(o.Args) {
		return nil
	}
	if err := corefile.OneOf(&mode, "immediate", "verify")(only(o, at)); err != nil {
		return err
	}
	at++
	if c.verify = mode == "verify"; c.verify {
		if err := next(&c.verifyWithin); err != nil {
			return err
		}
	}
	var reply time.Duration
	if at < len(o.Args) { // TTLs are plain seconds elsewhere
		if n, err := strconv.ParseUint(o.Args[at].Text, 10, 16); err == nil {
			o.Args = slices.Clone(o.Args)
			o.Args[at].Text = strconv.FormatUint(n, 10) + "s"
		}
	}
	if err := errors.Join(next(&reply), next(&c.recheck)); err != nil {
		return err
	}
	c.staleTTL = seconds(reply)
	if at < len(o.Args) {
		return o.Errorf("want at most %s, got %d", arguments(at), len(o.Args))
	}
	return nil
}

func arguments(n int) string { return strconv.Itoa(n) + " arguments" }

// readDisable reads success|denial [ZONES…].
func (c *Cache) readDisable(o corefile.Directive) (err error) {
	kind := ""
	if err := corefile.OneOf(&kind, "success", "denial")(only(o, 0)); err != nil {
		return err
	}
	to := &c.disabled[0]
	if kind == "denial" {
		to = &c.disabled[1]
	}
	before := *to
	o.Args = o.Args[1:]
	if err := to.Parse(o); err != nil {
		return err
	}
	if before.On { // several lines add up
		if to.Zones = append(before.Zones, to.Zones...); len(before.Zones) == 0 || len(o.Args) == 0 {
			to.Zones = nil
		}
	}
	return nil
}
