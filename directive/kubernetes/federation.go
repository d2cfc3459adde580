package kubernetes

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Federation is the federation directive, which answers federated names of Services with a
// CNAME to the Service in this cluster or in another one. Its reference page is
// docs/reference/directives/federation.md.
type Federation struct {
	kubernetes *Handler
	zones      []*zoneInfo          // of kubernetes
	domains    map[string]wire.Name // by the name of the federation in lower case
	nodes      *nodeLocations
}

// SetupFederation is the setup function of federation.
func SetupFederation(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	f := &Federation{domains: map[string]wire.Name{}}
	zones, err := config.ParseZones(d.Path, d.Args)
	opts := []corefile.Option{{Usage: "upstream [ADDRESS...]", Set: f.upstream}}
	for _, o := range d.Body {
		opts = append(opts, corefile.Option{Usage: o.Text + " DOMAIN", Set: f.addDomain})
	}
	err = errors.Join(config.Once(uses), err, d.Options(opts...))
	if err == nil && len(f.domains) == 0 {
		err = d.Errorf("want at least one line with the name and the domain of a federation, such as: prod prod.example.org")
	}
	if err != nil {
		return err
	}
	b.Handle(f)
	b.OnPlanned(func() error { return f.plan(b, d, zones) })
	return nil
}

// upstream accepts addresses, which have no effect. With one name it is a federation of
// that name: a ConfigMap of kube-dns may have any name.
func (f *Federation) upstream(o corefile.Directive) error {
	if len(o.Args) != 1 {
		return nil
	}
	_, notAddr := netip.ParseAddr(o.Args[0].Text)
	_, notPort := netip.ParseAddrPort(o.Args[0].Text)
	if domain, err := wire.ParseName(o.Args[0].Text); notAddr == nil || notPort == nil || err != nil ||
		!isHostName(domain) {
		return nil
	}
	return f.addDomain(o)
}

// addDomain adds one federation.
func (f *Federation) addDomain(o corefile.Directive) error {
	if len(o.Args) != 1 { // a name such as "" or "[a]" is another usage
		return o.Errorf("not the name of a federation: want a label of letters, digits and dashes")
	}
	name := strings.ToLower(o.Text)
	domain, err := wire.ParseName(o.Args[0].Text)
	var errs []error
	if !isHostLabel([]byte(name)) {
		errs = append(errs, o.Errorf("not the name of a federation: want a label of letters, digits and dashes"))
	}
	if err != nil || !isHostName(domain) {
		errs = append(errs, o.Errorf("want a domain such as prod.example.org, got %q", o.Args[0].Text))
	}
	f.domains[name] = domain
	return errors.Join(errs...)
}

// plan finds the directive kubernetes of the block.
func (f *Federation) plan(b *config.Block, d corefile.Directive, zones []wire.Name) error {
	all := config.Find[*Handler](b)
	if len(all) == 0 {
		return d.Errorf("needs the directive kubernetes in the same server block")
	}

	f.kubernetes = all[0]
	if f.kubernetes.options.NoEndpoints {
		return d.Errorf("needs the endpoints that noendpoints and only services of kubernetes leave out")
	}

	var suited []string
	for _, z := range f.kubernetes.zones {
		if !z.reverse && !z.multicluster {
			suited = append(suited, z.name.String())
			if len(zones) == 0 || slices.Contains(zones, z.name) {
				f.zones = append(f.zones, z)
			}
		}
	}

	var errs []error
	for _, name := range zones {
		if !slices.ContainsFunc(f.zones, func(z *zoneInfo) bool { return z.name == name }) {
			errs = append(errs, d.Errorf("%s is not a zone in which kubernetes has Services: want %s", name,
				strings.Join(suited, " or ")))
		}
	}

	if len(suited) == 0 {
		errs = []error{d.Errorf("kubernetes has no zone with Services")}
	}

	b.OnStart(func(s *config.Start) error { return f.start(s, b) }) // after kubernetes has started
	return errors.Join(errs...)
}

