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
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A Federation leads from the federated names of Services to those of this
// cluster or of another one: the federation directive.
//
//	federation [ZONES…] {
//	    NAME DOMAIN        # one or more
//	    upstream [ADDRESS…]
//	}
//
// It can stand once in a server block, beside kubernetes, whose cluster and ttl
// it answers with. ZONES are among those of kubernetes that hold Services;
// without any they are all of these. NAME is a label, DOMAIN a name that the
// federation's clusters have theirs below; of two lines with one NAME the last
// one counts. upstream is accepted and has no effect, as in CoreDNS: targets are
// looked up by this server. With a DOMAIN it is a federation of that name.
//
// A question of any type for
//
//	SVC.NS.NAME.svc.ZONE
//
// is answered with a CNAME and what its target has. If the Service SVC.NS is here
// and something is behind it, the target is
//
//	SVC.NS.svc.ZONE
//
// and otherwise
//
//	SVC.NS.NAME.svc.TOPOLOGY-ZONE.REGION.DOMAIN
//
// Behind a headless Service is something if it has a ready endpoint; behind one
// with a ClusterIP if it has any endpoint, ready or not; an ExternalName always
// counts. TOPOLOGY-ZONE and REGION are those of this cluster: of its first Node,
// by name, with the labels topology.kubernetes.io/zone and
// topology.kubernetes.io/region, or in their place
// failure-domain.beta.kubernetes.io/zone and …/region. The service account needs
// list and watch on nodes; of manifests the Nodes among them count. As long as
// no Node tells both, a name that leads to another cluster is SERVFAIL; ready
// does not wait for that.
//
// SVC has to be a label of RFC 1035 and NS one of RFC 1123; every other name is
// asked of kubernetes. A federated name has as many labels as that of an
// endpoint, EP.SVC.NS.svc.ZONE: endpoints in a namespace that is called NAME have
// no names, unless EP is no label of RFC 1035, as one that begins with a digit.
//
//	.:1053 {
//	    kubernetes cluster.local {
//	        manifests examples
//	    }
//	    federation cluster.local {
//	        prod prod.example.org
//	        staging staging.example.org
//	    }
//	}
//
// Same as CoreDNS up to 1.6: syntax. Differs from it: answers are those of
// kube-dns, so that a Service with nothing behind it leads elsewhere, and one
// that is here is the target of a CNAME; without ZONES the zones are those of
// kubernetes and not of the block.
//
// Same as kube-dns: names and targets. Differs: labels of Nodes are followed
// (kube-dns reads them once) and may be topology.kubernetes.io's; every type of
// question has the CNAME, whether its target can be looked up or not; what is
// missing is SERVFAIL for every type, with the reason in the log (directive
// errors).
type Federation struct {
	kubernetes *Handler
	zones      []*zoneInfo          // of kube's
	domains    map[string]wire.Name // by the federation's label, lower case
	nodes      *nodeLocations
}

