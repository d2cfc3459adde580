package simulation

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// An answer is the response code and the records of a reply, or the code and a reason to
// skip the records. Weights of SRV records are left out.
type answer struct {
	rcode   string
	records []string // sorted
}

func (a answer) String() string { return a.rcode + " " + strings.Join(a.records, ", ") }

func newAnswer(rcode int, records ...string) answer {
	slices.Sort(records)
	return answer{dns.RcodeToString[rcode], slices.Compact(records)}
}

func read(reply *dns.Msg) answer {
	var records []string
	for _, rr := range reply.Answer {
		h := rr.Header()
		data := strings.TrimPrefix(rr.String(), h.String())
		if srv, ok := rr.(*dns.SRV); ok {
			data = fmt.Sprintf("%d %s", srv.Port, srv.Target)
		}
		records = append(records, record(h.Name, h.Ttl, dns.TypeToString[h.Rrtype], data))
	}
	return newAnswer(reply.Rcode, records...)
}

func record(name string, ttl uint32, qtype, data string) string {
	return strings.ToLower(fmt.Sprintf("%s %d %s %s", name, ttl, qtype, data))
}

// A state is a set of objects that the server may know and that decides an answer.
type state struct {
	listed    [resources]bool
	namespace bool
	service   *object
	slices    []*object
	pods      []*object
}

// states returns all states that are possible with the versions of a Service's objects, or
// of a namespace's pods if service is "", that the server may know. It returns false if
// there are too many to compute.
func (c *cluster) states(namespace, service string, listed [resources]bool, known [resources]knowledge, selects selector) (possible []state, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	versions := func(r resource, k key) []*object {
		return between(selects.selected(c.history[r][k]), known[r].first, known[r].last)
	}
	ns, ss := versions(namespaces, key{"", namespace}), versions(services, key{namespace, service})
	r, names := endpointSlices, []string{service + "-a", service + "-b"}
	if service == "" {
		r, names = pods, podNames
	}
	as, bs := versions(r, key{namespace, names[0]}), versions(r, key{namespace, names[1]})
	if len(as)*len(bs)*len(ns)*len(ss) > 2000 {
		return nil, false
	}
	for _, n := range ns {
		for _, s := range ss {
			for _, a := range as {
				for _, b := range bs {
					present := slices.DeleteFunc([]*object{a, b}, func(o *object) bool { return o == nil })
					if service == "" {
						possible = append(possible, state{listed: listed, namespace: n != nil, pods: present})
					} else {
						possible = append(possible, state{listed: listed, namespace: n != nil, service: s, slices: present})
					}
				}
			}
		}
	}
	return possible, true
}

const (
	clusterZone = "cluster.local."
	reverseZone = "10.in-addr.arpa."
)

// label returns the label of an endpoint.
func (e endpoint) label() string {
	if e.hostname != "" {
		return e.hostname
	}
	return strings.ReplaceAll(e.address, ".", "-")
}

// clusterAnswer returns the answer to a query for a name of the cluster, as the DNS
// specification defines it. before are the labels in front of the Service's name.
func (s state) clusterAnswer(q *query, before []string, ttl uint32) answer {
	name := strings.ToLower(q.name)
	switch {
	case !s.listed[namespaces] || !s.listed[services]:
		return newAnswer(dns.RcodeServerFailure)
	case !s.namespace || s.service == nil:
		return newAnswer(dns.RcodeNameError)
	case s.service.externalName != "" && len(before) == 0:
		return newAnswer(dns.RcodeSuccess, record(name, ttl, "CNAME", s.service.externalName))
	case s.service.externalName != "":
		return newAnswer(dns.RcodeNameError)
	case !s.listed[endpointSlices] && (s.service.clusterIP == "" || len(before) > 0 && !strings.HasPrefix(before[0], "_")):
		return newAnswer(dns.RcodeServerFailure)
	}
	own := strings.TrimPrefix(name, strings.Join(append(slices.Clone(before), ""), "."))
	exists := false
	var records []string
	add := func(target, address string, ports []port) {
		wanted := ""
		if len(before) > 0 && before[0][0] == '_' {
			wanted = before[0][1:]
		}
		for _, p := range ports {
			if wanted != "" && p.name != wanted {
				continue
			}
			exists = true
			if q.qtype == dns.TypeSRV {
				records = append(records, record(name, ttl, "SRV", fmt.Sprint(p.port, " ", target)))
			}
			if wanted != "" && q.qtype == dns.TypeA {
				records = append(records, record(name, ttl, "A", address))
			}
		}
		if wanted == "" {
			exists = true
			if q.qtype == dns.TypeA {
				records = append(records, record(name, ttl, "A", address))
			}
		}
	}
	switch {
	case s.service.clusterIP != "" && (len(before) == 0 || before[0][0] == '_'):
		add(own, s.service.clusterIP, s.service.ports)
	default:
		// An endpoint has the ports of all slices that it is in.
		ports := map[string][]port{}
		for _, e := range s.endpoints() {
			ports[e.label()] = append(ports[e.label()], e.ports...)
		}
		for _, e := range s.endpoints() {
			if len(before) == 0 || before[0][0] == '_' || before[0] == e.label() {
				add(e.label()+"."+own, e.address, ports[e.label()])
			}
		}
	}
	if !exists {
		return newAnswer(dns.RcodeNameError)
	}
	return newAnswer(dns.RcodeSuccess, records...)
}

