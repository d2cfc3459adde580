//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// A lookup is a query packet and the expected answer.
type lookup struct {
	packet []byte // the generator sets the ID
	rcode  int
	want   []string // the answer section, "TYPE data", sorted
}

// A workload is a set of queries that are sent in turn.
type workload struct {
	title   string
	lookups []*lookup
}

// mostLookups bounds a workload: more would measure the generator's CPU caches.
const mostLookups = 10000

// newLookup makes a lookup. edns is for answers over 512 bytes; the queries of
// resolvers in pods have no OPT record.
func newLookup(name string, kind uint16, edns bool, rcode int, want ...string) *lookup {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), kind)
	if edns {
		m.SetEdns0(1232, false)
	}
	packet, err := m.Pack()
	if err != nil {
		panic(fmt.Sprintf("packing a query for %s: %v", name, err)) // the names are generated
	}
	slices.Sort(want)
	return &lookup{packet: packet, rcode: rcode, want: want}
}

// lookup returns a query for the addresses of a headless Service.
func (s service) lookup(edns bool) *lookup {
	var want []string
	for _, ip := range s.endpoints {
		want = append(want, "A "+ip.String())
	}
	return newLookup(s.fqdn(), dns.TypeA, edns, dns.RcodeSuccess, want...)
}

// wrong returns the difference of an answer from the expected one, "" if there is
// none. Every answer is checked; whole compares all of its records.
func (q *lookup) wrong(packet []byte, whole bool) string {
	if len(packet) < 12 || packet[2]&0x80 == 0 {
		return "no answer"
	}
	if packet[2]&0x02 != 0 {
		return "truncated"
	}
	if rcode := int(packet[3] & 0x0f); rcode != q.rcode {
		return "rcode " + dns.RcodeToString[rcode]
	}

	if n := int(binary.BigEndian.Uint16(packet[6:])); n != len(q.want) {
		return fmt.Sprintf("%d records in the answer, not %d", n, len(q.want))
	}
	if !whole {
		return ""
	}

	m := new(dns.Msg)
	if err := m.Unpack(packet); err != nil {
		return err.Error()
	}

	asked := new(dns.Msg)
	if err := asked.Unpack(q.packet); err != nil {
		return err.Error()
	}
	if len(m.Question) != 1 || !strings.EqualFold(m.Question[0].Name, asked.Question[0].Name) ||
		m.Question[0].Qtype != asked.Question[0].Qtype {
		return "a reply to another question"
	}

	got := make([]string, 0, len(m.Answer))
	for _, rr := range m.Answer {
		if !strings.EqualFold(rr.Header().Name, asked.Question[0].Name) {
			return "a record of " + rr.Header().Name
		}
		got = append(got, essence(rr))
	}

	slices.Sort(got)
	if !slices.Equal(got, q.want) {
		return fmt.Sprintf("got %v, not %v", got, q.want)
	}
	return ""
}

// essence returns a record without the TTL and the weight, which may differ
// between servers.
func essence(rr dns.RR) string {
	switch r := rr.(type) {
	case *dns.A:
		return "A " + r.A.String()
	case *dns.PTR:
		return "PTR " + strings.ToLower(r.Ptr)
	case *dns.SRV:
		return fmt.Sprintf("SRV %d %s", r.Port, strings.ToLower(r.Target))
	}
	return rr.String()
}

