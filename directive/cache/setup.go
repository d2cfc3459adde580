package cache

import (
	"errors"
	"fmt"
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
	defaultEntries    = 9984
	defaultSuccessTTL = 3600
	defaultDenialTTL  = 1800
	defaultMinTTL     = 5
	// minMemory is the least value of the option memory: an eighth of it is a large answer.
	minMemory = 1 << 20
	maxMemory = 1 << 40 // of all server blocks together
)

// Setup reads the cache directive of a server block.
func Setup(b *config.Block, uses []corefile.Directive) error {
	c := &Cache{metrics: b.Metrics, options: options{
		bounds: [2]bounds{
			{defaultEntries, defaultMinTTL, defaultSuccessTTL},
			{defaultEntries, defaultMinTTL, defaultDenialTTL},
		},
	}}
	err := errors.Join(config.Once(uses), c.parseArguments(b, uses[0]), c.parseOptions(uses[0]))

	c.stateKey = b.NewStateKey()
	b.Handle(c)
	b.OnPlanned(func() error {
		own := b.NameOf(c)
		c.step = slices.IndexFunc(b.Chain.Steps(), func(s dns.Step) bool { return s.Name == own })
		c.view = b.Chain.View
		return nil
	})
	b.OnStart(func(s *config.Start) error { return c.start(b, s) })
	return err
}

// start keeps the store of the old plan, or creates one, and finds the server
// block's scope in it.
func (c *Cache) start(b *config.Block, s *config.Start) (err error) {
	c.store, err = config.Keep(s, nil, func() (*Store, error) {
		st := NewStore(MaxBytes, b.Memory)
		st.generations = b.Generations
		return st, nil
	})
	if err != nil {
		return err
	}

	// The Cache is its own key: no other plan keeps it, and it is stopped with
	// this one.
	if _, err = config.Keep(s, c, func() (*Cache, error) { return c, nil }); err != nil {
		return err
	}
	p, err := config.Keep(s, config.InPlan{Plan: s}, func() (*scopePlan, error) { return newScopePlan(), nil })
	if err != nil {
		return err
	}

	limits := [2]int{c.bounds[0].entries, c.bounds[1].entries}
	c.scope = c.store.scope(scopeName(b, c.step), limits)
	p.add(c.scope, limits, int(c.memory))
	b.OnSwap(func() { c.store.commit(p) })
	return nil
}

// parseArguments reads [TTL] [ZONES...].
func (c *Cache) parseArguments(b *config.Block, d corefile.Directive) error {
	if len(d.Args) > 0 {
		if _, err := strconv.Atoi(d.Args[0].Text); err == nil {
			highest, err := parseTTL(d, 0, 1)
			if err != nil {
				return err
			}
			c.bounds[0].maxTTL, c.bounds[1].maxTTL = highest, highest
			d.Args = d.Args[1:]
		}
	}

	if len(d.Args) > 0 {
		if _, err := time.ParseDuration(d.Args[0].Text); err == nil {
			b.Warn(d.Args[0].Errorf(d.Path, "%s is a zone here, not a TTL: write a TTL as seconds without a unit",
				d.Args[0].Text))
		}
	}

	zones, err := b.ZonesOr(d)
	for _, z := range zones {
		c.zones.Set(z, struct{}{})
	}
	c.allZones, c.label = slices.Contains(zones, wire.Root), wire.JoinNames(zones, ",")
	return err
}

// parseOptions reads the options in braces.
func (c *Cache) parseOptions(d corefile.Directive) error {
	staleServed, policy := false, (*corefile.Directive)(nil)
	parseServeStale := func(o corefile.Directive) error {
		staleServed = true
		return c.parseServeStale(o)
	}
	parsePolicy := func(o corefile.Directive) error {
		policy, c.preferPositive = &o, true
		return oneOf(new(string), o, 0, "prefer_positive")
	}

	err := d.Options(
		c.bounds[0].option("success"),
		c.bounds[1].option("denial"),
		corefile.Option{Usage: "memory SIZE", Once: true, Set: corefile.Size(&c.memory, minMemory, maxMemory)},
		corefile.Option{Usage: "prefetch AMOUNT [[DURATION] [PERCENT%]]", Default: "0 1m 10%", Set: c.parsePrefetch},
		corefile.Option{
			Usage: "serve_stale [DURATION] [immediate|verify [TIMEOUT [REPLYTTL [RECHECK]]]]", Set: parseServeStale,
		},
		corefile.Option{Usage: "serve_stale_policy prefer_positive", Once: true, Set: parsePolicy},
		corefile.Option{
			Usage: "servfail DURATION", Default: "5s", Set: corefile.Duration(&c.servfailFor, 0, 5*time.Minute),
		},
		corefile.Option{Usage: "disable success|denial [ZONES...]", Set: c.parseDisable},
		corefile.Option{Usage: "keepttl", Set: corefile.Flag(&c.keepTTL)},
	)

	if policy != nil && !staleServed {
		err = errors.Join(err, policy.Errorf("needs serve_stale"))
	}
	return err
}

