package directive

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// An ACL decides who may ask what: the acl directive.
//
//	acl [ZONES...] {
//	    ACTION [type TYPES...] [net SOURCES...]
//	}
//
// It judges the queries for names in ZONES, the server block's own unless
// given. The first line that fits a query's type and the address it came from
// decides; a query that no line fits is allowed. ACTION is
//
//	allow    go on
//	block    answer REFUSED
//	filter   answer NOERROR without any record
//	drop     do not answer
//
// TYPES are types of records, such as A or TYPE65, and SOURCES addresses or
// CIDRs; * and leaving them out is all of them. An IPv4 client is that,
// whichever socket it came by, and ::ffff:10.0.0.0/104 is 10.0.0.0/8. Tens of
// thousands of SOURCES cost a query no more than a few.
//
// acl may be given several times in a server block; the first whose ZONES hold
// the name and of which a line fits decides.
//
// Clients that take EDNS are told why (RFC 8914): block is Prohibited (18) if
// the line has SOURCES, since it is the client that may not ask, and Blocked
// (15) if it holds for everybody; filter is Filtered (17).
//
// What is judged is the name that rewrite has made of the question, since that
// is the one which will be answered; and it is judged before autopath and cache
// have a say, so that nobody gets from memory, or by way of a search path, what
// he may not ask for. Queries of all classes are judged. Only local, any and
// chaos stand above acl: what they say is the same for everybody.
//
// Metrics, by server, zone and view; zone is that of ZONES:
//
//	coredns_acl_blocked_requests_total
//	coredns_acl_filtered_requests_total
//	coredns_acl_dropped_requests_total
//	coredns_acl_allowed_requests_total   by server and view alone
//
// Only one network may ask, and nobody there may ask for everything at once:
//
//	.:1053 {
//	    acl cluster.local {
//	        block type ANY
//	        allow net 10.0.0.0/8 fd00::/8
//	        block
//	    }
//	    whoami
//	}
//
// Same as CoreDNS: syntax and actions. Differs: it stands above autopath and
// cache, as written above; block with SOURCES is Prohibited and not Blocked.
type ACL struct {
	uses    []aclUse
	metrics *metrics.Registry
	chains  dns.PerChain[aclCounts]
	zones   []wire.Name // of all uses
}

// An aclUse is one use of the directive.
type aclUse struct {
	zones []aclZone // longest first
	lines []aclLine
}

type aclZone struct {
	name   wire.Name
	labels int
	index  int // in ACL.zones
}

// An aclLine is one line, or several of one action and the same types.
type aclLine struct {
	action  aclAction
	types   []wire.Type // none is all
	sources *prefixes   // nil is all
}

type aclAction uint8

const (
	aclAllow aclAction = iota
	aclBlock
	aclFilter
	aclDrop
)

// aclCounts are one chain's counters.
type aclCounts struct {
	allowed *metrics.Counter
	stopped [aclDrop + 1][]*metrics.Counter // by action and by index in ACL.zones
}

// SetupACL is the Setup of acl.
func SetupACL(b *config.Block, uses []corefile.Directive) error {
	l := &ACL{metrics: b.Metrics}
	var errs []error
	for _, d := range uses {
		errs = append(errs, l.use(b, d))
	}
	b.Handle(l)
	return errors.Join(errs...)
}

func (l *ACL) use(b *config.Block, d corefile.Directive) error {
	zones, err := b.ZonesOr(d)
	errs := []error{err}
	var use aclUse
	for _, zone := range zones {
		i := slices.Index(l.zones, zone)
		if i < 0 {
			i = len(l.zones)
			l.zones = append(l.zones, zone)
		}
		use.zones = append(use.zones, aclZone{zone, zone.Labels(), i})
	}
	slices.SortStableFunc(use.zones, func(a, b aclZone) int { return cmp.Compare(b.labels, a.labels) })
	option := func(action aclAction) func(corefile.Directive) error {
		return func(o corefile.Directive) error {
			line, err := parseACLLine(action, o)
			use.add(line)
			return err
		}
	}
	errs = append(errs, d.Options(
		corefile.Option{Name: "allow", Max: -1, Set: option(aclAllow)},
		corefile.Option{Name: "block", Max: -1, Set: option(aclBlock)},
		corefile.Option{Name: "filter", Max: -1, Set: option(aclFilter)},
		corefile.Option{Name: "drop", Max: -1, Set: option(aclDrop)},
	))
	if len(d.Body) == 0 {
		errs = append(errs, d.Errorf("want lines of allow, block, filter or drop in braces"))
	}
	l.uses = append(l.uses, use)
	return errors.Join(errs...)
}