// workloads returns the queries about a population, by name. The random numbers
// are the same in every run.
func (p population) workloads() map[string]*workload {
	rnd := rand.New(rand.NewPCG(1, 2))
	n := min(mostLookups, 4*p.plain)
	workloads := map[string]*workload{}
	repeat := func(name, title string, one func() *lookup) {
		w := &workload{title: title}
		for range n {
			w.lookups = append(w.lookups, one())
		}
		workloads[name] = w
	}

	plain := func() service { return p.service(rnd.IntN(p.plain)) }
	random := func() service { return p.service(rnd.IntN(p.firstMoving())) }

	repeat("A", "ClusterIP, A", func() *lookup {
		s := plain()
		return newLookup(s.fqdn(), dns.TypeA, false, dns.RcodeSuccess, "A "+s.ip.String())
	})
	repeat("nxdomain", "search-path NXDOMAIN", func() *lookup {
		suffix := []string{p.namespace(rnd.IntN(p.namespaces)) + ".svc.", "svc.", ""}[rnd.IntN(3)]
		return newLookup(fmt.Sprintf("api%d.example.com.%s%s", rnd.IntN(1000), suffix, domain), dns.TypeA,
			false, dns.RcodeNameError)
	})
	repeat("nodata", "NODATA (AAAA of a ClusterIP)", func() *lookup {
		return newLookup(plain().fqdn(), dns.TypeAAAA, false, dns.RcodeSuccess)
	})

	repeat("headless3", "headless with 3 endpoints, A", func() *lookup {
		return p.service(p.firstSmall() + rnd.IntN(p.small)).lookup(false)
	})
	repeat("headless60", "headless with 60 endpoints, A with EDNS", func() *lookup {
		return p.service(p.firstHeadless() + rnd.IntN(p.headless)).lookup(true)
	})
	repeat("endpoint", "endpoint names, A", func() *lookup {
		s := random()
		ip := s.endpoints[rnd.IntN(len(s.endpoints))]
		return newLookup(s.endpoint(ip), dns.TypeA, false, dns.RcodeSuccess, "A "+ip.String())
	})

	repeat("srv", "SRV of a ClusterIP", func() *lookup {
		s := plain()
		return newLookup(s.srv(), dns.TypeSRV, false, dns.RcodeSuccess, "SRV 80 "+s.fqdn())
	})
	repeat("ptr", "PTR", func() *lookup {
		s := random()
		if s.ip.IsValid() && rnd.IntN(2) == 0 {
			return newLookup(reverse(s.ip), dns.TypePTR, false, dns.RcodeSuccess, "PTR "+s.fqdn())
		}
		ip := s.endpoints[rnd.IntN(len(s.endpoints))]
		return newLookup(reverse(ip), dns.TypePTR, false, dns.RcodeSuccess, "PTR "+s.endpoint(ip))
	})

	repeat("cached", "names from upstream, cached", func() *lookup {
		return outsideLookup(rnd.IntN(outside))
	})
	repeat("mix", "a mix: 25 % A, 20 % NODATA, 40 % NXDOMAIN, 7 % endpoint names, 5 % SRV, 3 % PTR", func() *lookup {
		shares := []struct {
			percent int
			name    string
		}{{25, "A"}, {20, "nodata"}, {40, "nxdomain"}, {7, "endpoint"}, {5, "srv"}, {3, "ptr"}}
		d := rnd.IntN(100)
		for _, s := range shares {
			if d -= s.percent; d < 0 {
				return workloads[s.name].lookups[rnd.IntN(n)]
			}
		}
		return workloads["A"].lookups[0]
	})
	return workloads
}

// outside is the number of names that the upstream serves.
const outside = 1000

func outsideName(k int) string { return fmt.Sprintf("host-%d.example.test.", k) }

func outsideAddress(k int) string { return fmt.Sprintf("192.0.2.%d", k%250+1) }

func outsideLookup(k int) *lookup {
	return newLookup(outsideName(k), dns.TypeA, false, dns.RcodeSuccess, "A "+outsideAddress(k))
}

// deniedLookup returns a query for a name that does not exist.
func deniedLookup(k int) *lookup {
	return newLookup(fmt.Sprintf("none-%d.example.test.", k), dns.TypeA, false, dns.RcodeNameError)
}

// outsideTable returns the upstream's answers, for names that exist and names that do not.
func outsideTable(exist, denied int) (table, error) {
	t := table{}
	for k := range exist {
		if err := t.add(outsideLookup(k),
			fmt.Sprintf("%s 3600 IN A %s", outsideName(k), outsideAddress(k))); err != nil {
			return nil, err
		}
	}
	for k := range denied {
		if err := t.add(deniedLookup(k),
			"example.test. 3600 IN SOA ns.example.test. hostmaster.example.test. 1 7200 1800 86400 3600"); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// add adds the answer to a query, which has one record.
func (t table) add(q *lookup, text string) error {
	m := new(dns.Msg)
	if err := m.Unpack(q.packet); err != nil {
		return err
	}
	rr, err := dns.NewRR(text)
	if err != nil {
		return err
	}
	reply := new(dns.Msg)
	reply.SetRcode(m, q.rcode)
	reply.RecursionAvailable = true
	if q.rcode == dns.RcodeSuccess {
		reply.Answer = []dns.RR{rr}
	} else {
		reply.Ns = []dns.RR{rr}
	}
	reply.Compress = true
	t[string(q.packet[12:])], err = reply.Pack()
	return err
}
