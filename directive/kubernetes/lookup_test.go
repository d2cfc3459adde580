package kubernetes

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
)

// A reply is an expected reply. Records are in presentation form and lower case;
// each section is sorted.
type reply struct {
	code                      string
	aa                        bool
	answer, authority, extras []string
}

func (r reply) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s aa=%v\n", r.code, r.aa)
	for i, section := range [][]string{r.answer, r.authority, r.extras} {
		for _, line := range slices.Sorted(slices.Values(section)) {
			fmt.Fprintf(&b, "%s%s\n", []string{"", "authority: ", "additional: "}[i], line)
		}
	}
	return b.String()
}

// toReply converts a message to a reply. Duplicate records are kept.
func toReply(m *mdns.Msg) reply {
	lines := func(rrs []mdns.RR) (lines []string) {
		for _, rr := range rrs {
			lines = append(lines, strings.ToLower(strings.Join(strings.Fields(rr.String()), " ")))
		}
		return lines
	}
	return reply{mdns.RcodeToString[m.Rcode], m.Authoritative, lines(m.Answer), lines(m.Ns), lines(m.Extra)}
}

func record(name string, ttl uint32, qtype, rdata string) string {
	return strings.ToLower(fmt.Sprintf("%s %d IN %s %s", name, ttl, qtype, rdata))
}

// A cnameQuery is a query for a name of a chain of CNAMEs.
type cnameQuery struct{ name, qtype string }

// replies returns the correct replies. The server may send any of them. name is
// in lower case.
func (m *model) replies(name, qtype string, before ...cnameQuery) []reply {
	zone := m.zone(name)
	switch {
	case zone == "" && mdns.IsSubDomain(otherZone, name):
		return []reply{fromOtherZones(name, qtype)}
	case zone == "": // no server block has the zone
		return []reply{{code: "REFUSED"}}
	case qtype == "AXFR" || qtype == "IXFR":
		return []reply{{code: "REFUSED"}}
	}
	soa := record(zone, min(m.ttl, 300), "SOA", m.names[zone]["SOA"][0])
	wild := m.wildcards && slices.Contains(strings.Split(strings.TrimSuffix(name, zone), "."), "*") && !reversed(zone) && !slices.Contains(m.multicluster, zone)
	if wild {
		m.addWildcard(name, zone)
	}
	at, exists := m.names[name]
	if !exists && !wild {
		at, exists = m.podName(name, zone)
	}
	if !exists {
		at, exists = m.preferredRecords(name)
	}
	if !exists && m.isPinned(name) {
		at, exists = rrsets{}, true
	}
	through := m.through && (len(m.throughZones) == 0 || slices.ContainsFunc(m.throughZones, func(z string) bool { return mdns.IsSubDomain(z, name) }))
	switch {
	case through && (!exists || reversed(zone) && m.emptyNonTerminals[name]):
		return []reply{fromOtherZones(name, qtype)}
	case !exists:
		return []reply{{code: "NXDOMAIN", aa: true, authority: []string{soa}}}
	case at["CNAME"] != nil:
		return m.followCNAME(name, qtype, at["CNAME"][0], before)
	}
	nodata := reply{code: "NOERROR", aa: true, authority: []string{soa}}
	var replies []reply
	for t := range at {
		if t == qtype || qtype == "ANY" { // RFC 8482 §4.1: one RRset
			replies = append(replies, m.rrset(name, t, at)...)
		}
	}
	if len(replies) == 0 {
		return []reply{nodata}
	}
	return replies
}

// rrset returns the reply with the records of one type.
func (m *model) rrset(name, rtype string, at rrsets) []reply {
	ttl := m.ttl
	switch {
	case rtype == "TXT":
		ttl = 28800 // §3.2
	case rtype == "SOA":
		ttl = min(ttl, 300)
	}
	if owners := m.oneOf[name]; rtype == "PTR" && owners != nil {
		var replies []reply
		for _, owner := range owners {
			replies = append(replies, reply{code: "NOERROR", aa: true, answer: []string{record(name, ttl, rtype, owner)}})
		}
		return replies
	}
	r := reply{code: "NOERROR", aa: true}
	var targets []string
	for _, rdata := range at[rtype] {
		switch rtype {
		case "SRV":
			// §3.5, with each record counted once.
			if weight := max(1, 100/len(at[rtype])); m.kubedns {
				rdata = fmt.Sprintf("10 %d %s", 100/m.weightCount[name], rdata)
			} else {
				rdata = fmt.Sprintf("0 %d %s", weight, rdata)
			}
			fallthrough
		case "NS":
			targets = append(targets, rdata[strings.LastIndexByte(rdata, ' ')+1:])
		}
		r.answer = append(r.answer, record(name, ttl, rtype, rdata))
	}
	if glue, ok := m.glue[name]; ok && rtype == "SRV" {
		r.extras = glue
		targets = nil
	}
	for _, target := range slices.Compact(slices.Sorted(slices.Values(targets))) {
		for _, t := range []string{"A", "AAAA"} {
			for _, ip := range m.names[target][t] {
				r.extras = append(r.extras, record(target, m.ttl, t, ip))
			}
		}
	}
	return []reply{r}
}