// parseACLLine reads "type A AAAA net 10.0.0.0/8", in any order.
func parseACLLine(action aclAction, o corefile.Directive) (aclLine, error) {
	line, word, begun := aclLine{action: action}, "", 0
	var sources []netip.Prefix
	allTypes, allSources := true, true
	var errs []error
	for _, a := range o.Args {
		switch {
		case a.Text == "type" || a.Text == "net":
			if word != "" && begun == 0 {
				errs = append(errs, a.Errorf(o.Path, "%s: want at least one, got none", word))
			}
			word, begun = a.Text, 0
			continue
		case word == "":
			errs = append(errs, a.Errorf(o.Path, "want type or net, got %q", a.Text))
			continue
		case a.Text == "*":
			if word == "type" {
				line.types = append(line.types, 0)
			} else {
				sources = append(sources, netip.Prefix{})
			}
		case word == "type":
			t, ok := wire.ParseType(a.Text)
			if !ok {
				errs = append(errs, a.Errorf(o.Path, "type: want a type like A or TYPE65, or *, got %q", a.Text))
			}
			line.types, allTypes = append(line.types, t), false
		default:
			p, err := parseSource(a.Text)
			if err != nil {
				errs = append(errs, a.Errorf(o.Path, "net: want an address, a CIDR or *, got %q", a.Text))
			}
			sources, allSources = append(sources, p), false
		}
		begun++
	}
	if word != "" && begun == 0 {
		errs = append(errs, o.Errorf("%s: want at least one, got none", word))
	}
	// A * beside others is all the same.
	if allTypes || slices.Contains(line.types, 0) {
		line.types = nil
	}
	if !allSources && !slices.Contains(sources, netip.Prefix{}) {
		line.sources = newPrefixes(sources)
	}
	slices.Sort(line.types)
	return line, errors.Join(errs...)
}

// parseSource reads an address or a CIDR. IPv4 within IPv6 is IPv4.
func parseSource(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap().WithZone("")
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// add puts a line behind the others. What differs from the last one in its
// sources alone is one line with it: the first that fits decides, and both say
// the same.
func (u *aclUse) add(line aclLine) {
	if n := len(u.lines); n > 0 && line.sources != nil {
		last := &u.lines[n-1]
		if last.action == line.action && last.sources != nil && slices.Equal(last.types, line.types) {
			last.sources.join(line.sources)
			return
		}
	}
	u.lines = append(u.lines, line)
}

// AnyClass says that queries of all classes are judged.
func (*ACL) AnyClass() bool { return false }

// ServeDNS judges q.
func (l *ACL) ServeDNS(q *dns.Query) dns.Verdict {
	counts := l.chains.At(q.Chain(), l.counts)
	line, zone := l.find(q)
	if line == nil || line.action == aclAllow {
		counts.allowed.Add(1)
		return dns.Next
	}
	counts.stopped[line.action][zone].Add(1)
	switch {
	case line.action == aclDrop:
		return dns.Drop
	case line.action == aclFilter:
		q.AddExtendedError(wire.EDEFiltered, "")
		return dns.Done
	case line.sources != nil:
		q.AddExtendedError(wire.EDEProhibited, "")
	default:
		q.AddExtendedError(wire.EDEBlocked, "")
	}
	q.Fail(wire.Refused)
	return dns.Done
}

// find gives the line that decides, nil if none does, and the index of its zone.
func (l *ACL) find(q *dns.Query) (*aclLine, int) {
	peer := q.Peer.Addr().Unmap()
	for i := range l.uses {
		u := &l.uses[i]
		for _, zone := range u.zones {
			at := q.Labels() - zone.labels
			if at < 0 || string(q.Name()[q.LabelOffset(at):]) != string(zone.name) {
				continue
			}
			for j := range u.lines {
				if u.lines[j].fits(q.Type, peer) {
					return &u.lines[j], zone.index
				}
			}
			break
		}
	}
	return nil, 0
}

func (n *aclLine) fits(t wire.Type, peer netip.Addr) bool {
	return (n.types == nil || slices.Contains(n.types, t)) && (n.sources == nil || n.sources.contains(peer))
}

// counts makes the counters of c.
func (l *ACL) counts(c *dns.Chain) *aclCounts {
	n := &aclCounts{allowed: l.metrics.Counter("coredns_acl_allowed_requests_total", "Queries that acl has let through.",
		"server", c.Server, "view", c.View)}
	for _, zone := range l.zones {
		for action, name := range map[aclAction]string{aclBlock: "blocked", aclFilter: "filtered", aclDrop: "dropped"} {
			n.stopped[action] = append(n.stopped[action], l.metrics.Counter("coredns_acl_"+name+"_requests_total", "Queries that acl has "+name+".",
				"server", c.Server, "zone", zone.String(), "view", c.View))
		}
	}
	return n
}
