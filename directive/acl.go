package directive

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// ACL decides which clients may query which names: the acl directive. Its reference page is
// docs/reference/directives/acl.md.
type ACL struct {
	lists   []aclList
	metrics *metrics.Registry
	counts  *aclCounters // of the chain that BindChain was called for
	zones   []wire.Name  // of all lists
	probers []probing    // below the ACL
}

// A probing handler sends queries that may come back to the server: the directive loop.
type probing interface{ IsProbe(q *dns.Query) bool }

// An aclList holds the lines of one acl directive.
type aclList struct {
	zones wire.ZoneMap[int] // indexes in ACL.zones
	lines []aclLine
}

// An aclLine is one line, or several lines that differ only in their sources.
type aclLine struct {
	action  aclAction
	types   []wire.Type // empty matches every type
	sources *prefixes   // nil matches every client
}

type aclAction uint8

const (
	aclAllow aclAction = iota
	aclBlock
	aclFilter
	aclDrop
)

var aclActions = [...]string{aclAllow: "allow", aclBlock: "block", aclFilter: "filter", aclDrop: "drop"}

// aclCounters are the counters of one chain.
type aclCounters struct {
	allowed *metrics.Counter
	stopped [aclDrop + 1][]*metrics.Counter // by action and by index in ACL.zones
}

// SetupACL sets up the acl directive.
func SetupACL(b *config.Block, uses []corefile.Directive) error {
	l := &ACL{metrics: b.Metrics}
	var errs []error
	for _, d := range uses {
		errs = append(errs, l.addList(b, d))
	}
	b.Handle(l)
	b.OnPlanned(func() error {
		l.probers = config.Find[probing](b)
		return nil
	})
	return errors.Join(errs...)
}

func (a *ACL) addList(b *config.Block, d corefile.Directive) error {
	zones, err := b.ZonesOr(d)
	errs := []error{err}
	var list aclList
	for _, zone := range zones {
		i := slices.Index(a.zones, zone)
		if i < 0 {
			i = len(a.zones)
			a.zones = append(a.zones, zone)
		}
		list.zones.Set(zone, i)
	}

	var options []corefile.Option
	for action, name := range aclActions {
		options = append(options, corefile.Option{
			Usage: name + " [type TYPES...] [net SOURCES...]",
			Set: func(o corefile.Directive) error {
				line, err := parseACLLine(aclAction(action), o)
				list.add(line)
				return err
			},
		})
	}
	errs = append(errs, config.LowerOptions(d).Options(options...))
	if len(d.Body) == 0 {
		errs = append(errs, d.Errorf("want lines of allow, block, filter or drop in braces"))
	}
	a.lists = append(a.lists, list)
	b.Answers(config.Extent{Use: d, Zones: zones, Open: !list.stopsAll()})
	return errors.Join(errs...)
}

// parseACLLine reads the arguments of a line, such as "type A AAAA net
// 10.0.0.0/8", in any order.
func parseACLLine(action aclAction, o corefile.Directive) (aclLine, error) {
	line, word, count := aclLine{action: action}, "", 0
	var sources []netip.Prefix
	everyType, everySource := false, false
	var errs []error
	for _, a := range o.Args {
		switch {
		case strings.EqualFold(a.Text, "type") || strings.EqualFold(a.Text, "net"):
			if word != "" && count == 0 {
				errs = append(errs, a.Errorf(o.Path, "%s: want at least one, got none", word))
			}
			word, count = strings.ToLower(a.Text), 0
			continue
		case word == "":
			errs = append(errs, a.Errorf(o.Path, "want type or net, got %q", a.Text))
			continue

		case a.Text == "*":
			everyType, everySource = everyType || word == "type", everySource || word == "net"
		case word == "type":
			t, ok := wire.ParseType(a.Text)
			if !ok {
				errs = append(errs, a.Errorf(o.Path, "type: want a type like A or TYPE65, or *, got %q", a.Text))
			}
			line.types = append(line.types, t)
		default:
			p, err := config.ParseSource(a.Text)
			if err != nil {
				errs = append(errs, a.Errorf(o.Path, "net: want an address, a CIDR or *, got %q", a.Text))
			}
			sources = append(sources, p)
		}
		count++
	}
	if word != "" && count == 0 {
		errs = append(errs, o.Errorf("%s: want at least one, got none", word))
	}

	// A * among others matches everything.
	if everyType {
		line.types = nil
	}
	if len(sources) > 0 && !everySource {
		line.sources = newPrefixes(sources)
	}
	slices.Sort(line.types)
	return line, errors.Join(errs...)
}

