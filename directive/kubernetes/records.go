package kubernetes

import (
	"net/netip"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A lookup answers one query in one of the handler's zones. Numbers in the comments
// below are sections of the Kubernetes DNS specification 1.1.0; sections with an M are
// rules of the Multi-Cluster Services specification.
type lookup struct {
	*Handler
	q     *dns.Query
	zone  *zoneInfo
	depth int  // labels in front of the zone
	whole bool // of a transfer: the endpoints of all topology zones
}

// label returns label i of the query's name, counted from the left, without its
// length.
func (l *lookup) label(i int) []byte {
	return l.q.Name()[l.q.LabelOffset(i)+1 : l.q.LabelOffset(i+1)]
}

// answer finds the name and writes its records.
func (l *lookup) answer() result {
	switch {
	case l.q.Type.IsTransfer():
		return l.transfer()
	case !l.haveListed(cluster.Services):
		return notListed
	case l.depth == 0:
		return l.apex()
	}

	last := string(l.label(l.depth - 1))
	switch {
	case l.depth == 1 && last == "dns": // an empty non-terminal: ns.dns is below it
		return isServer
	case l.depth == 2 && last == "dns" && string(l.label(0)) == "ns":
		return l.nameserver()
	case l.zone.reverse:
		return l.reverseName()
	case last == "svc":
		return l.services()
	case last == "pod" && !l.zone.multicluster:
		return l.podNames()
	case last == "dns-version" && l.depth == 1:
		return l.version()
	}
	return noName
}

// transfer answers AXFR and IXFR, which the directive transfer passes on if it has no such zone, or no data yet.
func (l *lookup) transfer() result {
	if l.zone.live == nil || l.depth > 0 || l.index.Ready() {
		return refused
	}
	return notListed
}

// haveListed reports whether the namespaces and the objects of a kind have been
// listed. In a multi-cluster zone it is the kind's counterpart there.
func (l *lookup) haveListed(kind cluster.Kind) bool {
	if l.zone.multicluster && kind == cluster.Services {
		kind = cluster.Imports
	} else if l.zone.multicluster && kind == cluster.Slices {
		kind = cluster.ImportSlices
	}
	return l.index.HaveListed(cluster.Namespaces, kind)
}

// needsEndpoints reports whether the answer depends on the Service's endpoints. Names
// of a Service with ClusterIPs usually do not.
func (l *lookup) needsEndpoints(e *index.Entry) bool {
	if e == nil || !e.Known() || e.ExternalName {
		return false
	}
	left := l.depth - 3
	if e.Headless || l.index.Settings().IgnoreEmpty {
		return true
	}
	if l.kubeDNS && left == 1 {
		if _, own := hashedIPs(e, l.label(0)); own {
			return false
		}
	}
	return left > 0 && l.label(left - 1)[0] != '_'
}

// isElsewhere reports whether only a server with EndpointSlices knows the answer.
func (l *lookup) isElsewhere(e *index.Entry) bool {
	return l.needsEndpoints(e) && e.Key.Namespace.Exposed() && (e.Headless || l.depth == 4)
}

// services answers SVC.NS.svc and the names below it.
func (l *lookup) services() result {
	switch l.depth {
	case 1:
		return isServices
	case 2:
		return l.namespace(l.q.Name()[l.q.LabelOffset(0):l.q.LabelOffset(1)])
	}
	key := l.q.Name()[l.q.LabelOffset(l.depth-3):l.q.LabelOffset(l.depth-1)]
	whole := l.haveListed(cluster.Slices) // before the entry is read, which is then no older than the list
	e := l.index.Entry(l.zone.multicluster, key)
	if !whole && l.needsEndpoints(e) {
		return notListed
	}
	if l.onlyServices && l.isElsewhere(e) {
		return endpointsElsewhere
	}
	if !e.Visible() {
		return noService
	}
	return l.serviceRecords(e)
}

// serviceRecords answers a name at or below the name of a Service.
func (l *lookup) serviceRecords(e *index.Entry) result {
	s := serviceLookup{lookup: l, entry: e, prefix: l.depth - 3}
	if e.ExternalName {
		if s.prefix > 0 {
			return belowAlias
		}
		return l.answerCNAME(e.Records)
	}
	if a := e.Alias(); a != nil {
		return s.aliasName(a)
	}
	return s.answer()
}

// namespace answers the name of a namespace, an empty non-terminal.
func (l *lookup) namespace(label []byte) result {
	if l.index.Namespace(label).Exposed() {
		return isNamespace
	}
	return noNamespace
}

// wants reports whether the query's type is t. A query for ANY is answered with one
// RRset (RFC 8482 §4.1), the first that is written.
func (l *lookup) wants(t wire.Type) bool {
	return l.q.Type == t || l.q.Type == wire.TypeANY && l.q.Answer.Empty()
}

// answerCNAME answers for an ExternalName (2.5): the CNAME for every type, and the
// answer of its target.
func (l *lookup) answerCNAME(record string) result {
	l.q.Answer.AppendString(wire.Answers, record, 1)
	const head = len(wire.OwnerIsQuestion) + 10
	return l.followCNAME([]byte(record[head:]))
}

// followCNAME appends the answer of target, which the CNAME written last points to,
// unless the query's type is CNAME or ANY.
func (l *lookup) followCNAME(target []byte) result {
	q := l.q
	if q.Type == wire.TypeCNAME || q.Type == wire.TypeANY {
		return answered
	}
	sub, ok := q.SubQuery(target, q.Type)
	if !ok {
		return parked
	}
	l.appendTarget(q, sub)
	return answered
}

// appendTarget appends the answer of a CNAME's target. If no handler serves the
// target, the CNAME alone is the answer; in the handler's own zones it is a failure.
func (h *Handler) appendTarget(q, sub *dns.Query) {
	q.AA = true
	if !q.FollowCNAME(sub) && h.zone(sub) != nil {
		q.RCode, q.Err = sub.RCode, sub.Err
	}
}

// finish sets AA, and adds the zone's SOA record to an empty answer (RFC 2308).
func (l *lookup) finish(found result) {
	q := l.q
	q.AA = true
	if found < emptyNonTerminal {
		q.RCode = wire.NXDomain
	}
	if q.Answer.Empty() {
		l.soa(wire.Authority)
	}
}

// apex answers the zone's own name.
func (l *lookup) apex() result {
	if l.wants(wire.TypeSOA) {
		l.soa(wire.Answers)
	}
	if l.q.Type == wire.TypeNS && !l.haveListedServers() {
		return notListed
	}
	if l.wants(wire.TypeNS) {
		l.nameservers()
	}
	return isZone
}

// soa writes the zone's SOA record. The serial is a hash of the objects: replicas
// with equal objects have equal serials. It may decrease. The serial of a zone that other
// servers copy is a liveZone's.
func (l *lookup) soa(s wire.Section) {
	apex := wire.QuestionPointer(l.q.LabelOffset(l.depth))
	const rname = "\x0ahostmaster"
	mname := l.server
	size := len(mname) + 2 + len(rname) + 2 + 20
	a := &l.q.Answer
	a.Buf = wire.AppendRecordHeader(a.Buf, apex[:], wire.TypeSOA, min(l.ttl, 300), size)
	a.Buf = append(append(a.Buf, mname...), apex[:]...)
	a.Buf = append(append(a.Buf, rname...), apex[:]...)
	serial := l.index.Serial(l.zone.multicluster)
	if l.zone.live != nil {
		serial = l.zone.live.serial.Load()
	}
	for _, v := range [5]uint32{serial, 7200, 1800, 86400, l.ttl} {
		a.Buf = append(a.Buf, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	}
	a.Count[s]++
}

// version writes the TXT record with the version of the specification (2.2, M3). Its
// TTL is CoreDNS's.
func (l *lookup) version() result {
	if l.wants(wire.TypeTXT) {
		text := "1.1.0"
		if l.zone.multicluster {
			text = "1.0.0"
		}
		a := &l.q.Answer
		a.Buf = wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypeTXT, 28800, len(text)+1)
		a.Buf = wire.AppendLabel(a.Buf, text)
		a.Count[wire.Answers]++
	}
	return isVersion
}

// podNames answers IP-WITH-DASHES.NS.pod, as CoreDNS does.
func (l *lookup) podNames() result {
	if l.depth == 1 {
		return isPods
	}
	if l.podMode == podsDisabled {
		return noPods
	}
	ns := l.q.Name()[l.q.LabelOffset(l.depth-2):l.q.LabelOffset(l.depth-1)]
	if space := l.namespace(ns); l.depth == 2 || space == noNamespace {
		return space
	}
	if l.depth > 3 {
		return belowPod
	}

	ip, ok := index.ParsePodLabel(l.label(0))
	if !ok {
		return noPodAddress
	}
	found := isInsecurePod
	if l.podMode == podsVerified {
		whole := l.haveListed(cluster.Pods)
		var room [wire.MaxLabel + 1 + 16]byte
		switch exists := l.index.HasPod(index.PodKey(room[:0], ns, ip)); {
		case !exists && l.nodePods:
			return podElsewhere
		case !whole:
			return notListed
		case !exists:
			return noPod
		}
		found = isPod
	}
	l.address(ip)
	return found
}

// address writes an address record of the query's name if its type matches.
func (l *lookup) address(ip netip.Addr) {
	if l.wants(index.FamilyOf(ip)) {
		a := &l.q.Answer
		a.Buf = wire.AppendAddress(a.Buf, wire.OwnerIsQuestion, l.ttl, ip)
		a.Count[wire.Answers]++
	}
}

// reverseName answers below in-addr.arpa and ip6.arpa (2.3.3, 2.4.3): the Service that
// has the ClusterIP, or else every endpoint that has the address.
func (l *lookup) reverseName() result {
	prefix, ok := wire.ParseReverse(l.q.Name())
	switch {
	case !ok:
		return noReverseName
	case l.primary == "":
		return noPrimary
	}
	whole := l.haveListed(cluster.Slices) &&
		(!l.verifyPTR || l.haveListed(cluster.Pods)) // before the index is read, as in services
	found, final := l.namesOf(l.index.Reverse(), prefix)
	if found == noAddress && !final {
		found, final = l.namesOf(l.index.Claims(), prefix)
	}
	if !final && l.onlyServices {
		return addressElsewhere // an endpoint may have the address
	}
	if !final && !whole {
		return notListed // an endpoint that is not listed yet may have the address
	}
	return found
}

// maxPassed bounds how many references to an address a query passes that add nothing to its answer, on the way to the
// Service whose ClusterIP it is. A tenant can make any number.
const maxPassed = 1000

// namesOf answers with the names in one of the reverse indexes. final reports whether no
// other object can change the answer.
func (l *lookup) namesOf(x *index.ReverseIndex, prefix netip.Prefix) (found result, final bool) {
	ip := prefix.Addr()
	found = noAddress
	full, unverified, passed := false, "", 0
	for near := x.Within(prefix); near.Advance(); {
		e := near.Service.Entry()
		namespace := near.Service.NamespaceLabel()
		switch {
		case !e.Visible():
			continue
		case !prefix.IsSingleIP():
			return emptyNonTerminal, true
		case !e.Has(ip) && (full || namespace == unverified):
			switch passed++; {
			case passed <= maxPassed:
			case full:
				return found, true
			default:
				near.SkipNamespace(x)
			}
			continue
		case l.verifyPTR && !e.Has(ip) && !l.hasPod(namespace, ip):
			unverified = namespace
			continue
		case l.q.Type != wire.TypePTR && l.q.Type != wire.TypeANY:
			return isAddress, true
		case e.Has(ip):
			l.q.Answer.Clear() // a ClusterIP takes precedence over endpoints
			l.writePTR(e, nil)
			return isAddress, true
		}

		parts := e.PartsAt(ip)
		for i := range parts {
			if full = l.q.ExceedsLimit(); full {
				break // the cut sets TC, unless a Service after this has the address
			}
			var ep cluster.Endpoint
			for rest := parts[i].Endpoints(); rest != ""; {
				if rest = rest.Next(&ep); ep.Addr == ip && e.IsServed(&ep) {
					l.writePTR(e, &ep)
					found = isAddress
				}
			}
		}
	}

	return found, full
}

// hasPod reports whether a pod of a namespace has an address. ns is the namespace's label
// in wire form.
func (l *lookup) hasPod(ns string, ip netip.Addr) bool {
	var room [wire.MaxLabel + 1 + 16]byte
	return l.index.HasPod(index.PodKey(room[:0], ns, ip))
}

// writePTR writes the PTR record of a Service, or of one of its endpoints.
func (l *lookup) writePTR(e *index.Entry, ep *cluster.Endpoint) {
	l.writePTRTo(e.Key.Labels, "\x03svc", ep)
}

// writePTRTo writes a PTR record to labels in front of the primary zone, or to an
// endpoint below these.
func (l *lookup) writePTRTo(key, kind string, ep *cluster.Endpoint) {
	a := &l.q.Answer
	start := len(a.Buf)
	a.Buf = wire.AppendRecordHeader(a.Buf, wire.OwnerIsQuestion, wire.TypePTR, l.ttl, 0)
	at := len(a.Buf)
	if ep != nil {
		a.Buf = l.appendLabel(a.Buf, *ep)
	}
	a.Buf = append(append(append(a.Buf, key...), kind...), l.primary...)
	if len(a.Buf)-at > wire.MaxName { // such a name cannot exist
		a.Buf = a.Buf[:start]
		return
	}
	a.Buf[at-1] = byte(len(a.Buf) - at)
	a.Count[wire.Answers]++
}
