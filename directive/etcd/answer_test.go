package etcd

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/sys/clock"
)

// serveKeys returns a server for the zone test. with keys from lines KEY JSON.
func serveKeys(t testing.TB, options, keys string) *server {
	t.Helper()
	h := handler(t, "etcd test in-addr.arpa {\n"+options+"\n}")
	h.index.put(keyValues(keys)...)
	return serve(t, h, nil, "test.", "in-addr.arpa.")
}

func (s *server) expect(t *testing.T, name, qtype, want string) {
	t.Helper()
	if got := digest(s.exchange(name, qtype)); got != sorted(want) {
		t.Errorf("%s %s\ngot\n%swant\n%s", name, qtype, got, sorted(want))
	}
}

// Before the first list, names are SERVFAIL, nothing falls through, and the handler is
// not ready.
func TestNotSynced(t *testing.T) {
	h, err := plan("etcd test {\nfallthrough\n}")
	if err != nil {
		t.Fatal(err)
	}
	w := &upstream{records: []mdns.RR{rr("www.example. 60 IN A 192.0.2.1")}}
	s := serve(t, h, w, ".")
	h.index.put(keyValues(`/skydns/test/www {"host":"10.0.0.1"}`)...)
	h.index.beginList()
	for _, name := range []string{"test.", "www.test.", "missing.test."} {
		for _, qtype := range []string{"A", "SOA", "PTR"} {
			s.expect(t, name, qtype, "SERVFAIL\n")
		}
	}
	if h.Ready() || len(w.queries) > 0 {
		t.Errorf("got ready %v and upstream queries %v, want not ready and none", h.Ready(), w.queries)
	}
	s.expect(t, "www.example.", "A", "NOERROR\nanswer www.example. 60 IN A 192.0.2.1\n")
	h.index.put(keyValues(`/skydns/test/www {"host":"10.0.0.1"}`)...)
	h.index.endList()
	if !h.Ready() {
		t.Error("Ready after the list: got false, want true")
	}
	s.expect(t, "www.test.", "A", "NOERROR aa\nanswer www.test. 300 IN A 10.0.0.1\n")
	s.expect(t, "missing.test.", "A", "NXDOMAIN\n") // from the upstream
}

// The index is cleared during a lookup, because there are too many keys: a missing name
// may exist, so the lookup is repeated.
func TestIndexClearedDuringLookup(t *testing.T) {
	keys := keyValues(`
		/skydns/test/many/a {"host":"no.example"}
		/skydns/test/many/b {"host":"www.test"}
		/skydns/test/www/a {"host":"10.0.0.1"}`)
	for _, inline := range []bool{true, false} {
		h := handler(t, "etcd test")
		h.index.put(keys...)
		var readsEtcd atomic.Bool
		h.direct, h.keyReader = readsEtcd.Load, store{h.index, keys}
		s := serve(t, h, &upstream{inline: inline, onQuery: func() {
			readsEtcd.Store(true)
			h.index.clear()
		}}, ".")
		s.expect(t, "many.test.", "A", "NOERROR aa\nanswer many.test. 300 IN CNAME www.test.\nanswer www.test. 300 IN A 10.0.0.1\n")
	}
	h := handler(t, "etcd test")
	h.index.put(keys...)
	s := serve(t, h, &upstream{inline: true, onQuery: h.index.clear}, ".")
	s.expect(t, "many.test.", "A", "SERVFAIL\n")
}

// ANY returns one RRset of one group.
func TestAny(t *testing.T) {
	s := serveKeys(t, "", `
		/skydns/test/www/a {"host":"10.0.0.1","group":"one"}
		/skydns/test/www/b/c {"host":"10.0.0.2","group":"two"}
		/skydns/test/www/d {"host":"fd00::1","text":"t"}`)
	s.expect(t, "www.test.", "ANY", "NOERROR aa\nanswer www.test. 300 IN A 10.0.0.1\n")
	s.expect(t, "d.www.test.", "ANY", "NOERROR aa\nanswer d.www.test. 300 IN AAAA fd00::1\n")
}