// A readyEndpoint is an endpoint and the ports of its slice.
type readyEndpoint struct {
	endpoint
	ports []port
}

func (s state) endpoints() (ready []readyEndpoint) {
	for _, slice := range s.slices {
		for _, e := range slice.endpoints {
			if e.ready {
				ready = append(ready, readyEndpoint{e, slice.ports})
			}
		}
	}
	return ready
}

// reverseAnswer returns the answer to a query for the PTR records of an address, which
// can only be of this Service.
func (s state) reverseAnswer(q *query, namespace, service, address string, ttl uint32) answer {
	name := strings.ToLower(q.name)
	own := service + "." + namespace + ".svc." + clusterZone
	switch {
	case !s.listed[namespaces] || !s.listed[services]:
		return newAnswer(dns.RcodeServerFailure)
	case s.namespace && s.service != nil && s.service.clusterIP == address:
		return newAnswer(dns.RcodeSuccess, record(name, ttl, "PTR", own))
	case !s.listed[endpointSlices]:
		return newAnswer(dns.RcodeServerFailure)
	}
	var records []string
	for _, e := range s.endpoints() {
		if e.address == address && s.namespace && s.service != nil && s.service.externalName == "" {
			records = append(records, record(name, ttl, "PTR", e.label()+"."+own))
		}
	}
	if records == nil {
		return newAnswer(dns.RcodeNameError)
	}
	return newAnswer(dns.RcodeSuccess, records...)
}

// podAnswer returns the answer to a query for the name of a pod's address.
func (s state) podAnswer(q *query, address string, o sourceOptions) answer {
	switch {
	case o.pods == "disabled":
		return newAnswer(dns.RcodeNameError)
	case !s.listed[namespaces]:
		return newAnswer(dns.RcodeServerFailure)
	case !s.namespace:
		return newAnswer(dns.RcodeNameError)
	case o.pods == "verified" && !s.listed[pods]:
		return newAnswer(dns.RcodeServerFailure)
	case o.pods == "verified" && !slices.ContainsFunc(s.pods, func(p *object) bool { return p.address == address }):
		return newAnswer(dns.RcodeNameError)
	case q.qtype != dns.TypeA:
		return newAnswer(dns.RcodeSuccess)
	}
	return newAnswer(dns.RcodeSuccess, record(q.name, o.ttl, "A", address))
}

// check returns an error if the reply to q is not permitted.
func (w *world) check(q *query, packet []byte) error {
	reply := new(dns.Msg)
	if err := reply.Unpack(packet); err != nil {
		return fmt.Errorf("malformed reply: %w", err)
	}
	switch {
	case reply.Id != q.id:
		return fmt.Errorf("ID %d, want %d", reply.Id, q.id)
	case !reply.Response || len(reply.Question) != 1 || reply.Question[0] != (dns.Question{Name: q.name, Qtype: q.qtype, Qclass: dns.ClassINET}):
		return fmt.Errorf("header and question %+v %v", reply.MsgHdr, reply.Question)
	case reply.Truncated && !w.truncationPermitted(q):
		return fmt.Errorf("truncated reply")
	case reply.Truncated:
		return nil
	case !inOrder(q, reply.Answer):
		return fmt.Errorf("records that a resolver does not follow: %v", reply.Answer)
	case (reply.IsEdns0() != nil) != q.edns || q.edns && slices.ContainsFunc(reply.IsEdns0().Option, isSubnet):
		return fmt.Errorf("EDNS in the query: %v, in the reply: %v", q.edns, reply.IsEdns0())
	}
	got := read(reply)
	var want []string
	for _, s := range q.settings {
		permitted, ok := w.permitted(s, q, got)
		if ok {
			return nil
		}
		want = append(want, permitted...)
	}
	slices.Sort(want)
	return fmt.Errorf("got  %s\nwant %s", got, strings.Join(slices.Compact(want), "\n or  "))
}

