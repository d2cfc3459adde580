package kubernetes

import (
	"maps"
	"slices"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// maxAnswer is the size limit of the answers of a generator.
const maxAnswer = 4 << 20

// A generator makes the records of a zone, by queries for all names that have records, so
// that a transferred zone has the records of the answers. One goroutine uses it.
type generator struct {
	*Handler
	zone *zoneInfo
	view index.View

	query  *dns.Query
	packet []byte
	memory []byte      // of the query's answer
	out    wire.Answer // for a record with names written out
	name   []byte
}

func newGenerator(h *Handler, z *zoneInfo) generator {
	g := generator{Handler: h, zone: z, query: dns.NewQuery(nil)}
	switch {
	case h.external != nil:
		g.view = index.ExternalView
	case z.multicluster && !z.reverse:
		g.view = index.ImportView
	}
	return g
}

// answer answers a query as the handler of the zone does.
func (g *generator) answer(l *lookup) result {
	if g.external != nil {
		return g.external.answer(l)
	}
	return l.answer()
}

// resolve answers a query for a name by calling answer.
func (g *generator) resolve(name []byte, t wire.Type, answer func(*lookup) result) {
	g.packet = wire.AppendRequest(g.packet[:0], 0, 0, name, t)
	g.query.Reset(g.packet, dns.TCP, time.Time{})
	g.query.ReplyLimit = maxAnswer
	g.query.Parse(g.packet)
	g.query.Answer.Reset(g.memory, g.query.Question())
	if g.Handler.zone(g.query) == g.zone { // a longer zone has its names
		answer(&lookup{Handler: g.Handler, q: g.query, zone: g.zone, depth: g.query.Labels() - g.zone.labels, whole: true})
	}
	g.memory = g.query.Answer.Buf[:0]
}

// each yields the answer's records of the query's type, with names written out. It returns
// false if yield did, as do the methods below that yield.
func (g *generator) each(yield func(record []byte) bool) bool {
	for rest := g.query.Answer.RecordsOffset(); rest < len(g.query.Answer.Buf); {
		r, ok := wire.ReadRecord(g.query.Answer.Buf, rest)
		if !ok {
			return true
		}
		if r.Type == g.query.Type && !yield(g.writeOut(rest)) {
			return false
		}
		rest = r.Next
	}
	return true
}

// all calls use with each record that each yields.
func (g *generator) all(use func(record []byte)) {
	g.each(func(r []byte) bool {
		use(r)
		return true
	})
}

// writeOut returns the answer's record at off with names written out.
func (g *generator) writeOut(off int) []byte {
	g.out.Reset(g.out.Buf, nil)
	if _, err := g.out.AppendRecord(wire.Answers, g.query.Answer.Buf, off); err != nil {
		return nil
	}
	return g.out.Records()
}

// soa returns the SOA record.
func (g *generator) soa() (soa []byte) {
	g.resolve([]byte(g.zone.name), wire.TypeSOA, g.answer)
	g.all(func(r []byte) { soa = append(soa, r...) })
	return soa
}

// apexRecords returns the NS records, the addresses of the name server and the version of
// the specification. The caller holds the lock of the index.
func (g *generator) apexRecords() map[string]struct{} {
	all := map[string]struct{}{}
	for _, q := range []struct {
		labels string
		t      wire.Type
	}{{"", wire.TypeNS}, {g.server, wire.TypeA}, {g.server, wire.TypeAAAA}, {"\x0bdns-version", wire.TypeTXT}} {
		g.resolve([]byte(q.labels+string(g.zone.name)), q.t, g.answer)
		g.all(func(r []byte) { all[string(r)] = struct{}{} })
	}
	return all
}

// typesOf returns the types that a name of a Service's entry may have, which is labels in front
// of the Service's.
func typesOf(e *index.Entry, labels string) []wire.Type {
	switch isAlias := e.ExternalName || e.Alias() != nil; {
	case isAlias && len(labels) > 1 && labels[1] == '_': // of a port
		return []wire.Type{wire.TypeSRV}
	case isAlias:
		return []wire.Type{wire.TypeCNAME}
	}
	return []wire.Type{wire.TypeA, wire.TypeAAAA, wire.TypeSRV}
}

// entryRecords yields the records of a visible entry. It makes the names of one endpoint label
// at a time: with kubeDNS there may be as many as
// endpoints times ports.
func (g *generator) entryRecords(e *index.Entry, yield func([]byte) bool) bool {
	own := nameSet{}
	g.serviceNames(e, own)
	if !g.recordsOf(e, own, yield) {
		return false
	}

	labels := map[string]map[*index.PortSet]struct{}{}
	for ports, ep := range e.Served() {
		for _, label := range g.endpointLabels(ep) {
			if labels[string(label)] == nil {
				labels[string(label)] = map[*index.PortSet]struct{}{}
			}
			labels[string(label)][ports] = struct{}{}
		}
	}

	for label, sets := range labels {
		names := nameSet{}
		for ports := range sets {
			g.endpointNames(e, ports, []byte(label), names)
		}

		maps.DeleteFunc(names, func(name string, _ struct{}) bool {
			_, done := own[name]
			return done
		})

		if !g.recordsOf(e, names, yield) {
			return false
		}
	}
	return true
}

// recordsOf yields the records of names of an entry.
func (g *generator) recordsOf(e *index.Entry, names nameSet, yield func([]byte) bool) bool {
	repeated := map[string]struct{}{} // merged parts may make a record twice
	for labels := range names {
		for _, t := range typesOf(e, labels) {
			g.resolveEntry(e, labels, t)
			more := g.each(func(r []byte) bool {
				if e.Merged() != nil {
					if _, ok := repeated[string(r)]; ok {
						return true
					}
					repeated[string(r)] = struct{}{}
				}
				return yield(r)
			})
			if !more {
				return false
			}
		}
		clear(repeated)
	}
	return true
}

// resolveEntry answers a query for labels in front of the Service's name from an entry, which
// may differ from the entry in the index.
func (g *generator) resolveEntry(e *index.Entry, labels string, t wire.Type) {
	records := func(l *lookup) result { return l.serviceRecords(e) }
	kind := "\x03svc"
	if g.external != nil {
		records, kind = func(l *lookup) result { return l.externalRecords(e) }, ""
	}

	g.name = append(append(append(g.name[:0], labels...), e.Key.Labels...), kind...)
	isServer := string(g.name) == g.server // of k8s_external: that of a Service has other records
	if g.name = append(g.name, g.zone.name...); isServer || len(g.name) > wire.MaxName {
		g.name = append(g.name[:0], g.zone.name...)
		records = func(*lookup) result { return noName }
	}
	g.resolve(g.name, t, records)
}

// A nameSet holds the labels of names in front of a Service's name, in wire form.
type nameSet map[string]struct{}

func (s nameSet) add(labels []byte) { s[string(labels)] = struct{}{} }

// serviceNames adds the names at and below a Service's that may have records, except those
// of endpoints.
func (g *generator) serviceNames(e *index.Entry, to nameSet) {
	to.add(nil)
	if e.ExternalName { // that of k8s_external has ports
		g.portNames(e.Ports, nil, to)
		return
	}

	zonal := g.zonal && e.Headless && !g.zone.multicluster
	if a := e.Alias(); a != nil {
		for label := range a.Labels {
			to.add(wire.AppendLabel(nil, label))
		}
		g.portNames(a.Ports, nil, to)
		for zone := range a.Zones {
			if zonal && zone != "" {
				to.addZone(zone)
			}
		}
		return
	}

	g.portNames(e.Ports, nil, to)
	sets := map[*index.PortSet]struct{}{}
	for ports, ep := range e.Served() {
		if zonal && ep.Zone != "" {
			to.addZone(string(index.AppendLabels(nil, ep.Zone)))
		}
		if _, known := sets[ports]; !known && e.Headless {
			sets[ports] = struct{}{}
			g.portNames(ports, nil, to)
		}
	}

	if g.kubeDNS {
		for ip := range e.ClusterIPs() {
			label := g.appendLabel(nil, cluster.Endpoint{Addr: ip})
			to.add(label)
			g.portNames(e.Ports, label, to)
		}
	}
}

// addZone adds the names of a topology zone.
func (s nameSet) addZone(labels string) {
	s.add([]byte(labels + "\x03pin\x05_zone"))
	s.add([]byte(labels + "\x06prefer\x05_zone"))
}

// portNames adds the names of ports, with labels in front.
func (g *generator) portNames(ports *index.PortSet, labels []byte, to nameSet) {
	if ports == nil {
		return
	}
	for _, p := range ports.Named {
		name := wire.AppendLabel(append([]byte(nil), labels...), "_"+p.Name)
		to.add(wire.AppendLabel(name, "_"+p.Protocol))
	}
}

// endpointLabels returns the labels of an endpoint.
func (g *generator) endpointLabels(ep *cluster.Endpoint) [][]byte {
	labels := [][]byte{index.AppendEndpointLabel(nil, *ep)}
	if g.kubeDNS {
		withoutName := cluster.Endpoint{Addr: ep.Addr}
		labels = append(labels, g.appendLabel(nil, withoutName), index.AppendEndpointLabel(nil, withoutName))
	}
	return labels
}

// endpointNames adds the names of an endpoint with a label and ports.
func (g *generator) endpointNames(e *index.Entry, ports *index.PortSet, label []byte, to nameSet) {
	if g.kubeDNS && e.Headless {
		g.portNames(ports, label, to)
	}
	to.add(index.AppendLabels(slices.Clip(label), ports.Cluster))
}

// namesCost returns about the bytes of the names that endpointNames adds.
func (g *generator) namesCost(e *index.Entry, ports *index.PortSet) int {
	const name = 64
	if g.kubeDNS && e.Headless {
		return name * (1 + len(ports.Named))
	}
	return name
}
