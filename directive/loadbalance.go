package directive

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// Loadbalance changes the order of the addresses in answers: the loadbalance directive. Its
// reference page is docs/reference/directives/loadbalance.md.
type Loadbalance struct {
	prefer  []netip.Prefix // in reverse order
	weights *weightsFile   // nil for round_robin
}

// SetupLoadbalance sets up the loadbalance directive.
func SetupLoadbalance(b *config.Block, uses []corefile.Directive) error {
	l := &Loadbalance{}
	d := uses[0]
	period := 30 * time.Second
	parseReload := func(o corefile.Directive) error {
		if l.weights == nil {
			return o.Errorf("requires weighted")
		}
		if o.Args[0].Text == "0" || o.Args[0].Text == "0s" {
			period = 0
			return nil
		}
		return corefile.Duration(&period, time.Second, 24*time.Hour)(o)
	}
	errs := []error{config.Once(uses), l.policy(b, d), d.Options(
		corefile.Option{Usage: "reload DURATION", Set: parseReload},
		corefile.Option{Usage: "prefer CIDR...", Set: l.parsePrefer},
	)}
	b.Handle(l)

	if l.weights != nil {
		b.OnStart(func(s *config.Start) error {
			kept, err := keepWeights(s, b, l.weights.file, period)
			if err != nil {
				return d.Errorf("%w", err)
			}
			l.weights = kept
			return nil
		})
	}
	return errors.Join(errs...)
}

func (l *Loadbalance) policy(b *config.Block, d corefile.Directive) error {
	if len(d.Args) == 0 {
		return nil
	}
	known := []string{"round_robin", "weighted"}
	switch word := strings.ToLower(d.Args[0].Text); {
	case word == "round_robin":
		return d.Arity(1, 1)
	case word == "weighted" && len(d.Args) == 2:
		l.weights = &weightsFile{file: b.Path(d.Args[1].Text)}
		if err := l.weights.read(); errors.Is(err, fs.ErrNotExist) {
			b.Warn(d.Errorf("%w", err)) // as in CoreDNS, it may be created later
		} else if err != nil {
			return d.Errorf("%w", err)
		}
	case word == "weighted":
		l.weights = &weightsFile{}
		return d.Errorf("weighted: want a file")
	default:
		return d.Errorf("want round_robin or weighted, got %q%s", d.Args[0].Text, corefile.DidYouMean(word, known))
	}
	return nil
}

func (l *Loadbalance) parsePrefer(o corefile.Directive) error {
	var errs []error
	for _, a := range o.Args {
		p, err := netip.ParsePrefix(a.Text)
		if err != nil {
			errs = append(errs, a.Errorf(o.Path, "%q is not a CIDR: want one like 10.0.0.0/8 or fd00::/8", a.Text))
			continue
		}
		// FinishDNS raises the first CIDR last, so that it comes first.
		l.prefer = append([]netip.Prefix{p.Masked()}, l.prefer...)
	}
	return errors.Join(errs...)
}

// ServeDNS passes every query on.
func (*Loadbalance) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

// Repetition reports that the programs may rotate the addresses. Any other order needs to see each query
// with several.
func (l *Loadbalance) Repetition() dns.Repetition {
	if l.weights == nil && len(l.prefer) == 0 {
		return dns.Repetition{Rotates: true}
	}
	return dns.Repetition{Allows: func(q *dns.Query) bool { return hasFewRecords(&q.Answer) }}
}

// hasFewRecords reports whether no order of the records can be wrong.
func hasFewRecords(a *wire.Answer) bool {
	return a.Count[wire.Answers] < 2 && a.Count[wire.Authority] < 2 && a.Count[wire.Additional] < 2
}

// FinishDNS reorders the addresses.
func (l *Loadbalance) FinishDNS(q *dns.Query) {
	a := &q.Answer
	if hasFewRecords(a) || q.RCode != wire.NoError || q.Type.IsTransfer() {
		return
	}

	if l.weights == nil {
		a.Rotate(rand.Uint32())
	} else {
		a.AliasesFirst()
		l.weights.order(a)
	}
	if len(l.prefer) == 0 {
		return
	}

	a.RRsets(func(run wire.RRset) {
		for _, p := range l.prefer {
			if t := run.First.Type; t == wire.TypeA && p.Addr().Is4() || t == wire.TypeAAAA && p.Addr().Is6() {
				a.MoveToFront(run, func(_ int, r wire.Record) bool {
					addr, ok := netip.AddrFromSlice(a.Buf[r.RData:r.Next])
					return ok && p.Contains(addr)
				})
			}
		}
	})
}
