package etcd

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/race"
)

// An allocCase is a query whose answer must not allocate.
type allocCase struct{ title, name, qtype string }

var allocCases = [...]allocCase{
	{"A", "web-1.ns-7.svc.cluster.local.", "A"},
	{"A of a headless Service", "db.ns-7.svc.cluster.local.", "A"},
	{"AAAA NODATA", "web-1.ns-7.svc.cluster.local.", "AAAA"},
	{"NXDOMAIN", "www.example.com.ns-7.svc.cluster.local.", "A"},
	{"SRV", "_http._tcp.web-1.ns-7.svc.cluster.local.", "SRV"},
	{"SRV of a headless Service", "_sql._tcp.db.ns-7.svc.cluster.local.", "SRV"},
	{"CNAME inside", "alias.ns-7.svc.cluster.local.", "A"},
	{"one of a group", "grouped.ns-7.svc.cluster.local.", "A"},
	{"TXT", "text.ns-7.svc.cluster.local.", "TXT"},
	{"MX", "mail.ns-7.svc.cluster.local.", "MX"},
	{"PTR", "1.0.0.10.in-addr.arpa.", "PTR"},
	{"NS", "cluster.local.", "NS"},
	{"SOA", "cluster.local.", "SOA"},
}

// manyKeyValues returns n keys as kube2sky writes them.
func manyKeyValues(n int) (kvs []keyValue) {
	add := func(format string, args ...any) {
		kvs = append(kvs, keyValues(fmt.Sprintf(format, args...))...)
	}
	const clusterIP = `{"host":"10.%d.%d.%d","priority":10,"weight":10,"ttl":30}`
	for ns := 0; len(kvs) < n; ns++ {
		for svc := 0; svc < 20 && len(kvs) < n; svc++ {
			name := fmt.Sprintf("web-%d.ns-%d.svc.cluster.local", svc, ns)
			base := fmt.Sprintf("/skydns/local/cluster/svc/ns-%d/web-%d", ns, svc)
			hash := 0x10000000 + ns*1000 + svc
			add("%s/%x "+clusterIP, base, hash, 96+ns>>8, ns&255, svc)
			add(`%s/_tcp/_http/%x {"host":"%s","priority":10,"weight":10,"ttl":30,"port":80}`, base, hash+1, name)
		}
	}
	return kvs
}

func manyKeysServer(tb testing.TB, n int) *server {
	h := handler(tb, "etcd cluster.local in-addr.arpa")
	h.index.put(manyKeyValues(n)...)
	text := `
		/skydns/local/cluster/svc/ns-7/alias/1 {"host":"web-1.ns-7.svc.cluster.local"}
		/skydns/local/cluster/svc/ns-7/grouped/1 {"host":"10.0.0.1","group":"a"}
		/skydns/local/cluster/svc/ns-7/grouped/below/1 {"host":"10.0.0.2","group":"b"}
		/skydns/local/cluster/svc/ns-7/text {"text":"hello"}
		/skydns/local/cluster/svc/ns-7/mail/a {"host":"web-1.ns-7.svc.cluster.local","mail":true}
		/skydns/local/cluster/svc/ns-7/mail/b {"host":"10.0.0.1","mail":true,"priority":20}
		/skydns/arpa/in-addr/10/0/0/1 {"host":"web-1.ns-7.svc.cluster.local"}
		/skydns/local/cluster/dns/ns/a {"host":"10.0.0.10"}
	`
	for i := range 3 {
		text += fmt.Sprintf("/skydns/local/cluster/svc/ns-7/db/%d {\"host\":\"10.0.1.%d\",\"ttl\":30}\n", i, i)
		text += fmt.Sprintf("/skydns/local/cluster/svc/ns-7/db/_tcp/_sql/%d {\"host\":\"10.0.1.%d\",\"port\":5432}\n", i, i)
	}
	h.index.put(keyValues(text)...)
	return serve(tb, h, nil, "cluster.local.", "in-addr.arpa.")
}

// answerer returns a function that answers one packet as a reader does, from Serve to the
// sealed reply.
func (s *server) answerer(tb testing.TB, c allocCase) (answer func(), q *dns.Query) {
	p := packet(tb, c.name, c.qtype, 1232)
	lent := make([]byte, 4096)
	q = dns.NewQuery(nil)
	now := time.Now()
	return func() {
		q.Reset(p, dns.UDP, now)
		if s.Port.Serve(q, lent) != dns.Answered {
			panic("the query was parked")
		}
	}, q
}

func TestAnswersAllocateNothing(t *testing.T) {
	s := manyKeysServer(t, 20000)
	for _, c := range allocCases {
		run, q := s.answerer(t, c)
		run() // the first sub-query of a reader allocates its memory
		if n := testing.AllocsPerRun(200, run); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", c.title, n)
		}
		m := new(mdns.Msg)
		if err := m.Unpack(q.Reply()); err != nil || len(m.Answer)+len(m.Ns) == 0 || (len(m.Answer) == 0) != (c.title == "NXDOMAIN" || c.title == "AAAA NODATA") {
			t.Errorf("%s: got error %v and\n%s\nwant an answer", c.title, err, m)
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	s := manyKeysServer(b, 100000)
	for _, c := range allocCases {
		b.Run(c.title, func(b *testing.B) {
			run, _ := s.answerer(b, c)
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}

// A key as kube2sky writes it needs less than 120 bytes in the index.
func TestIndexSizePerKey(t *testing.T) {
	race.Skip(t)
	const n = 100000
	kvs := manyKeyValues(n)
	before := heap()
	x := newIndex("/skydns/", nil)
	for i := 0; i < n; i += 2000 {
		x.put(kvs[i:min(n, i+2000)]...)
	}
	per := float64(heap()-before) / n
	t.Logf("%.1f bytes a key", per)
	if per > 120 || x.count() != n {
		t.Errorf("got %d keys of %.1f bytes each, want %d keys of less than 120 bytes", x.count(), per, n)
	}
	runtime.KeepAlive(kvs)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkList lists 100,000 keys, into an empty index and into a full one.
func BenchmarkList(b *testing.B) {
	kvs := manyKeyValues(100000)
	x := newIndex("/skydns/", nil)
	for b.Loop() {
		x.beginList()
		for i := 0; i < len(kvs); i += 2000 {
			x.put(kvs[i : i+2000]...)
		}
		x.endList()
	}
}

// BenchmarkPut changes one key among 100,000.
func BenchmarkPut(b *testing.B) {
	kvs := manyKeyValues(100000)
	x := newIndex("/skydns/", nil)
	x.put(kvs...)
	two := keyValues("/skydns/local/cluster/svc/ns-7/web-1/10000bb9 {\"host\":\"10.0.0.1\"}\n/skydns/local/cluster/svc/ns-7/web-1/10000bb9 {\"host\":\"10.0.0.2\"}")
	for i := 0; b.Loop(); i++ {
		x.put(two[i%2])
	}
}