func TestSRVWeightEqualMessages(t *testing.T) {
	s := serveKeys(t, "", `
		/skydns/test/www/a {"host":"one.example","port":80}
		/skydns/test/www/b {"host":"one.example","port":80}
		/skydns/test/www/c {"host":"two.example","port":80}`)
	s.expect(t, "www.test.", "SRV", "NOERROR aa\nanswer www.test. 300 IN SRV 10 50 80 one.example.\nanswer www.test. 300 IN SRV 10 50 80 two.example.\n")
}

func TestSkyDNSUnqualifiedTarget(t *testing.T) {
	h := handler(t, "etcd test {\ncompatible skydns\n}")
	h.index.put(keyValues("/skydns/test/www {\"host\":\"db\"}")...)
	s := serve(t, h, &upstream{failing: true}, ".")
	s.expect(t, "www.test.", "A", "NOERROR aa\nauthority test. 60 IN SOA ns.dns.test. hostmaster.test.\n")
}

func rr(text string) mdns.RR {
	r, err := mdns.NewRR(text)
	if err != nil {
		panic(err)
	}
	return r
}

// Names that do not exist fall through. A name with keys below it exists, and so does
// the apex of a zone.
func TestFallthrough(t *testing.T) {
	h := handler(t, "etcd test other {\nfallthrough a.test\n}")
	h.index.put(keyValues("/skydns/test/a/b/c {\"host\":\"10.0.0.1\"}\n/skydns/test/a/to {\"host\":\"x.a.test\"}\n/skydns/test/to {\"host\":\"x.test\"}")...)
	s := serve(t, h, &upstream{records: []mdns.RR{rr("x.a.test. 60 IN A 192.0.2.1"), rr("x.test. 60 IN A 192.0.2.2")}}, ".")
	soa := "authority test. 30 IN SOA ns.dns.test. hostmaster.test.\n"
	s.expect(t, "x.a.test.", "A", "NOERROR\nanswer x.a.test. 60 IN A 192.0.2.1\n")
	s.expect(t, "b.a.test.", "TXT", "NOERROR aa\n"+soa)
	s.expect(t, "x.test.", "A", "NXDOMAIN aa\n"+soa)
	s.expect(t, "other.", "A", "NOERROR aa\nauthority other. 30 IN SOA ns.dns.other. hostmaster.other.\n")
	s.expect(t, "to.a.test.", "A", "NOERROR aa\nanswer to.a.test. 300 IN CNAME x.a.test.\nanswer x.a.test. 60 IN A 192.0.2.1\n")
	s.expect(t, "to.test.", "A", "NXDOMAIN aa\nanswer to.test. 300 IN CNAME x.test.\n"+soa) // its target is not in a zone of fallthrough
}

// A chain from a target may have eight names, and one for a type without data of keys as many.
// Of a name that is an alias it may be longer, but not endless.
func TestChainLength(t *testing.T) {
	var keys strings.Builder
	for i := range 100 {
		fmt.Fprintf(&keys, "/skydns/test/c%d {\"host\":\"c%d.test\"}\n", i+1, i)
	}
	keys.WriteString("/skydns/test/c0 {\"host\":\"10.0.0.1\"}\n")
	s := serveKeys(t, "", keys.String())
	if m := s.exchange("c8.test.", "A"); len(m.Answer) != 9 || m.Answer[0].Header().Name != "c8.test." || m.Answer[8].Header().Rrtype != mdns.TypeA {
		t.Errorf("chain of eight names: got %s, want all of it", m)
	}
	for name, want := range map[string]struct{ rcode, count int }{
		"c9.test. A": {mdns.RcodeSuccess, 10}, "c100.test. A": {mdns.RcodeServerFailure, 9},
		"c8.test. MX": {mdns.RcodeSuccess, 8}, "c9.test. MX": {mdns.RcodeServerFailure, 9},
	} {
		name, qtype, _ := strings.Cut(name, " ")
		if m := s.exchange(name, qtype); m.Rcode != want.rcode || len(m.Answer) != want.count {
			t.Errorf("%s %s: got %s, want %s and %d records", name, qtype, m, mdns.RcodeToString[want.rcode], want.count)
		}
	}
	if m := s.exchange("c9.test.", "SRV"); len(m.Answer) != 1 || len(m.Extra) != 9 {
		t.Errorf("chain from a target: got %s, want eight names", m)
	}
}