// add appends a line. A line that differs from the previous one only in its
// sources is merged into it: the result is the same, and lookups stay fast.
func (u *aclList) add(line aclLine) {
	if n := len(u.lines); n > 0 && line.sources != nil {
		last := &u.lines[n-1]
		if last.action == line.action && last.sources != nil && slices.Equal(last.types, line.types) {
			last.sources.merge(line.sources)
			return
		}
	}
	u.lines = append(u.lines, line)
}

// stopsAll reports whether no query passes the list.
func (u *aclList) stopsAll() bool {
	for _, line := range u.lines {
		switch {
		case line.action == aclAllow:
			return false
		case line.types == nil && line.sources == nil:
			return true
		}
	}
	return false
}

// Opcodes implements [dns.OpcodeHandler]: acl decides about the messages that other handlers answer.
func (*ACL) Opcodes() []int { return nil }

// AnyClass lets acl see queries of every class.
func (*ACL) AnyClass() dns.ClassUse { return dns.ClassPassed }

// ServeDNS applies the first line that matches q.
func (a *ACL) ServeDNS(q *dns.Query) dns.Verdict {
	counts := a.counts
	line, zone := a.find(q)
	if line == nil || line.action == aclAllow || slices.ContainsFunc(a.probers, func(p probing) bool { return p.IsProbe(q) }) {
		counts.allowed.Add(1)
		return dns.Next
	}

	counts.stopped[line.action][zone].Add(1)
	switch {
	case line.action == aclDrop:
		return dns.Drop
	case line.action == aclFilter && q.Opcode() == 0: // else an empty reply would mean success
		q.AddExtendedError(wire.EDEFiltered, "")
		return dns.Done
	}

	q.Fail(wire.Refused)
	code := wire.EDEBlocked
	if line.sources != nil {
		code = wire.EDEProhibited
	}
	q.AddExtendedError(code, "")
	return dns.Done
}

// ExplainDNS implements [dns.Explainer].
func (a *ACL) ExplainDNS(q *dns.Query, _ dns.Verdict) []dns.Cause {
	line, zone := a.find(q)
	if line == nil {
		return []dns.Cause{{Text: "no line matches, so the query is allowed"}}
	}
	text := "a line " + aclActions[line.action] + " for " + a.zones[zone].String()
	for i, t := range line.types {
		if i == 0 {
			text += ", with type"
		}
		text += " " + t.String()
	}
	if line.sources != nil {
		text += ", with net that contains " + q.Peer.Addr().String()
	}
	return []dns.Cause{{Text: text + " matches"}}
}

// find returns the first line that matches q, or nil, and the index of its zone
// in l.zones.
func (a *ACL) find(q *dns.Query) (*aclLine, int) {
	peer := q.Peer.Addr().Unmap()
	for i := range a.lists {
		u := &a.lists[i]
		zone, at := u.zones.Longest(&q.Request, 0)
		if at < 0 {
			continue
		}
		for j := range u.lines {
			if u.lines[j].matches(q.Type, peer) {
				return &u.lines[j], zone
			}
		}
	}
	return nil, 0
}

func (n *aclLine) matches(t wire.Type, peer netip.Addr) bool {
	return (n.types == nil || slices.Contains(n.types, t)) && (n.sources == nil || n.sources.contains(peer))
}

// BindChain returns a copy of l that counts for c.
func (a *ACL) BindChain(c *dns.Chain) any {
	n := &aclCounters{allowed: a.metrics.Counter("coredns_acl_allowed_requests_total", "Queries that acl allowed.",
		"server", c.Server, "view", c.View)}
	for _, zone := range a.zones {
		for action, name := range map[aclAction]string{aclBlock: "blocked", aclFilter: "filtered", aclDrop: "dropped"} {
			counter := a.metrics.Counter("coredns_acl_"+name+"_requests_total", "Queries that acl "+name+".",
				"server", c.Server, "zone", zone.String(), "view", c.View)
			n.stopped[action] = append(n.stopped[action], counter)
		}
	}
	bound := *a
	bound.counts = n
	return &bound
}
