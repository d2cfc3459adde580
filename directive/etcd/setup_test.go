package etcd

import (
	"errors"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
)

func TestSetup(t *testing.T) {
	plain, err := plan("etcd example.org")
	if err != nil {
		t.Fatal(err)
	}
	if plain.ttl != 300 || plain.negative != 30 || plain.priority != 10 || plain.leaseMin != 30 || plain.leaseMax != 86400 || plain.skydns || plain.noApexFallback || plain.index.prefix != "/skydns/" {
		t.Errorf("defaults: got %+v", plain)
	}
	old, err := plan("etcd {\ncompatible skydns\nmin-lease-ttl 0\nmax-lease-ttl 7\nmin-lease-ttl 5\n}")
	if err != nil {
		t.Fatal(err)
	}
	if old.ttl != 3600 || old.negative != 60 || !old.skydns || old.leaseMin != 5 || old.leaseMax != 7 {
		t.Errorf("defaults with compatible skydns: got %+v", old)
	}
	h, err := plan(`etcd a.example.org example.org in-addr.arpa {
		path //services/dns/
		ttl 0
		negative_ttl 5
		priority 20
		hostmaster Admin.example.org
		local here.example.org
		no_apex_fallback
		min-lease-ttl 1m
		fallthrough example.org
		compatible skydns
	}`)
	if err != nil {
		t.Fatal(err)
	}
	if h.ttl != 0 || h.negative != 5 || h.priority != 20 || h.hostmaster.String() != "admin.example.org." || h.local.String() != "here.example.org." || !h.noApexFallback ||
		h.leaseMin != 60 || h.index.prefix != "/services/dns/" || !h.through.On || len(h.zones.Zones()) != 3 || h.zones.Zones()[0].String() != "a.example.org." {
		t.Errorf("all options: got %+v", h)
	}
}

// Leading and trailing slashes of a path have no meaning, as in CoreDNS.
func TestPath(t *testing.T) {
	for text, want := range map[string]string{"skydns": "/skydns/", "/skydns": "/skydns/", "/skydns/": "/skydns/", "a/b": "/a/b/", "/": "/"} {
		h, err := plan("etcd example.org {\npath " + text + "\n}")
		if err != nil || h.index.prefix != want {
			t.Errorf("path %s: got prefix %q, error %v, want %q", text, h.index.prefix, err, want)
		}
	}
}

// The files of tls may be mounted after the start, so that one which cannot be read is a warning.
func TestTLSFiles(t *testing.T) {
	dir := t.TempDir()
	for files, want := range map[string]string{
		"/nowhere":               "CA of etcd: open /nowhere: no such file or directory",
		dir:                      "CA of etcd: open " + dir + ": a directory",
		dir + " /nowhere":        "certificate for etcd: open " + dir + ": a directory",
		dir + " /nowhere " + dir: "CA of etcd: open " + dir + ": a directory",
	} {
		text := ".:53 {\netcd {\nendpoint https://127.0.0.1:2379\ntls " + files + "\n}\n}\n"
		b, err := chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "etcd", Setup: Setup})
		if err != nil {
			t.Fatal(err)
		}
		want = "Corefile:4: etcd: tls: reading the " + want + "; etcd is not asked until they can be used"
		if got := errors.Join(b.Warnings()...); got == nil || got.Error() != want {
			t.Errorf("tls %s: got warnings %v, want %s", files, got, want)
		}
	}
}

// Options that affect answers.
func TestOptions(t *testing.T) {
	keys := `/skydns/test/a/b {"host":"10.0.0.1","port":80}
		/skydns/test/dns/apex/x {"host":"10.0.0.2"}`
	soa := "authority test. 5 IN SOA ns.dns.test. admin.example.\n"
	s := serveKeys(t, "ttl 7\nnegative_ttl 5\npriority 20\nhostmaster admin.example\nlocal a.test", keys)
	s.expect(t, "a.test.", "SRV", "NOERROR aa\nanswer a.test. 7 IN SRV 20 100 80 b.a.test.\nadditional b.a.test. 7 IN A 10.0.0.1\n")
	s.expect(t, "c.test.", "A", "NXDOMAIN aa\n"+soa)
	s.expect(t, "test.", "A", "NOERROR aa\nanswer test. 7 IN A 10.0.0.2\n")
	s.expect(t, "local.dns.test.", "A", "NOERROR aa\nanswer local.dns.test. 7 IN A 10.0.0.1\n")
	s.expect(t, "b.local.dns.test.", "A", "NXDOMAIN aa\n"+soa)

	s = serveKeys(t, "no_apex_fallback", `/skydns/test/a/b {"host":"10.0.0.1"}`)
	s.expect(t, "test.", "A", "NOERROR aa\nauthority test. 30 IN SOA ns.dns.test. hostmaster.test.\n")
	s.expect(t, "test.", "SRV", "NOERROR aa\nanswer test. 300 IN SRV 10 100 0 b.a.test.\nadditional b.a.test. 300 IN A 10.0.0.1\n")
}

// A name belongs to the longest zone that contains it.
func TestZones(t *testing.T) {
	h := handler(t, "etcd test in.test .")
	h.index.put(keyValues(`/skydns/test/in/www {"host":"10.0.0.1"}
		/skydns/www {"host":"to.in.test"}
		/skydns/test/in/to {"host":"www.in.test"}`)...)
	s := serve(t, h, nil, ".")
	s.expect(t, "no.in.test.", "A", "NXDOMAIN aa\nauthority in.test. 30 IN SOA ns.dns.in.test. hostmaster.in.test.\n")
	s.expect(t, "no.test.", "A", "NXDOMAIN aa\nauthority test. 30 IN SOA ns.dns.test. hostmaster.test.\n")
	s.expect(t, "no.", "A", "NXDOMAIN aa\nauthority . 30 IN SOA ns.dns. hostmaster.\n")
	s.expect(t, ".", "SOA", "NOERROR aa\nanswer . 30 IN SOA ns.dns. hostmaster.\n")
	s.expect(t, "www.", "A", "NOERROR aa\nanswer www. 300 IN CNAME to.in.test.\nanswer to.in.test. 300 IN CNAME www.in.test.\nanswer www.in.test. 300 IN A 10.0.0.1\n")
}

// Of two directives with one path the metrics show the older data, and the keys of both.
func TestGaugesOfOnePath(t *testing.T) {
	for age, want := range map[[2]float64]float64{{3, 5}: 5, {5, 3}: 5, {-1, 5}: -1, {5, -1}: -1, {-1, -1}: -1} {
		if got := worstAge(age[0], age[1]); got != want {
			t.Errorf("ages %v: got %v, want %v", age, got, want)
		}
	}

	var o options
	o.prefix = "/skydns"
	reg := new(metrics.Registry)
	b := &config.Block{Log: chaintest.QuietLog(), Metrics: reg}
	read, never := o.newSource(b), o.newSource(b)
	read.contactedAt.Store(1)
	age := func() float64 {
		return reg.Values(func(string) bool { return true })[metrics.SeriesName("seamark_etcd_data_age_seconds", "path", o.prefix)]
	}
	if got := age(); got != -1 {
		t.Errorf("got age %v of a source that has read its keys and one that has not, want -1", got)
	}
	never.contactedAt.Store(1)
	if got := age(); got < 0 {
		t.Errorf("got age %v of two sources that have read their keys, want 0 or more", got)
	}
}
