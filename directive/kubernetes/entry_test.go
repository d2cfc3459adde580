package kubernetes

import (
	"testing"
)

// An endpoint may be in several slices, and an address may have several labels. Each
// record is written once.
func TestEndpointsInSeveralSlices(t *testing.T) {
	s := start(t, defaultOptions(),
		namespaceObject("shop"),
		headless("shop", "db"),
		// The families of dual-stack pods are in slices of their own, and while
		// endpoints move between slices they are in both.
		slice("shop", "db-4a", "db", "sql 5432/tcp", "db-0=10.0.0.1", "db-1=10.0.0.2", "10.0.0.3"),
		slice("shop", "db-4b", "db", "sql 5432/tcp", "db-1=10.0.0.2", "!10.0.0.3", "10.0.0.3", "!db-2=10.0.0.4"),
		slice("shop", "db-6", "db", "sql 5432/tcp", "db-0=fd00::1"),
	)
	s.check(t, "db.shop.svc.cluster.local.", "A", `NOERROR aa
		db.shop.svc.cluster.local. 5 IN A 10.0.0.1
		db.shop.svc.cluster.local. 5 IN A 10.0.0.2
		db.shop.svc.cluster.local. 5 IN A 10.0.0.3`)
	s.check(t, "db-0.db.shop.svc.cluster.local.", "AAAA", `NOERROR aa
		db-0.db.shop.svc.cluster.local. 5 IN AAAA fd00::1`)
	s.check(t, "_sql._tcp.db.shop.svc.cluster.local.", "SRV", `NOERROR aa
		_sql._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 33 5432 db-0.db.shop.svc.cluster.local.
		_sql._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 33 5432 db-1.db.shop.svc.cluster.local.
		_sql._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 33 5432 10-0-0-3.db.shop.svc.cluster.local.
		additional: db-0.db.shop.svc.cluster.local. 5 IN A 10.0.0.1
		additional: db-0.db.shop.svc.cluster.local. 5 IN AAAA fd00::1
		additional: db-1.db.shop.svc.cluster.local. 5 IN A 10.0.0.2
		additional: 10-0-0-3.db.shop.svc.cluster.local. 5 IN A 10.0.0.3`)
}

// In slices with different ports each endpoint has the ports of its slice. An endpoint in
// both slices has the ports of both.
func TestPortsInSeveralSlices(t *testing.T) {
	s := start(t, defaultOptions(),
		namespaceObject("shop"),
		headless("shop", "db"),
		slice("shop", "a", "db", "sql 5432/tcp", "a=10.0.0.1", "c=10.0.0.3"),
		slice("shop", "b", "db", "sql 5433/tcp, mon 9090/tcp", "b=10.0.0.2", "c=10.0.0.3"),
	)
	s.check(t, "_sql._tcp.db.shop.svc.cluster.local.", "SRV", `NOERROR aa
		_sql._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 25 5432 a.db.shop.svc.cluster.local.
		_sql._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 25 5432 c.db.shop.svc.cluster.local.
		_sql._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 25 5433 c.db.shop.svc.cluster.local.
		_sql._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 25 5433 b.db.shop.svc.cluster.local.
		additional: a.db.shop.svc.cluster.local. 5 IN A 10.0.0.1
		additional: c.db.shop.svc.cluster.local. 5 IN A 10.0.0.3
		additional: b.db.shop.svc.cluster.local. 5 IN A 10.0.0.2`)
	s.check(t, "_mon._tcp.db.shop.svc.cluster.local.", "A", `NOERROR aa
		_mon._tcp.db.shop.svc.cluster.local. 5 IN A 10.0.0.3
		_mon._tcp.db.shop.svc.cluster.local. 5 IN A 10.0.0.2`)
}

