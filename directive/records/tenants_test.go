package records

import (
	"strings"
	"testing"
)

// A tenant cannot write, hide or shadow names in the zone of another one, however the name is spelled, and
// what it may write changes nothing there.
func TestObjectsTenants(t *testing.T) {
	r := newRig(t, `records example.test cluster.local 10.in-addr.arpa {
	objects {
		configmaps
		dnsendpoints
		delegate a a.example.test 10.1.0.0/16
		delegate b b.a.example.test 10.1.2.0/24
	}
}`)
	r.list()
	r.put(configMap("b/own", 5, "zone", "$ORIGIN b.a.example.test.\n@ A 10.0.0.1\nweb A 10.0.0.1\n*.wild A 10.0.0.2\n1.2.1.10.in-addr.arpa. PTR web"))
	for _, c := range []struct{ text, told string }{
		{"WEB.B.A.Example.TEST. A 10.6.6.6", "web.b.a.example.test. is in b.a.example.test., which is not delegated to namespace a"},
		{"web.b.a.example.test A 10.6.6.6", "web.b.a.example.test. is in b.a.example.test., which is not delegated to namespace a"},
		{`w\101b.\098.a.example.test. A 10.6.6.6`, "web.b.a.example.test. is in b.a.example.test., which is not delegated to namespace a"},
		{"$ORIGIN b.a.example.test.\nweb A 10.6.6.6", "web.b.a.example.test. is in b.a.example.test., which is not delegated to namespace a"},
		{"*.b.a.example.test. A 10.6.6.6", "*.b.a.example.test. is in b.a.example.test., which is not delegated to namespace a"},
		{`web.b\.a.example.test. A 10.6.6.6`, `web.b\.a.example.test. is in no zone that is delegated to namespace a`},
		{`web\.b.a.example.test. A 10.6.6.6`, ""}, // another name
		{"*.a.example.test. A 10.6.6.6", ""},      // which does not match in b's zone
		{"*.*.a.example.test. A 10.6.6.6", ""},
		{"a.example.test. NS ns.a.example.test.", "NS records are for zones, and these records are none"},
		{"a.example.test. DNAME b.a.example.test.", "DNAME records are for zones, and these records are none"},
		{"a.example.test. SOA a. b. 1 2 3 4 5", "SOA records are for zones, and these records are none"},
		{"a.example.test. CDNSKEY 257 3 13 5E7UDhpKsmPYwDT1sAQrOUWMzLwOlowfBxO9bPPVLplhdzL28Onn5dX4", "CDNSKEY records are for zones, and these records are none"},
		{"a.example.test. TYPE39 \\# 1 00", "DNAME records are for zones, and these records are none"},
		{"x.a.example.test. TYPE255 \\# 0", "ANY is not a record type"},
		{"x.a.example.test. ANY 1", `no blank before RR type: "\n"`}, // a last line without an end
		{"x.a.example.test. 4294967295 A 10.6.6.6", "TTL 4294967295: at most 2147483647 is allowed"},
		{"x.a.example.test. CNAME web.b.a.example.test.", ""},
		{"x.a.example.test. CH A 10.6.6.6", "want class IN, got CH"},
		{"cluster.local. A 10.6.6.6", "cluster.local. is in no zone that is delegated to namespace a"},
		{"api.shop.svc.cluster.local. A 10.6.6.6", "api.shop.svc.cluster.local. is in no zone that is delegated to namespace a"},
		{"1.2.1.10.in-addr.arpa. PTR x.", "1.2.1.10.in-addr.arpa. is in 2.1.10.in-addr.arpa., which is not delegated to namespace a"},
		{"*.1.10.in-addr.arpa. PTR x.", ""},
		{"*. A 10.6.6.6", "*. is in no zone that is delegated to namespace a"},
		{"b\u00fccher.example.test. A 10.6.6.6", `b\195\188cher.example.test. is in no zone that is delegated to namespace a`},
	} {
		r.put(configMap("a/x", 1, "zone", "ok.a.example.test. A 10.0.0.9")) // so that each error is told
		r.told.take()
		r.put(configMap("a/x", 1, "zone", c.text))
		told := strings.Join(r.told.take(), ", ")
		if _, what, _ := strings.Cut(told, "zone:"); !strings.HasSuffix(what, ": "+c.told) && told != c.told {
			t.Errorf("%q: told %q, want %q", c.text, told, c.told)
		}
		r.expect(t, "web.b.a.example.test A", "10.0.0.1", "b.a.example.test A", "10.0.0.1", "x.wild.b.a.example.test A", "10.0.0.2",
			"none.b.a.example.test A", "REFUSED", "x.wild.b.a.example.test TXT", "NOERROR",
			"1.2.1.10.in-addr.arpa PTR", "web.b.a.example.test.", "2.2.1.10.in-addr.arpa PTR", "REFUSED")
	}
}