// The number of followed names is bounded: ten names lead to ten others each, ten
// levels deep.
func TestChainsBounded(t *testing.T) {
	var keys strings.Builder
	for i := range 10 {
		for j := range 10 {
			for to := range 10 {
				fmt.Fprintf(&keys, "/skydns/test/t%d/n%d/k%d {\"host\":\"n%d.t%d.test\"}\n", i, j, to, to, i+1)
			}
		}
	}
	keys.WriteString("/skydns/test/t10/n0 {\"host\":\"10.0.0.1\"}\n/skydns/test/t3/n5/a {\"host\":\"10.0.0.2\"}\n")
	s := serveKeys(t, "", keys.String())
	for _, qtype := range []string{"A", "AAAA", "SRV"} {
		s.exchange("n0.t0.test.", qtype) // returns
	}
	if m := s.exchange("n0.t2.test.", "A"); len(m.Answer) < 2 {
		t.Errorf("got %s, want the records found before the limit", m)
	}
}

// An external target is looked up once, whether the sub-query is parked or not.
func TestExternalTargetsLookedUpOnce(t *testing.T) {
	for _, inline := range []bool{true, false} {
		h := handler(t, "etcd test")
		h.index.put(keyValues(`
			/skydns/test/one {"host":"www.example"}
			/skydns/test/many/a {"host":"www.example"}
			/skydns/test/many/b {"host":"web.example"}
			/skydns/test/many/c {"host":"www.example","port":80}`)...)
		w := &upstream{records: []mdns.RR{rr("www.example. 60 IN A 192.0.2.1"), rr("web.example. 60 IN A 192.0.2.2")}, inline: inline}
		s := serve(t, h, w, ".")
		for _, c := range []struct{ name, qtype, want string }{
			{"one.test.", "A", "NOERROR aa\nanswer one.test. 300 IN CNAME www.example.\nanswer www.example. 60 IN A 192.0.2.1\n"},
			{"many.test.", "A", "NOERROR aa\nanswer many.test. 300 IN CNAME www.example.\nanswer www.example. 60 IN A 192.0.2.1\n" +
				"answer many.test. 300 IN CNAME web.example.\nanswer web.example. 60 IN A 192.0.2.2\n"},
			{"many.test.", "SRV", "NOERROR aa\nanswer many.test. 300 IN SRV 10 33 0 www.example.\nanswer many.test. 300 IN SRV 10 33 0 web.example.\n" +
				"answer many.test. 300 IN SRV 10 33 80 www.example.\nadditional www.example. 60 IN A 192.0.2.1\nadditional web.example. 60 IN A 192.0.2.2\n"},
		} {
			w.queries = nil
			s.expect(t, c.name, c.qtype, c.want)
			for query, n := range w.queries {
				if n != 1 {
					t.Errorf("%s %s, inline %v: got %[5]d upstream queries for %[4]s, want 1", c.name, c.qtype, inline, query, n)
				}
			}
		}
	}
}

// Records of external targets keep their TTLs.
func TestExternalTTLs(t *testing.T) {
	h := handler(t, "etcd test")
	h.index.put(keyValues(`
		/skydns/test/s/a {"host":"www.example","port":80,"ttl":100}
		/skydns/test/s/b {"host":"10.0.0.1","port":80,"ttl":90}`)...)
	s := serve(t, h, &upstream{records: []mdns.RR{rr("www.example. 60 IN A 192.0.2.1")}}, ".")
	s.expect(t, "s.test.", "SRV", "NOERROR aa\nanswer s.test. 90 IN SRV 10 50 80 www.example.\nanswer s.test. 90 IN SRV 10 50 80 b.s.test.\n"+
		"additional www.example. 60 IN A 192.0.2.1\nadditional b.s.test. 90 IN A 10.0.0.1\n")
}