// truncationPermitted reports whether the reply may be the truncated one of an upstream,
// which it is if the query over TCP fails, as it does without descriptors.
func (w *world) truncationPermitted(q *query) bool {
	_, isExternal := external(strings.ToLower(q.name))
	return isExternal && slices.ContainsFunc(q.settings, func(s *settings) bool {
		had := func(is func(behaviour) bool) bool {
			return slices.ContainsFunc(w.upstreams[s.upstreams], func(u *upstream) bool { return u.had(q.sent.Add(-memory), time.Now(), is) })
		}
		isCut := had(func(b behaviour) bool { return b == truncates })
		return isCut && (had(behaviour.fails) || w.short(q.sent.Add(-memory), time.Now()))
	})
}

// permitted reports whether an answer is permitted for a server with these settings, and
// returns the permitted answers.
func (w *world) permitted(s *settings, q *query, got answer) (permitted []string, ok bool) {
	name := strings.ToLower(q.name)
	if f := w.followed(name); f != nil {
		return f.permitted(q, got)
	}
	if i, isExternal := external(name); isExternal {
		return w.externalPermitted(s, q, i, got, 0)
	}
	namespace, service, before, address := w.parse(name)
	now, _ := w.api.cluster.now()
	var known [resources]knowledge
	for r := range resources {
		known[r] = s.source.knows(r, namespace, q.sent, now)
		if !known[r].listed && got.rcode == "SERVFAIL" && len(got.records) == 0 {
			return nil, true
		}
	}
	for mask := range 1 << resources {
		var listed [resources]bool
		possible := true
		for r := range resources {
			listed[r] = mask&(1<<r) != 0
			possible = possible && (listed[r] && known[r].maybe || !listed[r] && !known[r].listed)
		}
		if !possible {
			continue
		}
		states, ok := w.api.cluster.states(namespace, service, listed, known, s.source.selects)
		if !ok {
			w.mu.Lock()
			w.skipped++
			w.mu.Unlock()
			return nil, true
		}
		for _, state := range states {
			var a answer
			switch {
			case service == "":
				a = state.podAnswer(q, address, s.source.sourceOptions)
			case address != "":
				a = state.reverseAnswer(q, namespace, service, address, s.source.ttl)
			default:
				a = state.clusterAnswer(q, before, s.source.ttl)
			}
			text := a.String()
			if text == got.String() {
				return nil, true
			}
			if text != "" && len(a.records) == 1 && strings.Contains(text, " cname ") && state.service.externalName != "" {
				if w.aliasPermitted(s, q, state.service.externalName, a.records[0], got, &permitted) {
					return nil, true
				}
				continue
			}
			if !slices.Contains(permitted, text) {
				permitted = append(permitted, text)
			}
		}
	}
	return permitted, false
}

// aliasPermitted reports whether an answer is a CNAME and a permitted answer for its
// target.
func (w *world) aliasPermitted(s *settings, q *query, target, alias string, got answer, permitted *[]string) bool {
	i, _ := external(target)
	rest := answer{got.rcode, slices.DeleteFunc(slices.Clone(got.records), func(r string) bool { return r == alias })}
	lowest := uint32(0)
	if s.cached {
		lowest = 5 // the cache raises the TTLs of this server's own answers
	}
	want, ok := w.externalPermitted(s, q, i, rest, lowest)
	if ok && (len(rest.records) < len(got.records) || got.rcode == "SERVFAIL") {
		return true
	}
	for _, text := range want {
		if text = alias + " then " + text; !slices.Contains(*permitted, text) {
			*permitted = append(*permitted, text)
		}
	}
	return false
}

