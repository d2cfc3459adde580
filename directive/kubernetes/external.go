package kubernetes

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// An External is the k8s_external directive, which answers names of Services with the
// addresses by which clients outside the cluster reach them. Its reference page is
// docs/reference/directives/k8s_external.md.
type External struct {
	handler    Handler // of the zones, with the index of kubernetes
	kubernetes *Handler
	apex       string // in wire form
	headless   bool
}

// firstServer is the name server's label in front of the apex label.
const firstServer = "\x03ns1"

// AuthoritativeZones returns the zones of e.
func (e *External) AuthoritativeZones() []wire.Name { return e.handler.AuthoritativeZones() }

// Version implements [zone.Transferable].
func (e *External) Version(origin wire.Name) zone.Version { return e.handler.Version(origin) }

// Follow implements [zone.Transferable].
func (e *External) Follow(changed func(origin wire.Name)) (stop func()) {
	return e.handler.Follow(changed)
}

// RecordSource identifies the records, as [Handler.RecordSource] does.
func (e *External) RecordSource() any { return e.handler.RecordSource() }

// ZoneRecords yields the records of a zone, as [Handler.ZoneRecords] does.
func (e *External) ZoneRecords(origin wire.Name) iter.Seq[[]byte] {
	return e.handler.ZoneRecords(origin)
}

// SetupExternal is the setup function of k8s_external.
func SetupExternal(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	e := new(External)
	apex, ttl := "", 0
	zones, err := b.ZonesOr(d)
	err = errors.Join(config.Once(uses), err, d.Options(
		corefile.Option{Usage: "apex LABEL", Default: "dns", Set: func(o corefile.Directive) error {
			apex = o.Args[0].Text
			if name, err := wire.ParseName(apex); err != nil || name.Labels() != 1 {
				return o.Errorf("want one label, got %q", apex)
			}
			return nil
		}},
		corefile.Option{Usage: "ttl SECONDS", Default: "5", Set: corefile.Int(&ttl, 0, 3600)},
		corefile.Option{Usage: "headless", Set: corefile.Flag(&e.headless)},
		e.handler.fallThrough.Option(),
	))
	if err == nil {
		err = e.handler.setZones(d, zones, nil)
	}

	if err != nil {
		return err
	}

	e.apex = index.Label(apex)
	e.handler.external = e
	e.handler.ttl, e.handler.server = uint32(ttl), firstServer+e.apex
	b.Handle(e)
	b.Answers(config.Extent{Use: d, Zones: zones, Through: &e.handler.fallThrough, Option: "fallthrough"})
	b.OnPlanned(func() error { return e.plan(b, d) })
	b.OnSwap(func() { e.handler.live.serve() })
	return nil
}

// plan finds the directive kubernetes of the block, before that starts.
func (e *External) plan(b *config.Block, d corefile.Directive) error {
	all := config.Find[*Handler](b)
	if len(all) == 0 {
		return d.Errorf("needs the directive kubernetes in the same server block")
	}
	e.kubernetes = all[0]
	if e.headless && e.kubernetes.onlyServices {
		return d.Errorf("headless needs the endpoints that only services of kubernetes leaves out")
	}
	e.kubernetes.options.External = true
	e.kubernetes.options.k8sExternal = index.ExternalSettings{
		Enabled: true, Headless: e.headless, TTL: e.handler.ttl,
	}
	e.handler.options = e.kubernetes.options
	e.handler.planTransfers(b)
	b.OnStart(func(s *config.Start) error { // after kubernetes has started
		e.handler.index, e.handler.local = e.kubernetes.index, e.kubernetes.local
		return e.handler.startLiveZones(s)
	})
	return nil
}

// ServeDNS implements [dns.Handler].
func (e *External) ServeDNS(q *dns.Query) dns.Verdict {
	z := e.handler.zone(q)
	if z == nil {
		return dns.Next
	}
	l := lookup{Handler: &e.handler, q: q, zone: z, depth: q.Labels() - z.labels}
	return l.reply(e.answer(&l))
}

// Resolve waits for the answer to a CNAME's target.
func (e *External) Resolve(ctx context.Context, q *dns.Query) error { return e.handler.Resolve(ctx, q) }