// If the lookup of an external target fails, the answer is SERVFAIL unless it has other
// records.
func TestExternalLookupFails(t *testing.T) {
	h := handler(t, "etcd test")
	h.index.put(keyValues(`
		/skydns/test/one {"host":"www.example"}
		/skydns/test/two/a {"host":"www.example"}
		/skydns/test/two/b {"host":"10.0.0.1"}
		/skydns/test/three/a {"host":"www.example","port":80}
		/skydns/test/three/b {"host":"web.example","port":80}`)...)
	w := &upstream{failing: true}
	s := serve(t, h, w, ".")
	s.expect(t, "one.test.", "A", "SERVFAIL aa\nanswer one.test. 300 IN CNAME www.example.\n")
	s.expect(t, "two.test.", "A", "NOERROR aa\nanswer two.test. 300 IN A 10.0.0.1\n")
	s.expect(t, "two.test.", "AAAA", "SERVFAIL aa\nanswer two.test. 300 IN CNAME www.example.\n")
	s.expect(t, "three.test.", "A", "SERVFAIL\n")
	w.queries = nil
	s.expect(t, "three.test.", "SRV", "NOERROR aa\nanswer three.test. 300 IN SRV 10 50 80 www.example.\nanswer three.test. 300 IN SRV 10 50 80 web.example.\n")
	if len(w.queries) != 1 {
		t.Errorf("queries to the failing upstream: got %v, want one", w.queries)
	}
}

// The TTL is the message's or the remaining time of the lease, within its bounds.
func TestTTL(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		left time.Duration // 0: unknown; -1: no lease
		ttl  uint32
		want uint32
	}{
		{-1, 0, 300}, {-1, 7, 7},
		{0, 0, 30}, {0, 600, 30}, {0, 7, 7},
		{100 * time.Second, 0, 100}, {100 * time.Second, 60, 60}, {100 * time.Second, 600, 100},
		{time.Second, 0, 30}, {-10 * time.Second, 0, 30}, {time.Hour * 48, 0, 86400}, {time.Hour * 48, 90000, 86400},
	} {
		h := handler(t, "etcd test")
		m := message{ttl: c.ttl}
		if c.left != -1 {
			m.lease = new(lease)
			if c.left != 0 {
				m.lease.expiry.Store(int64(clock.At(now) + c.left))
			}
		}
		if got := h.ttlOf(&m, now); got != c.want {
			t.Errorf("remaining time %v, ttl %d: got TTL %d, want %d", c.left, c.ttl, got, c.want)
		}
	}
}

// The TTL of a key follows its lease in the index.
func TestLeaseTTL(t *testing.T) {
	h := handler(t, "etcd test {\nmin-lease-ttl 5\nmax-lease-ttl 1m\n}")
	s := serve(t, h, nil, "test.")
	one, other := new(lease), new(lease)
	for _, l := range []struct {
		key string
		of  *lease
	}{{"a", one}, {"b", one}, {"c", other}, {"d", nil}} {
		kv := keyValues(`/skydns/test/` + l.key + ` {"host":"10.0.0.1"}`)[0]
		kv.lease = l.of
		h.index.put(kv)
	}
	one.expiry.Store(int64(clock.Now() + time.Hour))
	for name, ttl := range map[string]string{"a.test.": "60", "b.test.": "60", "c.test.": "5", "d.test.": "300", "test.": "5"} {
		s.expect(t, name, "A", "NOERROR aa\nanswer "+name+" "+ttl+" IN A 10.0.0.1\n")
	}
	kv := keyValues(`/skydns/test/d {"host":"10.0.0.1"}`)[0]
	kv.lease = one
	h.index.put(kv) // differs only in the lease
	s.expect(t, "d.test.", "A", "NOERROR aa\nanswer d.test. 60 IN A 10.0.0.1\n")
}

// The answer for a large subtree is truncated with TC.
func TestLargeAnswers(t *testing.T) {
	h := handler(t, "etcd test")
	var kvs []keyValue
	for i := range 20000 {
		kvs = append(kvs, keyValues(fmt.Sprintf("/skydns/test/big/k%d {\"host\":%q,\"port\":80}", i, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})))...)
		kvs = append(kvs, keyValues(fmt.Sprintf("/skydns/test/same/k%d {\"host\":\"10.0.0.1\",\"targetstrip\":1}", i))...)
	}
	h.index.put(append(kvs, keyValues(`/skydns/test/few/to {"host":"big.test"}`)...)...)
	s := serve(t, h, nil, "test.")
	for _, c := range []struct {
		name, qtype string
		proto       dns.Proto
		least       int
		cut         bool
	}{
		{"big.test.", "A", dns.UDP, 70, true}, {"big.test.", "SRV", dns.UDP, 20, true}, {"big.test.", "A", dns.TCP, 4000, true},
		{"big.test.", "SRV", dns.TCP, 1000, true}, {"big.test.", "TXT", dns.UDP, 0, false},
		{"same.test.", "A", dns.UDP, 1, false}, {"same.test.", "SRV", dns.UDP, 1, false}, {"test.", "A", dns.UDP, 70, true}, {"to.few.test.", "AAAA", dns.UDP, 1, false},
	} {
		m := new(mdns.Msg)
		if err := m.Unpack(s.Serve(packet(t, c.name, c.qtype, 1232), c.proto)); err != nil {
			t.Fatal(err)
		}
		if len(m.Answer) < c.least || c.least < 2 && len(m.Answer) != c.least || m.Truncated != c.cut {
			t.Errorf("%s %s over %s: got %d records, TC %v; want at least %d records, TC %v", c.name, c.qtype, c.proto, len(m.Answer), m.Truncated, c.least, c.cut)
		}
		if s.Last != nil {
			t.Errorf("%s %s: answered on the reader, want a parked query for so many keys", c.name, c.qtype)
		}
	}
}