// argument returns o with argument i alone: the functions of package corefile read
// the first argument.
func argument(o corefile.Directive, i int) corefile.Directive {
	o.Args = o.Args[i : i+1]
	return o
}

// oneOf reads argument i, in any case, as one of words.
func oneOf(s *string, o corefile.Directive, i int, words ...string) error {
	o = argument(o, i)
	if word := strings.ToLower(o.Args[0].Text); slices.Contains(words, word) {
		*s = word
		return nil
	}
	return corefile.OneOf(s, words...)(o)
}

// parseTTL reads argument i as seconds.
func parseTTL(d corefile.Directive, i, lowest int) (uint32, error) {
	n := 0
	err := corefile.Int(&n, lowest, math.MaxInt32)(argument(d, i))
	return uint32(n), err
}

// option returns the option that sets b. Its default is the present value, which depends on
// the argument TTL of cache.
func (b *bounds) option(name string) corefile.Option {
	return corefile.Option{
		Usage:   name + " CAPACITY [TTL] [MINTTL]",
		Default: fmt.Sprintf("%d %d %d", b.entries, b.maxTTL, b.minTTL),
		Set:     b.parse,
	}
}

// parse reads CAPACITY [TTL] [MINTTL].
func (b *bounds) parse(o corefile.Directive) error {
	err := corefile.Int(&b.entries, 0, math.MaxInt32)(argument(o, 0))
	if err == nil && len(o.Args) > 1 {
		b.maxTTL, err = parseTTL(o, 1, 1)
	}
	if err == nil && len(o.Args) > 2 {
		b.minTTL, err = parseTTL(o, 2, 0)
	}
	return err
}

// parsePrefetch reads AMOUNT [[DURATION] [PERCENT%]].
func (c *Cache) parsePrefetch(o corefile.Directive) error {
	n := 0
	if err := corefile.Int(&n, 0, math.MaxInt32)(argument(o, 0)); err != nil {
		return err
	}
	c.prefetch = uint32(n)

	rest := o.Args[1:]
	if len(rest) > 0 && !strings.HasSuffix(rest[0].Text, "%") {
		if err := corefile.Duration(&c.prefetchGap, 0, 365*24*time.Hour)(argument(o, 1)); err != nil {
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
	c.prefetchPercent = percent
	return nil
}

// parseServeStale reads [DURATION] [immediate|verify ...].
func (c *Cache) parseServeStale(o corefile.Directive) error {
	c.staleFor, c.verify, c.verifyTimeout, c.staleTTL, c.recheck = time.Hour, false, 0, 0, 0
	at := 0
	next := func(t *time.Duration) error {
		if at >= len(o.Args) {
			return nil
		}
		at++
		return parseLong(t, o, at-1)
	}

	mode := ""
	if len(o.Args) > 0 && oneOf(&mode, o, 0, "immediate", "verify") != nil {
		if err := next(&c.staleFor); err != nil {
			return err
		}
	}
	if at == len(o.Args) {
		return nil
	}

	if err := oneOf(&mode, o, at, "immediate", "verify"); err != nil {
		return err
	}
	at++
	if c.verify = mode == "verify"; c.verify {
		if err := next(&c.verifyTimeout); err != nil {
			return err
		}
	}

	var ttl time.Duration
	if at < len(o.Args) {
		// Other TTLs are seconds without a unit; accept that here, too.
		if _, err := strconv.ParseUint(o.Args[at].Text, 10, 16); err == nil {
			o.Args = slices.Clone(o.Args)
			o.Args[at].Text += "s"
		}
	}
	if err := errors.Join(next(&ttl), next(&c.recheck)); err != nil {
		return err
	}

	if ttl%time.Second != 0 {
		return o.Errorf("want a TTL of whole seconds, got %s", ttl)
	}
	c.staleTTL = seconds(min(ttl, math.MaxInt32*time.Second)) // RFC 2181 §8
	if at < len(o.Args) {
		return o.Arity(0, at)
	}
	return nil
}

// parseLong reads argument i as a duration. Any duration is accepted; more than
// a hundred years are as good as these.
func parseLong(t *time.Duration, o corefile.Directive, i int) error {
	const century = 100 * 365 * 24 * time.Hour
	text := o.Args[i].Text
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return o.Errorf("want a duration such as 30s or 1h, got %q", text)
	}
	*t = min(d, century)
	return nil
}

// parseDisable reads success|denial [ZONES...]. The zones of several lines add
// up.
func (c *Cache) parseDisable(o corefile.Directive) error {
	kind := ""
	if err := corefile.OneOf(&kind, "success", "denial")(argument(o, 0)); err != nil {
		return err
	}

	disabled := &c.disabled[0]
	if kind == "denial" {
		disabled = &c.disabled[1]
	}

	before := *disabled
	o.Args = o.Args[1:]
	if err := disabled.Parse(o); err != nil {
		return err
	}
	if before.On {
		if disabled.Zones = append(before.Zones, disabled.Zones...); len(before.Zones) == 0 || len(o.Args) == 0 {
			disabled.Zones = nil // all zones
		}
	}
	return nil
}