// answer finds the name and writes its records.
func (e *External) answer(l *lookup) result {
	name := l.q.Name()
	switch {
	case l.q.Type.IsTransfer():
		return l.transfer()
	case !l.haveListed(cluster.Services):
		return notListed
	case l.depth == 0:
		return e.atApex(l)
	case string(name[l.q.LabelOffset(l.depth-1):l.q.LabelOffset(l.depth)]) == e.apex:
		if l.depth == 1 {
			return aboveNameServer
		}
		if l.depth == 2 && string(name[:l.q.LabelOffset(1)]) == firstServer {
			return e.server(l)
		}
	}

	switch {
	case l.zone.reverse:
		return l.externalReverse()
	case l.depth == 1:
		return l.namespace(name[:l.q.LabelOffset(1)])
	}

	whole := l.haveListed(cluster.Slices) // before the entry is read, as for kubernetes
	inside := l.index.Service(name[l.q.LabelOffset(l.depth-2):l.q.LabelOffset(l.depth)])
	found := inside.VisibleExternal()
	if !whole && e.headless && inside != nil && inside.Known() && inside.Headless && inside.External == nil {
		return notListed
	}
	if found == nil {
		return noService
	}

	return l.externalRecords(found)
}

// externalRecords answers a name at or below the name of a Service.
func (l *lookup) externalRecords(e *index.Entry) result {
	s := serviceLookup{lookup: l, entry: e, prefix: l.depth - 2}
	switch {
	case !e.ExternalName:
		return s.answer()
	case s.prefix == 0:
		return l.answerCNAME(e.Records)
	}
	return s.externalPortName()
}

// atApex answers a zone's own name.
func (e *External) atApex(l *lookup) result {
	if l.wants(wire.TypeSOA) {
		l.soa(wire.Answers)
	}
	if l.wants(wire.TypeNS) {
		if !l.haveListed(cluster.Slices) {
			return notListed
		}
		l.writeNS([]nameServer{{e.handler.server, l.externalAddresses()}})
	}
	return isZone
}

// server answers the name of the name server.
func (e *External) server(l *lookup) result {
	if !l.haveListed(cluster.Slices) {
		return notListed
	}
	l.serverAddresses(l.externalAddresses())
	return isNameServer
}

// externalReverse answers below in-addr.arpa and ip6.arpa: every Service that has the
// address.
func (l *lookup) externalReverse() result {
	prefix, ok := wire.ParseReverse(l.q.Name())
	if !ok {
		return noReverseName
	}
	found := noAddress
	for near := l.index.ExternalReverse().Within(prefix); near.Advance(); {
		e := near.Service.Entry().VisibleExternal()
		switch {
		case e == nil || !e.Has(near.Addr()):
			continue // a change is being applied
		case !prefix.IsSingleIP():
			return emptyNonTerminal
		case l.q.Type != wire.TypePTR && l.q.Type != wire.TypeANY:
			return isAddress
		case l.q.ExceedsLimit():
			return isAddress // the cut sets TC
		}
		l.writePTRTo(e.Key.Labels, "", nil)
		found = isAddress
	}
	return found
}

// externalAddresses returns the external addresses of the Services that this server is an
// endpoint of; without any, the addresses that it listens on.
func (l *lookup) externalAddresses() (all []netip.Addr) {
	for e := range l.servicesWithEndpoint(l.local) {
		if out := e.VisibleExternal(); out != nil {
			all = slices.AppendSeq(all, out.ClusterIPs())
		}
	}
	if len(all) == 0 {
		return l.local
	}
	return all
}

// externalPortName answers below the name of a Service that has a host name. The target of
// a SRV record is the host, since it must not be an alias (RFC 2782). There are no
// addresses.
func (s *serviceLookup) externalPortName() result {
	sel := index.Selection{}
	switch {
	case s.prefix > 2 || s.label(s.prefix - 1)[0] != '_' || s.prefix == 2 && s.label(0)[0] != '_':
		return noPort
	case s.prefix == 2:
		sel.Port = s.label(0)[1:]
	}

	sel.Protocol = s.label(s.prefix - 1)[1:]
	if !s.entry.Ports.Has(&sel) {
		return noPort
	}

	if s.prefix == 2 && s.wants(wire.TypeSRV) {
		const head = len(wire.OwnerIsQuestion) + 10
		var room [wire.MaxName]byte
		host := append(room[:0], s.entry.Records[head:]...)
		ports := s.entry.Ports.Selected(&sel)
		for _, port := range ports {
			if len(s.q.Answer.Buf) > s.q.SizeLimit() {
				break
			}
			s.writeSRVTo(len(ports), port, nil, host)
		}
	}
	return answered
}