// parse returns the Service that a name of the cluster belongs to, and the labels before its
// name or the address of a reverse name. For the name of a pod it returns the address and
// no Service.
func (w *world) parse(name string) (namespace, service string, before []string, address string) {
	if _, ok := strings.CutSuffix(name, "."+reverseZone); ok {
		octets := strings.Split(strings.TrimSuffix(name, ".in-addr.arpa."), ".")
		slices.Reverse(octets)
		address = strings.Join(octets, ".")
		ip := netip.MustParseAddr(address).As4()
		if ip[1] == 96 {
			return namespaceNames[ip[2]], serviceNames[(ip[3]-1)/16], nil, address
		}
		return namespaceNames[ip[2]/16], serviceNames[ip[2]%16], nil, address
	}
	if pod, ok := strings.CutSuffix(name, ".pod."+clusterZone); ok {
		address, namespace, _ = strings.Cut(pod, ".")
		return namespace, "", nil, strings.ReplaceAll(address, "-", ".")
	}
	labels := strings.Split(strings.TrimSuffix(name, ".svc."+clusterZone), ".")
	n := len(labels)
	return labels[n-1], labels[n-2], labels[:n-2], ""
}

const (
	// memory is how long the failure of an upstream may cause SERVFAIL: the time of one
	// query, and the time for which the cache keeps SERVFAIL.
	memory = 11 * time.Second
	// flight is how long a query to an upstream may take.
	flight = 6 * time.Second
)

// externalPermitted reports whether an answer for an external name is permitted. TTLs are
// raised to the lowest.
func (w *world) externalPermitted(s *settings, q *query, name int, got answer, lowest uint32) (permitted []string, ok bool) {
	now := time.Now()
	servers := w.upstreams[s.upstreams]
	// A fifth of the places is free for a client and a handler in any case: they have half
	// and two fifths. No query occupies more than eight places.
	excused := 8*(q.waiting+1) > 8*maxParked/5
	failing := true
	for _, u := range servers {
		failing = failing && u.had(q.sent.Add(-memory), now, behaviour.fails)
	}
	excused = excused || failing || w.short(q.sent.Add(-memory), now)
	// A server that stops lets no query wait any more.
	excused = excused || q.late && w.restarts.Load() > q.stops
	refused := false
	for _, u := range servers {
		excused = excused || u.had(q.sent.Add(-memory), now, func(b behaviour) bool { return b == servfail })
		refused = refused || u.had(q.sent.Add(-memory), now, func(b behaviour) bool { return b == bare })
	}
	if excused {
		permitted = append(permitted, "SERVFAIL ")
		if (got.rcode == "SERVFAIL" || got.rcode == "REFUSED" && refused) && len(got.records) == 0 {
			return nil, true
		}
	}
	zone := servers[0].zone
	ttl := externalTTL(name)
	longest := time.Duration(ttl)*time.Second + flight
	if s.stale {
		longest += staleFor
	}
	for _, e := range zone.during(name, q.sent.Add(-longest), now) {
		if e.rcode != dns.RcodeSuccess || q.qtype != dns.TypeA {
			text := newAnswer(e.rcode).String()
			if got.String() == text {
				return nil, true
			}
			permitted = append(permitted, text)
			continue
		}
		address := zone.address(name, e.number).String()
		for left := range ttl + 1 {
			a := newAnswer(dns.RcodeSuccess, externalRecords(name, max(left, lowest), address)...)
			if a.String() != got.String() {
				continue
			}
			// The remaining TTL shows when the upstream sent the answer.
			age := time.Duration(ttl-left) * time.Second
			if s.stale && left == 0 {
				return nil, true
			}
			if slices.Contains(zone.during(name, q.sent.Add(-age-flight-time.Second), now.Add(-age+time.Second)), e) {
				return nil, true
			}
		}
		permitted = append(permitted, strings.Join(externalRecords(name, ttl, address), ", ")+" or less")
	}
	return permitted, false
}

// externalRecords returns the records of an external name, which has an address.
func externalRecords(name int, ttl uint32, address string) []string {
	if target := externalTarget(name); target != "" {
		return []string{record(externalName(name), ttl, "CNAME", target), record(target, ttl, "A", address)}
	}
	return []string{record(externalName(name), ttl, "A", address)}
}

func isSubnet(o dns.EDNS0) bool { return o.Option() == dns.EDNS0SUBNET }

// inOrder reports whether each record belongs to the name that the records before it lead
// to: resolvers ignore others.
func inOrder(q *query, records []dns.RR) bool {
	name := q.name
	for _, rr := range records {
		if !strings.EqualFold(rr.Header().Name, name) {
			return false
		}
		if alias, ok := rr.(*dns.CNAME); ok {
			name = alias.Target
		}
	}
	return true
}