// SetupFederation is the Setup of federation.
func SetupFederation(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	f := &Federation{domains: map[string]wire.Name{}}
	zones, err := config.ParseZones(d.Path, d.Args)
	opts := []corefile.Option{{Name: "upstream", Max: -1, Set: f.upstream}}
	for _, o := range d.Body {
		opts = append(opts, corefile.Option{Name: o.Text, Min: 1, Max: 1, Set: f.addDomain})
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

// upstream is an option with addresses, or with one name the federation that is
// called so: a ConfigMap of kube-dns may have any.
func (f *Federation) upstream(o corefile.Directive) error {
	if len(o.Args) != 1 {
		return nil
	}
	_, notAddr := netip.ParseAddr(o.Args[0].Text)
	_, notPort := netip.ParseAddrPort(o.Args[0].Text)
	if domain, err := wire.ParseName(o.Args[0].Text); notAddr == nil || notPort == nil || err != nil || !isHostName(domain) {
		return nil
	}
	return f.addDomain(o)
}

// join takes in one federation.
func (f *Federation) addDomain(o corefile.Directive) error {
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

// plan finds the directive whose cluster it is.
func (f *Federation) plan(b *config.Block, d corefile.Directive, zones []wire.Name) error {
	all := config.Find[*Handler](b)
	if len(all) == 0 {
		return d.Errorf("needs the directive kubernetes in the same server block")
	}
	f.kubernetes = all[0]
	if f.kubernetes.options.NoEndpoints {
		return d.Errorf("needs the endpoints that noendpoints of kubernetes leaves out")
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
			errs = append(errs, d.Errorf("%s is not a zone in which kubernetes has Services: want %s", name, strings.Join(suited, " or ")))
		}
	}
	if len(suited) == 0 {
		errs = []error{d.Errorf("kubernetes has no zone with Services")}
	}
	b.OnStart(func(s *config.Start) error { return f.start(s, b) }) // behind that of kubernetes
	return errors.Join(errs...)
}

// Zones are those with federated names: what cache holds of others stays when the
// federations change.
func (f *Federation) Zones() (zones []wire.Name) {
	for _, z := range f.zones {
		zones = append(zones, z.name)
	}
	return zones
}

// ServeDNS answers federated names.
func (f *Federation) ServeDNS(q *dns.Query) dns.Verdict {
	z := f.kubernetes.zone(q)
	if z == nil || q.Labels() != z.labels+4 || !slices.Contains(f.zones, z) {
		return dns.Next
	}
	l := lookup{Handler: f.kubernetes, q: q, zone: z, depth: 4}
	domain, ok := f.domains[string(l.label(2))]
	if !ok || string(l.label(3)) != "svc" || q.Type == wire.TypeAXFR || q.Type == wire.TypeIXFR {
		return dns.Next
	}
	if svc := l.label(0); !isHostLabel(svc) || svc[0] < 'a' || !isHostLabel(l.label(1)) {
		return dns.Next
	}
	return f.answer(&l, domain)
}

// Resolve takes up the chase of a target that had to wait.
func (f *Federation) Resolve(ctx context.Context, q *dns.Query) error {
	return f.kubernetes.Resolve(ctx, q)
}

var errTooLong = errors.New("federation: the name in the other cluster would have more than 255 bytes")

func (f *Federation) answer(l *lookup, domain wire.Name) dns.Verdict {
	if !l.haveListed(cluster.Services) {
		return l.reply(notListed)
	}
	q, whole := l.q, l.haveListed(cluster.Slices) // before the look, as for kubernetes
	name := q.Name()
	e := l.index.services.Get(name[:q.LabelOffset(2)])
	var room [2 * wire.MaxName]byte
	target := room[:0]
	switch {
	case e.hasEndpoints():
		target = append(append(target, name[:q.LabelOffset(2)]...), name[q.LabelOffset(3):]...)
	case !whole && e != nil && e.known() && !e.externalName:
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

// backed says whether a client may see e and something is behind it.
func (e *entry) hasEndpoints() bool {
	if !e.visible() || e.externalName || e.headless {
		return e.visible() // a headless Service without endpoints has no name
	}
	return slices.ContainsFunc(e.slices(), func(p part) bool { return p.endpoints() != "" })
}

// isHostLabel says whether a label in lower case is one of RFC 1123 §2.1, as
// Kubernetes has it: letters, digits and dashes, none of these at an end.
func isHostLabel(label []byte) bool {
	for _, c := range label {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	n := len(label)
	return n > 0 && n <= wire.MaxLabel && label[0] != '-' && label[n-1] != '-'
}

// isHostName says whether a name has only such labels, and at least one.
func isHostName(name wire.Name) bool {
	for at := 0; name[at] != 0; at += 1 + int(name[at]) {
		if !isHostLabel([]byte(name[at+1 : at+1+int(name[at])])) {
			return false
		}
	}
	return len(name) > 1
}