// A hostname may equal the label of another endpoint's address. The name then has both
// endpoints, and no duplicate records.
func TestHostnameEqualsAddressLabel(t *testing.T) {
	for _, order := range [][]string{
		{"10-0-0-1=10.0.0.9", "10.0.0.1"},
		{"10.0.0.1", "10-0-0-1=10.0.0.9"},
		{"10.0.0.1", "10-0-0-1=10.0.0.1", "10-0-0-1=10.0.0.9"},
	} {
		s := start(t, defaultOptions(), namespaceObject("shop"), headless("shop", "db"), slice("shop", "a", "db", "sql 5432/tcp", order...))
		m := s.ask(t, "10-0-0-1.db.shop.svc.cluster.local.", "A")
		if len(m.Answer) != 2 {
			t.Errorf("endpoints %v, 10-0-0-1.db A: got %s, want two records", order, digest(m))
		}
		m = s.ask(t, "db.shop.svc.cluster.local.", "SRV")
		if len(m.Answer) != 1 || len(m.Extra) != 2 {
			t.Errorf("endpoints %v, db SRV: got %s, want one record and two addresses", order, digest(m))
		}
		m = s.ask(t, "10-0-0-9.db.shop.svc.cluster.local.", "A")
		if len(m.Answer) != 0 {
			t.Errorf("endpoints %v, 10-0-0-9.db A: got %s, want no records", order, digest(m))
		}
		s.check(t, "1.0.0.10.in-addr.arpa.", "PTR", "NOERROR aa\n1.0.0.10.in-addr.arpa. 5 IN PTR 10-0-0-1.db.shop.svc.cluster.local.")
	}
}

// Pods of two clusters may have the same hostname and the same address. They are two
// targets with one address.
func TestEqualEndpointsInTwoClusters(t *testing.T) {
	d := defaultOptions()
	d.zones, d.multicluster = []string{"clusterset.local.", "cluster.local."}, []string{"clusterset.local."}
	s := start(t, d, namespaceObject("shop"), imported(headless("shop", "db")),
		inCluster("east", slice("shop", "a", "db", "sql 5432/tcp", "db-0=10.0.0.1")),
		inCluster("eu.west", slice("shop", "b", "db", "sql 5432/tcp", "db-0=10.0.0.1", "db-1=10.0.0.2")))
	s.check(t, "db.shop.svc.clusterset.local.", "SRV", `NOERROR aa
		db.shop.svc.clusterset.local. 5 IN SRV 0 33 5432 db-0.east.db.shop.svc.clusterset.local.
		db.shop.svc.clusterset.local. 5 IN SRV 0 33 5432 db-0.eu.west.db.shop.svc.clusterset.local.
		db.shop.svc.clusterset.local. 5 IN SRV 0 33 5432 db-1.eu.west.db.shop.svc.clusterset.local.
		additional: db-0.east.db.shop.svc.clusterset.local. 5 IN A 10.0.0.1
		additional: db-0.eu.west.db.shop.svc.clusterset.local. 5 IN A 10.0.0.1
		additional: db-1.eu.west.db.shop.svc.clusterset.local. 5 IN A 10.0.0.2`)
	s.check(t, "_sql._tcp.db.shop.svc.clusterset.local.", "A", `NOERROR aa
		_sql._tcp.db.shop.svc.clusterset.local. 5 IN A 10.0.0.1
		_sql._tcp.db.shop.svc.clusterset.local. 5 IN A 10.0.0.2`)
	for _, name := range []string{"east.db", "eu.west.db", "west.db"} { // M7: names, without records
		m := s.ask(t, name+".shop.svc.clusterset.local.", "A")
		if m.Rcode != 0 || len(m.Answer) > 0 {
			t.Errorf("%s A: got %s, want NODATA", name, digest(m))
		}
	}
	for _, name := range []string{"eu.db", "db-0.db", "db-0.west.db", "x.db-0.east.db", "db-1.east.db"} {
		if m := s.ask(t, name+".shop.svc.clusterset.local.", "A"); m.Rcode != 3 {
			t.Errorf("%s A: got %s, want NXDOMAIN", name, digest(m))
		}
	}
}

// An ExternalName whose target is not a host name does not exist.
func TestExternalNameInvalidTarget(t *testing.T) {
	for _, target := range []string{"10.0.0.1", "fd00::1", "::ffff:10.0.0.1", "a..b", ".", "-"} {
		ix := load(defaultOptions().newIndex(), namespaceObject("shop"), external("shop", "x", target))
		s := serve(t, defaultOptions(), defaultOptions().handler(t, ix))
		code := s.ask(t, "x.shop.svc.cluster.local.", "CNAME").Rcode
		if exists := target == "." || target == "-"; (code == 0) != exists {
			t.Errorf("externalName %q: got rcode %d, want the name to exist: %v", target, code, exists)
		}
	}
}