// followCNAME follows a CNAME (2.5): the CNAME is the answer for every type, the
// records of its target are added, and the response code is that of the last name
// (RFC 6604). Each CNAME of a loop is in the answer once.
func (m *model) followCNAME(name, qtype, target string, before []cnameQuery) []reply {
	head := record(name, m.ttl, "CNAME", target)
	if qtype == "CNAME" || qtype == "ANY" {
		return []reply{{code: "NOERROR", aa: true, answer: []string{head}}}
	}
	before = append(slices.Clone(before), cnameQuery{name, qtype})
	if len(before) > 8 || slices.Contains(before, cnameQuery{target, qtype}) {
		return []reply{{code: "SERVFAIL", aa: true, answer: []string{head}}}
	}
	var replies []reply
	for _, sub := range m.replies(target, qtype, before...) {
		if sub.code == "REFUSED" { // no server block has the target: the client queries it elsewhere
			sub.code = "NOERROR"
		}
		replies = append(replies, reply{sub.code, true, append([]string{head}, sub.answer...), sub.authority, sub.extras})
	}
	return replies
}

// podName returns the records of IP-WITH-DASHES.NS.pod (§3.4).
func (m *model) podName(name, zone string) (rrsets, bool) {
	if reversed(zone) || slices.Contains(m.multicluster, zone) || m.pods == podsDisabled {
		return nil, false
	}
	labels := strings.Split(strings.TrimSuffix(name, zone), ".") // the last one is empty
	if len(labels) != 4 || labels[2] != "pod" || !m.exposed(labels[1]) {
		return nil, false
	}
	text := labels[0]
	if strings.ContainsAny(text, ":%") {
		return nil, false
	}
	if strings.Count(text, "-") == 3 && !strings.Contains(text, "--") {
		text = strings.ReplaceAll(text, "-", ".")
	} else {
		text = strings.ReplaceAll(text, "-", ":")
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return nil, false
	}
	ip = ip.Unmap()
	if m.pods == podsVerified && !slices.ContainsFunc(m.have.List(cluster.Pods), func(o cluster.Object) bool {
		p := o.(*cluster.Pod)
		return p.Namespace == labels[1] && slices.Contains(p.IPs, ip)
	}) {
		return nil, false
	}
	return rrsets{family(ip): {ip.String()}}, true
}

// preferredRecords returns the records of ZONE.prefer._zone if no endpoint is in that
// topology zone: the records of all endpoints.
func (m *model) preferredRecords(name string) (rrsets, bool) {
	const prefer = "prefer._zone."
	i := strings.LastIndex(name, "."+prefer)
	if i < 0 || m.names[name[i+1:]] == nil {
		return nil, false
	}
	service := name[i+1+len(prefer):]
	m.glue[name], m.weightCount[name] = m.glue[service], m.weightCount[service]
	if m.glue[name] == nil {
		delete(m.glue, name)
	}
	return m.names[service], true
}

// isPinned reports whether a name is ZONE.pin._zone, whatever the topology zone is.
func (m *model) isPinned(name string) bool {
	i := strings.LastIndex(name, ".pin._zone.")
	return i >= 0 && m.names[name[i+1:]] != nil
}

// fromOtherZones returns the reply of the handler below kubernetes.
func fromOtherZones(name, qtype string) reply {
	switch {
	case name != "www."+otherZone:
		return reply{code: "NXDOMAIN"}
	case qtype == "A":
		return reply{code: "NOERROR", answer: []string{record(name, 60, "A", "192.0.2.80")}}
	}
	return reply{code: "NOERROR"}
}
