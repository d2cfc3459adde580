package directive

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Loadbalance changes the order of the addresses in answers, since most
// clients use the first: the loadbalance directive.
//
//	loadbalance [round_robin | weighted FILE] {
//	    reload DURATION
//	    prefer CIDR...
//	}
//
// round_robin, the default, begins the A, AAAA and MX records of a name at a
// random one of them and goes around: each is as often the first. Records of
// other types stay where they are, CNAMEs in front among them. This costs
// little whatever the size of the answer, and it takes no lock.
//
// weighted FILE puts one A and one AAAA record of each name first, at random
// and by weight. FILE has names, each followed by lines of an address and its
// weight of 1 to 255; an address that is not listed has the weight 1. # begins
// a comment.
//
//	www.example.org
//	192.0.2.1  3
//	192.0.2.2  1
//
// reload, 30s unless given, is how often FILE is looked at for changes, 1s to
// 24h or 0 for never. It goes with weighted only. A file that is missing or
// wrong at the start is an error; later on, the last good one counts, and the
// log says so.
//
// prefer brings the addresses inside the CIDRs to the front, those of the first
// CIDR before those of the second and so on; otherwise their order is as above.
//
//	.:1053 {
//	    loadbalance {
//	        prefer 10.0.0.0/8 fd00::/8
//	    }
//	    whoami
//	}
//
// Answers with another code than NOERROR and zone transfers stay as they are.
// Answers from a cache are put in order anew each time.
//
// Same as CoreDNS: syntax, and the file of weights. Differs: CoreDNS shuffles,
// we rotate: the neighbours of a record are always the same. prefer may stand
// beside weighted. A file without any name is an error.
type Loadbalance struct {
	prefer []netip.Prefix // last first
	shares *shares        // nil: round robin
}

// SetupLoadbalance is the Setup of loadbalance.
func SetupLoadbalance(b *config.Block, uses []corefile.Directive) error {
	l := &Loadbalance{}
	d := uses[0]
	period := 30 * time.Second
	errs := []error{config.Once(uses), l.policy(b, d), d.Options(
		corefile.Option{Name: "reload", Min: 1, Max: 1, Set: func(o corefile.Directive) error {
			if l.shares == nil {
				return o.Errorf("goes with weighted only")
			}
			if o.Args[0].Text == "0" || o.Args[0].Text == "0s" {
				period = 0
				return nil
			}
			return corefile.Duration(&period, time.Second, 24*time.Hour)(o)
		}},
		corefile.Option{Name: "prefer", Min: 1, Max: -1, Set: l.prefers},
	)}
	b.Handle(l)
	if l.shares != nil {
		b.OnStart(func(s *config.Start) error {
			kept, err := startShares(s, b, l.shares.file, period)
			if err != nil {
				return d.Errorf("%w", err)
			}
			l.shares = kept
			return nil
		})
	}
	return errors.Join(errs...)
}

func (l *Loadbalance) policy(b *config.Block, d corefile.Directive) error {
	words := d.Words()
	switch {
	case len(words) == 0:
	case words[0] == "round_robin":
		return d.Arity(1, 1)
	case words[0] == "weighted" && len(words) == 2:
		l.shares = &shares{file: b.Path(words[1])}
	case words[0] == "weighted":
		l.shares = &shares{}
		return d.Errorf("weighted: want a file")
	default:
		known := []string{"round_robin", "weighted"}
		return d.Errorf("want round_robin or weighted, got %q%s", words[0], corefile.DidYouMean(words[0], known))
	}
	return nil
}

func (l *Loadbalance) prefers(o corefile.Directive) error {
	var errs []error
	for _, a := range o.Args {
		p, err := netip.ParsePrefix(a.Text)
		if err != nil {
			errs = append(errs, a.Errorf(o.Path, "%q is not a CIDR: want one like 10.0.0.0/8 or fd00::/8", a.Text))
			continue
		}
		// The one that is raised last is in front.
		l.prefer = append([]netip.Prefix{p.Masked()}, l.prefer...)
	}
	return errors.Join(errs...)
}

// ServeDNS lets every query by.
func (*Loadbalance) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

// FinishDNS puts the addresses in order.
func (l *Loadbalance) FinishDNS(q *dns.Query) {
	a := &q.Answer
	if q.RCode != wire.NoError || a.Count[wire.Answers] < 2 && a.Count[wire.Authority] < 2 && a.Count[wire.Additional] < 2 ||
		q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR {
		return
	}
	if l.shares == nil {
		a.Rotate(rand.Uint32())
	} else {
		l.shares.order(a)
	}
	if len(l.prefer) == 0 {
		return
	}
	a.RRsets(func(run wire.RRset) {
		for _, p := range l.prefer {
			if run.First.Type == wire.TypeA && p.Addr().Is4() || run.First.Type == wire.TypeAAAA && p.Addr().Is6() {
				a.MoveToFront(run, func(_ int, r wire.Record) bool {
					addr, ok := netip.AddrFromSlice(a.Buf[r.RData:r.Next])
					return ok && p.Contains(addr)
				})
			}
		}
	})
}