// Zones returns the zones with federated names. The cache drops only their entries when
// the federations change.
func (f *Federation) Zones() (zones []wire.Name) {
	for _, z := range f.zones {
		zones = append(zones, z.name)
	}
	return zones
}

// NamespaceOf returns the label of the namespace in a federated name, SVC.NS.FEDERATION.svc.ZONE in wire
// form and in lower case; nil for other names.
func (f *Federation) NamespaceOf(name []byte) []byte {
	z, length := f.kubernetes.byName.LongestOf(name)
	if length == 0 || !slices.Contains(f.zones, z) {
		return nil
	}

	var labels [4][]byte
	n := 0
	for rest := name; len(rest) > length; rest = rest[1+rest[0]:] {
		if n == len(labels) {
			return nil
		}
		labels[n] = rest[1 : 1+rest[0]]
		n++
	}

	svc, ns := labels[0], labels[1]
	if n < len(labels) || string(labels[3]) != "svc" || f.domains[string(labels[2])] == "" ||
		!isHostLabel(svc) || svc[0] < 'a' || !isHostLabel(ns) {
		return nil
	}
	return ns
}

// ServeDNS implements [dns.Handler].
func (f *Federation) ServeDNS(q *dns.Query) dns.Verdict {
	if q.Type.IsTransfer() || f.NamespaceOf(q.Name()) == nil {
		return dns.Next
	}
	l := lookup{Handler: f.kubernetes, q: q, zone: f.kubernetes.zone(q), depth: 4}
	return f.answer(&l, f.domains[string(l.label(2))])
}

// Resolve waits for the answer to a CNAME's target.
func (f *Federation) Resolve(ctx context.Context, q *dns.Query) error {
	return f.kubernetes.Resolve(ctx, q)
}

var errTooLong = errors.New("federation: the name in the other cluster has more than 255 bytes")

func (f *Federation) answer(l *lookup, domain wire.Name) dns.Verdict {
	if !l.haveListed(cluster.Services) {
		return l.reply(notListed)
	}

	q, whole := l.q, l.haveListed(cluster.Slices) // before the entry is read, as for kubernetes
	name := q.Name()
	e := l.index.Service(name[:q.LabelOffset(2)])
	var room [2 * wire.MaxName]byte
	target := room[:0]
	switch {
	case hasEndpoints(e):
		target = append(append(target, name[:q.LabelOffset(2)]...), name[q.LabelOffset(3):]...)
	case !whole && e != nil && e.Known() && !e.ExternalName:
		return l.reply(notListed)
	default:
		here, err := f.nodes.location()
		target = append(append(append(target, name[:q.LabelOffset(4)]...), here...), domain...)
		if err == nil && len(target) > wire.MaxName {
			err = errTooLong
		}
		if err != nil {
			q.Fail(wire.ServFail)
			q.Err = err
			return dns.Done
		}
	}

	a := &q.Answer
	a.Buf = wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeCNAME, l.ttl, len(target))
	a.Buf = append(a.Buf, target...)
	a.Count[wire.Answers]++
	return l.reply(l.followCNAME(target))
}

// hasEndpoints reports whether the Service is visible and has endpoints.
func hasEndpoints(e *index.Entry) bool {
	if !e.Visible() || e.ExternalName || e.Headless {
		return e.Visible() // a headless Service without endpoints has no name
	}
	return slices.ContainsFunc(e.Slices(), func(p index.Part) bool { return p.Endpoints() != "" })
}

// isHostLabel reports whether a label in lower case is one of RFC 1123 §2.1: letters,
// digits and dashes, no dash at an end.
func isHostLabel(label []byte) bool {
	for _, c := range label {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	n := len(label)
	return n > 0 && n <= wire.MaxLabel && label[0] != '-' && label[n-1] != '-'
}

// isHostName reports whether a name has only such labels, and at least one.
func isHostName(name wire.Name) bool {
	for at := 0; name[at] != 0; at += 1 + int(name[at]) {
		if !isHostLabel([]byte(name[at+1 : at+1+int(name[at])])) {
			return false
		}
	}
	return len(name) > 1
}
