package diff

import (
	"testing"

	"github.com/miekg/dns"
)

func TestSubject(t *testing.T) {
	c := NewComparer("Cluster.Local")
	for _, test := range []struct{ name, want, base string }{
		{"cluster.local.", subjectZone, ""},
		{"dns-version.cluster.local.", subjectVersion, ""},
		{"svc.cluster.local.", subjectNamespace, ""},
		{"shop.svc.cluster.local.", subjectNamespace, ""},
		{"shop.pod.cluster.local.", subjectNamespace, ""},
		{"WEB.shop.svc.cluster.local.", subjectService, "web.shop. ?"},
		{"_tcp.web.shop.svc.cluster.local.", subjectProtocol, ""},
		{"_http._tcp.web.shop.svc.cluster.local.", subjectPort, ""},
		{"http.tcp.web.shop.svc.cluster.local.", subjectPlainPort, ""},
		{"web-0.web.shop.svc.cluster.local.", subjectEndpoint, "web-0.web."},
		{"www.example.com.shop.svc.cluster.local.", subjectSearch, "www.example.com."},
		{"web.shop.svc.svc.cluster.local.", subjectEndpoint, "web.shop."},
		{"web.shop.svc.cluster.local.shop.svc.cluster.local.", subjectSearch, "web.shop.svc.cluster.local."},
		{"www.example.com.cluster.local.", subjectSearch, "www.example.com."},
		{"1-2-3-4.shop.pod.cluster.local.", subjectPod, ""},
		{"x.1-2-3-4.shop.pod.cluster.local.", subjectBelowPod, ""},
		{"none.cluster.local.", subjectNeighbour, ""},
		{"10.0.96.10.in-addr.arpa.", subjectReverse, ""},
		{"96.10.in-addr.arpa.", subjectReverseTop, ""},
		{"0.0.ip6.arpa.", subjectReverseTop, ""},
		{"www.example.com.", subjectOutside, ""},
		{".", subjectOutside, ""},
	} {
		if got := c.subject(test.name, answer{}); got != test.want {
			t.Errorf("subject of %s: got %q, want %q", test.name, got, test.want)
		}
		base, certain := c.SearchBase(test.name)
		if base != "" && !certain {
			base += " ?"
		}
		if base != test.base {
			t.Errorf("search base of %s: got %q, want %q", test.name, base, test.base)
		}
	}
}

// A truncated reply without records says nothing about them, on either side; its response code counts.
func TestCompareTruncatedReplies(t *testing.T) {
	message := func(rcode int, truncated bool, records ...string) *dns.Msg {
		m := new(dns.Msg).SetQuestion("www.cluster.local.", dns.TypeA)
		m.Response, m.Authoritative, m.Truncated, m.Rcode = true, true, truncated, rcode
		for _, text := range records {
			record, err := dns.NewRR(text)
			if err != nil {
				t.Fatal(err)
			}
			m.Answer = append(m.Answer, record)
		}
		return m
	}
	const one, two = "www.cluster.local. 30 A 192.0.2.1", "www.cluster.local. 30 A 192.0.2.2"
	cut, nodata := message(0, true), message(0, false)
	for _, test := range []struct {
		what      string
		want, got *dns.Msg
		cause     string
	}{
		{"records, cut", message(0, false, one, two), cut, ""},
		{"cut, records", cut, message(0, false, one, two), ""},
		{"a part, cut", message(0, true, one), cut, ""},
		{"cut, a part", cut, message(0, true, one), ""},
		{"parts", message(0, true, one), message(0, true, two), ""},
		{"cut, NODATA", cut, nodata, ""},
		{"NODATA, cut", nodata, cut, ""},
		{"cut, NXDOMAIN", cut, message(dns.RcodeNameError, false), "NXDOMAIN instead of NODATA"},
		{"SERVFAIL, cut", message(dns.RcodeServerFailure, false), cut, "NODATA instead of SERVFAIL"},
		{"whole and empty", message(0, false, one), nodata, "NODATA instead of records"},
	} {
		d := NewComparer("cluster.local").Compare(Pair{Name: "www.cluster.local.", Type: dns.TypeA, Want: test.want, Got: test.got})
		if d.Cause != test.cause {
			t.Errorf("%s: got cause %q, want %q", test.what, d.Cause, test.cause)
		}
	}
}

// TTLs, flags and records that are another server's say nothing about this one.
func TestCompareUpstream(t *testing.T) {
	c := NewComparer("cluster.local")
	message := func(aa bool, records ...string) *dns.Msg {
		m := new(dns.Msg).SetQuestion("www.example.com.", dns.TypeA)
		m.Response, m.Authoritative = true, aa
		for _, text := range records {
			record, err := dns.NewRR(text)
			if err != nil {
				t.Fatal(err)
			}
			m.Answer = append(m.Answer, record)
		}
		return m
	}
	const name = "www.example.com. "
	failed := message(false)
	failed.Rcode = dns.RcodeServerFailure
	for _, test := range []struct {
		what      string
		want, got *dns.Msg
		cause     string
		reason    bool
	}{
		{"TTL", message(false, name+"30 A 192.0.2.1"), message(false, name+"60 A 192.0.2.1"), "", false},
		{"TTL of this server", message(true, name+"30 A 192.0.2.1"), message(true, name+"60 A 192.0.2.1"), "TTL 60 instead of 30", false},
		{"other address", message(false, name+"30 A 192.0.2.1"), message(false, name+"30 A 192.0.2.2"), "other records", true},
		{"other address of this server", message(true, name+"30 A 192.0.2.1"), message(true, name+"30 A 192.0.2.2"), "other records", false},
		{"failure", failed, message(false, name+"30 A 192.0.2.2"), "records instead of SERVFAIL", false},
		{"no reply", nil, message(false, name+"30 A 192.0.2.2"), "records instead of no reply", false},
		{"no answer", message(false), nil, "no reply instead of NODATA", false},
	} {
		d := c.Compare(Pair{Name: "www.example.com.", Type: dns.TypeA, Want: test.want, Got: test.got})
		if d.Cause != test.cause || (d.Reason != "") != test.reason {
			t.Errorf("%s: got %+v, want cause %q, with a reason %t", test.what, d, test.cause, test.reason)
		}
	}
}
