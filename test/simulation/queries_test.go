package simulation

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
)

// A query is a query of a client.
type query struct {
	id       uint16
	edns     bool
	name     string
	qtype    uint16
	packet   []byte
	number   int
	client   netip.AddrPort
	sent     time.Time
	settings []*settings // of the plans that may answer
	waiting  int         // queries that waited when it was sent
	answered bool
	over     *streamClient // nil for UDP
	late     bool          // another process may answer it, that has started later
	stops    int32         // of the server that had ended when it was sent
}

// current returns the settings of the plan that serves.
func (w *world) current() *settings {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.serving
}

func (w *world) candidates() (all []*settings) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.serving != nil { // a client of streams may send a query during a restart
		all = append(all, w.serving)
	}
	if w.next != nil && w.next.broken == "" {
		all = append(all, w.next)
	}
	return all
}

// ask sends a query over any of the protocols. The reply is checked when it arrives.
func (w *world) ask(name string, qtype uint16) {
	w.mu.Lock()
	n := w.asked
	w.mu.Unlock()
	if w.streams != nil && n%4 == 0 {
		w.askOver(w.streams.clients[n/4%len(w.streams.clients)], name, qtype)
		return
	}
	w.askOver(nil, name, qtype)
}

// askOver sends a query as one UDP packet, or with a client of another protocol.
func (w *world) askOver(c *streamClient, name string, qtype uint16) {
	m := new(mdns.Msg).SetQuestion(name, qtype)
	_, outside := external(name)
	edns := !outside || m.Id%3 > 0 // an answer of the cluster may not fit into 512 bytes
	if edns {
		m.SetEdns0(1232, false)
	}
	packet, err := m.Pack()
	if err != nil {
		w.fail("query %s: %v", name, err)
		return
	}
	if c != nil {
		c.turn <- struct{}{}
	}
	q := &query{id: m.Id, edns: edns, name: name, qtype: qtype, packet: packet, over: c}
	w.begin(q)
	w.mu.Lock()
	w.waiting++
	w.asked++
	q.number = w.asked
	q.client = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 250, byte(q.number % 5), 1}), uint16(q.number))
	w.queries[q.client] = q
	w.mu.Unlock()
	if c != nil {
		go func() {
			defer func() { <-c.turn }()
			reply, err := c.ask(packet)
			switch {
			case err != nil && w.shortage.refuses(q.sent, time.Now()):
				w.refused(q)
			case err != nil:
				w.fail("%s %d over %s, sent at %.6f: %v", name, qtype, c.name, q.sent.Sub(w.started).Seconds(), err)
			default:
				w.replied(q.client, reply)
			}
		}()
		return
	}
	w.send(q)
}

// begin sets what the oracle must know of the world when a query is sent.
func (w *world) begin(q *query) {
	settings := w.candidates()
	w.mu.Lock()
	defer w.mu.Unlock()
	q.sent, q.settings, q.waiting = time.Now(), settings, w.waiting
	q.stops, q.late = w.restarts.Load(), q.over != nil || w.handOvers.running()
	if w.down.Load() {
		q.stops--
	}
}

// send sends a query as one packet.
func (w *world) send(q *query) {
	if !w.server.deliver(53, q.number, q.packet, []dns.Proto{dns.UDP, dns.TCP}[q.number%2], q.client) {
		w.fail("%s %d: no process reads the port", q.name, q.qtype)
	}
}

// resend sends a query again, as its client does if the process has died that has read it. The reply is
// checked as that to any query which is sent at this moment.
func (w *world) resend(client netip.AddrPort) {
	w.mu.Lock()
	q := w.queries[client]
	w.mu.Unlock()
	w.trace("the process that has read %s %s has died", q.name, mdns.TypeToString[q.qtype])
	w.begin(q)
	go w.send(q)
}

// refused ends a query without a reply.
func (w *world) refused(q *query) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q.answered = true
	w.waiting--
}

// replied checks the reply to a client.
func (w *world) replied(client netip.AddrPort, packet []byte) {
	w.mu.Lock()
	q := w.queries[client]
	answered := q.answered
	if !answered {
		w.waiting--
	}
	q.answered = true
	if time.Now().Equal(q.sent) { // a plan may have been swapped in meanwhile
		q.settings = append(q.settings, w.serving)
	}
	if q.late { // the server has received it later, and perhaps again after a restart
		for _, s := range w.served {
			if s.overlaps(q.sent, time.Now()) {
				q.settings = append(q.settings, s.settings)
			}
		}
	}
	if w.next != nil && w.next.broken == "" {
		q.settings = append(q.settings, w.next)
	}
	w.mu.Unlock()
	if answered {
		w.fail("query %s %d was answered twice", q.name, q.qtype)
	}
	err := w.check(q, packet)
	if err != nil {
		w.fail("%s %s, sent at %.6f:\n%v", q.name, mdns.TypeToString[q.qtype], q.sent.Sub(w.started).Seconds(), err)
	}
}

// unreplied returns the number of queries without a reply.
func (w *world) unreplied() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting
}

// unanswered returns the queries without a reply.
func (w *world) unanswered() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queries {
		if !q.answered {
			names = append(names, fmt.Sprintf("%s %s, sent at %.6f", q.name, mdns.TypeToString[q.qtype], q.sent.Sub(w.started).Seconds()))
		}
	}
	return names
}

// randomQuestion returns a name that exists, existed or may exist, and a type.
func (w *world) randomQuestion() (name string, qtype uint16) {
	namespace, service := namespaceNames[w.IntN(3)], serviceNames[w.IntN(4)]
	own := service + "." + namespace + ".svc." + clusterZone
	qtype = []uint16{mdns.TypeA, mdns.TypeA, mdns.TypeSRV, mdns.TypeAAAA}[w.IntN(4)]
	switch w.IntN(15) {
	case 0, 1:
		return "_http._tcp." + own, qtype
	case 2:
		return "host-0." + own, qtype
	case 3:
		return strings.ReplaceAll(endpointIP(namespace, service, 1), ".", "-") + "." + own, qtype
	case 4:
		return reverse(clusterIP(namespace, service, w.IntN(2))), mdns.TypePTR
	case 5:
		return reverse(endpointIP(namespace, service, w.IntN(4))), mdns.TypePTR
	case 6:
		return podName(namespace, w.IntN(3)), qtype
	case 7, 8, 9:
		return externalName(w.IntN(externalNames)), mdns.TypeA
	case 10, 11:
		return w.files[w.IntN(len(w.files))].randomQuestion(w.Rand)
	}
	return own, qtype
}

func podName(namespace string, i int) string {
	return strings.ReplaceAll(podIP(namespace, i), ".", "-") + "." + namespace + ".pod." + clusterZone
}

func reverse(address string) string {
	name, _ := mdns.ReverseAddr(address)
	return name
}