// An invalid value is logged once, and again if it changes. Other keys are not affected.
func TestInvalidValues(t *testing.T) {
	var log strings.Builder
	x := newIndex("/skydns/", slog.New(slog.NewTextHandler(&log, nil)))
	bad := `/skydns/test/www/bad {"host":"10.0.0.1:80"}`
	expectLines := func(what string, want int) {
		t.Helper()
		if n := strings.Count(log.String(), "\n"); n != want || want > 0 && !strings.Contains(log.String(), "key=/skydns/test/www/bad") {
			t.Errorf("%s: got %d log lines, want %d\n%s", what, n, want, log.String())
		}
		log.Reset()
	}
	list := func(lines string) {
		x.beginList()
		x.put(keyValues(lines)...)
		x.endList()
	}
	good := `/skydns/test/www/good {"host":"10.0.0.1"}`
	list(bad + "\n" + good)
	expectLines("a list", 1)
	list(bad + "\n" + good)
	expectLines("another list", 0)
	x.put(keyValues(bad)...)
	expectLines("the same value again", 0)
	x.newQueryIndex().put(keyValues(bad)...)
	expectLines("another index", 0)
	x.put(keyValues(`/skydns/test/www/bad {`)...)
	expectLines("another invalid value", 1)
	x.delete([]byte("/skydns/test/www/bad"))
	x.put(keyValues(`/skydns/test/www/bad {`)...)
	expectLines("after the key was deleted", 1)
	x.put(keyValues(bad)...)
	expectLines("the first invalid value again", 1)
	list(good)
	list(bad + "\n" + good)
	expectLines("after a list without the key", 1)
	x.put(keyValues(`/skydns/test/www/bad {"host":"10.0.0.2"}`)...)
	x.put(keyValues(bad)...)
	expectLines("after a valid value", 1)
	h := handler(t, "etcd test")
	h.index = x
	s := serve(t, h, nil, "test.")
	s.expect(t, "www.test.", "A", "NOERROR aa\nanswer www.test. 300 IN A 10.0.0.1\n")
	s.expect(t, "bad.www.test.", "A", "NOERROR aa\nauthority test. 30 IN SOA ns.dns.test. hostmaster.test.\n")
}

