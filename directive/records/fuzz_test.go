package records

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone/zonefile"
)

// mayName reports whether objects of a namespace may have a name, by what twoTenants delegates.
func mayName(namespace string, owner wire.Name) bool {
	labels := mdns.SplitDomainName(owner.String())
	zone := func(text string) bool {
		of := strings.Split(text, ".")
		return len(labels) >= len(of) && slices.Equal(labels[len(labels)-len(of):], of)
	}
	switch below := len(labels) - 4; {
	case zone("b.a.example.test"):
		return namespace == "b"
	case zone("a.example.test"):
		return namespace == "a"
	case zone("shared.example.test"):
		return namespace == "a" || namespace == "b"
	case zone("apps.example.test") && below >= 0:
		return labels[below] == namespace
	}
	return zone("example.test") && namespace == "admins"
}

// Whatever is written in objects, they have only names that are delegated to their namespace, no
// more records than the limit, and answers that are well-formed.
func FuzzReadObject(f *testing.F) {
	add := func(namespace byte, hosts, zone, name, kind, target string) {
		f.Add(namespace, hosts, zone, name, kind, target, int64(60))
	}
	add(0, "10.0.0.1 web.a.example.test\nfd00::1 WEB.a.example.test.", "*.a.example.test. 5 CNAME b.test.", "web.a.example.test", "MX", "10 web.a.example.test")
	add(1, "", "$ORIGIN a.example.test.\nb\\.a A 10.0.0.1\n\\098 A 10.0.0.1\nb.b A 10.0.0.1", "web\\046b.a.example.test", "TXT", `"a" b\`)
	add(2, "1.1.1.1 x.admins.apps.example.test", "$GENERATE 1-300 h$.example.test. 5 A 10.0.0.1", "*.apps.example.test", "A", "10.0.0.1")
	add(2, "", "example.test. 1 SRV 0 0 1 h.example.test.\nexample.test. SRV 0 0 2 H.example.test.", "h.example.test", "TYPE65280", "\\# 1 00")
	add(3, "::1 b.a.example.test", "$INCLUDE x\n", "x.shop.apps.example.test.", "HTTPS", "1 . alpn=h2")
	f.Fuzz(func(t *testing.T, namespace byte, hosts, zone, name, kind, target string, ttl int64) {
		of := []string{"a", "b", "admins", "shop"}[namespace%4]
		r := newRig(t, twoTenants)
		r.list(
			configMap(of+"/names", 1, "hosts", hosts, "x.zone", zone, name, target),
			endpoint(of+"/names", 2, cluster.EndpointRecords{Name: name, Type: kind, TTL: ttl, Targets: []string{target, hosts}}))
		var all draft
		for packed := range r.handler.ZoneRecords(wire.Root) {
			one, ok := wire.ReadRecord(packed, 0)
			if owner := wire.Name(packed[:max(one.Head, 0)]); !ok || one.Next != len(packed) {
				t.Fatalf("malformed record %x", packed)
			} else if owner.String() != "fixed.example.test." {
				checkRecord(t, r, of, &all, owner, zonefile.Record{Type: one.Type, TTL: binary.BigEndian.Uint32(packed[one.Head+4:]), RData: string(packed[one.RData:one.Next])})
			}
		}
	})
}

// checkRecord fails unless a namespace may have a record, once and well-formed.
func checkRecord(t *testing.T, r *rig, namespace string, all *draft, owner wire.Name, one zonefile.Record) {
	if !mayName(namespace, owner) {
		t.Errorf("namespace %s has %s", namespace, owner)
	}
	before := all.records
	if err := all.add(place{}, owner, one); err != nil || all.records == before || all.records > 100 {
		t.Errorf("%s %s %x: record %d of at most 100 is repeated, or excluded by others: %v", owner, one.Type, one.RData, all.records, err)
	}
	if all.records < 10 {
		checkReply(t, r, owner, one.Type)
	}
}

// checkReply checks that a query for a set is answered with records.
func checkReply(t *testing.T, r *rig, owner wire.Name, of wire.Type) {
	m := new(mdns.Msg)
	m.SetQuestion(owner.String(), uint16(of))
	m.SetEdns0(65535, false)
	packet, err := m.Pack()
	if err != nil {
		return // the library's parser refuses the name
	}
	reply := r.send(packet)
	if len(reply) < 12 || reply[3]&15 != 0 || reply[2]&2 == 0 && reply[6]|reply[7] == 0 {
		t.Errorf("%s %s: got reply %x", owner, of, reply)
	}
}