// The CNAME record of an alias is visible to every type, also if external-dns has written it,
// with keys below the name.
func TestAliasEveryType(t *testing.T) {
	keys := `
		/skydns/test/own {"host":"www.example"}
		/skydns/test/own/api {"host":"10.0.0.9"}
		/skydns/test/dns1/1 {"host":"www.example","targetstrip":1}
		/skydns/test/dns1/api/1 {"host":"10.0.0.9"}
		/skydns/test/text/1 {"host":"www.example","text":"heritage"}
		/skydns/test/twice/1 {"host":"www.example"}
		/skydns/test/twice/2 {"host":"www.example"}
		/skydns/test/inner/1 {"host":"dns1.test"}
		/skydns/test/lost/1 {"host":"none.example"}
		/skydns/test/gone/1 {"host":"missing.test"}
		/skydns/test/two/1 {"host":"www.example"}
		/skydns/test/two/2 {"host":"web.example"}
		/skydns/test/mixed/1 {"host":"www.example"}
		/skydns/test/mixed/2 {"host":"10.0.0.1"}
		/skydns/test/deep/er/1/2 {"host":"www.example"}
		/skydns/test/self/1 {"host":"a.self.test"}
		/skydns/test/post/1 {"host":"mx.example","mail":true}
		/skydns/arpa/in-addr/10/0/0/1 {"host":"www.example"}`
	records := []mdns.RR{rr("www.example. 60 IN A 192.0.2.1"), rr("www.example. 60 IN MX 10 mx.example."), rr("www.example. 60 IN HTTPS 1 . alpn=h2"),
		rr("www.example. 60 IN NS ns.example."), rr("web.example. 60 IN A 192.0.2.2")}
	soa := "authority test. 30 IN SOA ns.dns.test. hostmaster.test.\n"

	for _, inline := range []bool{true, false} {
		h := handler(t, "etcd test in-addr.arpa")
		h.index.put(keyValues(keys)...)
		s := serve(t, h, &upstream{records: records, inline: inline}, ".")
		for _, name := range []string{"own", "dns1", "text", "twice"} {
			link := "answer " + name + ".test. 300 IN CNAME www.example.\n"
			s.expect(t, name+".test.", "CNAME", "NOERROR aa\n"+link)
			s.expect(t, name+".test.", "MX", "NOERROR aa\n"+link+"answer www.example. 60 IN MX 10 mx.example.\n")
			s.expect(t, name+".test.", "HTTPS", "NOERROR aa\n"+link+"answer www.example. 60 IN HTTPS 1 . alpn=\"h2\"\n")
			s.expect(t, name+".test.", "NS", "NOERROR aa\n"+link+"answer www.example. 60 IN NS ns.example.\n")
			s.expect(t, name+".test.", "CAA", "NOERROR aa\n"+link)
		}
		s.expect(t, "inner.test.", "MX", "NOERROR aa\nanswer inner.test. 300 IN CNAME dns1.test.\nanswer dns1.test. 300 IN CNAME www.example.\nanswer www.example. 60 IN MX 10 mx.example.\n")
		s.expect(t, "lost.test.", "MX", "NXDOMAIN aa\nanswer lost.test. 300 IN CNAME none.example.\n")
		s.expect(t, "gone.test.", "HTTPS", "NXDOMAIN aa\nanswer gone.test. 300 IN CNAME missing.test.\n"+soa)
		s.expect(t, "gone.test.", "AAAA", "NXDOMAIN aa\nanswer gone.test. 300 IN CNAME missing.test.\n"+soa)

		// Several targets, and addresses beside one, are not an alias.
		s.expect(t, "two.test.", "CNAME", "NOERROR aa\nanswer two.test. 300 IN CNAME web.example.\nanswer two.test. 300 IN CNAME www.example.\n")
		s.expect(t, "two.test.", "MX", "NOERROR aa\n"+soa)
		s.expect(t, "mixed.test.", "MX", "NOERROR aa\n"+soa)
		s.expect(t, "deep.test.", "MX", "NOERROR aa\n"+soa)
		s.expect(t, "self.test.", "CNAME", "NOERROR aa\n"+soa)
		s.expect(t, "test.", "CAA", "NOERROR aa\n"+soa)

		// Records of keys come first.
		s.expect(t, "text.test.", "TXT", "NOERROR aa\nanswer text.test. 300 IN TXT \"heritage\"\n")
		s.expect(t, "post.test.", "MX", "NOERROR aa\nanswer post.test. 300 IN MX 10 mx.example.\n")
		s.expect(t, "dns1.test.", "SRV", "NOERROR aa\nanswer dns1.test. 300 IN SRV 10 50 0 www.example.\nanswer dns1.test. 300 IN SRV 10 50 0 1.api.dns1.test.\n"+
			"additional 1.api.dns1.test. 300 IN A 10.0.0.9\nadditional www.example. 60 IN A 192.0.2.1\n")
		s.expect(t, "1.0.0.10.in-addr.arpa.", "PTR", "NOERROR aa\nanswer 1.0.0.10.in-addr.arpa. 300 IN PTR www.example.\n")
		s.expect(t, "0.0.10.in-addr.arpa.", "MX", "NOERROR aa\nauthority in-addr.arpa. 30 IN SOA ns.dns.in-addr.arpa. hostmaster.in-addr.arpa.\n")
	}
}
