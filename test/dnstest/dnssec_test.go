package dnstest

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/debian"
)

const signedCluster = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80, protocol: TCP}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, ports: [{name: sql, port: 5432, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: sql, port: 5432, protocol: TCP}]
endpoints:
- {addresses: [10.0.0.1], hostname: one}
- {addresses: [10.0.0.2], hostname: two}
- {addresses: [10.0.0.3]}
---
apiVersion: v1
kind: Service
metadata: {name: alias, namespace: shop}
spec: {type: ExternalName, externalName: api.shop.svc.cluster.local}
---
apiVersion: v1
kind: Service
metadata: {name: alias2, namespace: shop}
spec: {type: ExternalName, externalName: alias.shop.svc.cluster.local}
---
apiVersion: v1
kind: Service
metadata: {name: dangling, namespace: shop}
spec: {type: ExternalName, externalName: none.shop.svc.cluster.local}
---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: shop}
spec: {type: ExternalName, externalName: www.example.org}
`

// clusterQueries are queries of every kind for a cluster.
var clusterQueries = []signedQuery{
	{name: "api.shop.svc.cluster.local.", t: "A", rcode: "NOERROR", count: 1},
	{name: "ApI.Shop.svc.cluster.local.", t: "A", rcode: "NOERROR", count: 1},
	{name: "api.shop.svc.cluster.local.", t: "AAAA", rcode: "NOERROR"},
	{name: "api.shop.svc.cluster.local.", t: "TXT", rcode: "NOERROR"},
	{name: "_http._tcp.api.shop.svc.cluster.local.", t: "SRV", rcode: "NOERROR", count: 1},
	{name: "db.shop.svc.cluster.local.", t: "A", rcode: "NOERROR", count: 3},
	{name: "_sql._tcp.db.shop.svc.cluster.local.", t: "SRV", rcode: "NOERROR", count: 3},
	{name: "one.db.shop.svc.cluster.local.", t: "A", rcode: "NOERROR", count: 1},
	{name: "none.shop.svc.cluster.local.", t: "A", rcode: "NOERROR"},
	{name: "none.shop.svc.cluster.local.", t: "MX", rcode: "NOERROR"},
	{name: "a.b.c.cluster.local.", t: "AAAA", rcode: "NOERROR"},
	{name: "svc.cluster.local.", t: "A", rcode: "NOERROR"},
	{name: "shop.svc.cluster.local.", t: "A", rcode: "NOERROR"},
	{name: "alias.shop.svc.cluster.local.", t: "A", rcode: "NOERROR", count: 2},
	{name: "alias.shop.svc.cluster.local.", t: "CNAME", rcode: "NOERROR", count: 1},
	{name: "alias.shop.svc.cluster.local.", t: "AAAA", rcode: "NOERROR", count: 1},
	{name: "alias2.shop.svc.cluster.local.", t: "A", rcode: "NOERROR", count: 3},
	{name: "dangling.shop.svc.cluster.local.", t: "A", rcode: "NOERROR", count: 1},
	{name: "cluster.local.", t: "SOA", rcode: "NOERROR", count: 1},
	{name: "cluster.local.", t: "NS", rcode: "NOERROR", count: 1},
	{name: "cluster.local.", t: "DNSKEY", rcode: "NOERROR", count: 1},
	{name: "cluster.local.", t: "A", rcode: "NOERROR"},
	{name: "cluster.local.", t: "MX", rcode: "NOERROR"},
	{name: "dns-version.cluster.local.", t: "TXT", rcode: "NOERROR", count: 1},
	{name: "api.shop.svc.cluster.local.", t: "DS", rcode: "NOERROR"},
	{name: "10.0.96.10.in-addr.arpa.", t: "PTR", rcode: "NOERROR", count: 1},
	{name: "10.0.96.10.in-addr.arpa.", t: "TXT", rcode: "NOERROR"},
	{name: "1.0.0.10.in-addr.arpa.", t: "PTR", rcode: "NOERROR", count: 1},
	{name: "9.9.9.10.in-addr.arpa.", t: "PTR", rcode: "NOERROR"},
}

const signedFile = `$TTL 300
@ SOA ns host 1 2 3 4 60
@ NS ns
ns A 192.0.2.53
www A 192.0.2.80
www A 192.0.2.81
www AAAA 2001:db8::80
a.ent TXT "below an empty non-terminal"
*.wild A 192.0.2.90
*.wildname CNAME www
deep.wild A 192.0.2.91
alias CNAME www
alias2 CNAME alias
dangling CNAME none
toany CNAME x.wild
typeless CNAME ns
d DNAME wild
mail MX 10 www
srv SRV 0 0 80 www
text TXT ( "long text" "of several strings" "with \"quotes\"" )
other NS ns.example.com.
unsigned NS ns.unsigned
ns.unsigned A 192.0.2.54
child NS ns.child
ns.child A 192.0.2.55
`

// fileQueries are queries of every kind for signedFile, whose denied names exist for
// dnssec.
var fileQueries = []signedQuery{
	{name: "www.example.org.", t: "A", rcode: "NOERROR", count: 2},
	{name: "www.example.org.", t: "AAAA", rcode: "NOERROR", count: 1},
	{name: "www.example.org.", t: "MX", rcode: "NOERROR"},
	{name: "ent.example.org.", t: "A", rcode: "NOERROR"},
	{name: "a.ent.example.org.", t: "TXT", rcode: "NOERROR", count: 1},
	{name: "x.wild.example.org.", t: "A", rcode: "NOERROR", count: 1},
	{name: "x.y.wild.example.org.", t: "A", rcode: "NOERROR", count: 1},
	{name: "x.wild.example.org.", t: "AAAA", rcode: "NOERROR"},
	{name: "*.wild.example.org.", t: "A", rcode: "NOERROR", count: 1},
	{name: "x.deep.wild.example.org.", t: "A", rcode: "NXDOMAIN"},
	{name: "x.wildname.example.org.", t: "A", rcode: "NOERROR", count: 3},
	{name: "alias.example.org.", t: "A", rcode: "NOERROR", count: 3},
	{name: "alias2.example.org.", t: "A", rcode: "NOERROR", count: 4},
	{name: "toany.example.org.", t: "A", rcode: "NOERROR", count: 2},
	{name: "typeless.example.org.", t: "AAAA", rcode: "NOERROR", count: 1},
	{name: "dangling.example.org.", t: "A", rcode: "NXDOMAIN", count: 1},
	{name: "none.example.org.", t: "A", rcode: "NXDOMAIN"},
	{name: "a.b.none.example.org.", t: "A", rcode: "NXDOMAIN"},
	{name: "x.d.example.org.", t: "A", rcode: "NOERROR", count: 3},
	{name: "mail.example.org.", t: "MX", rcode: "NOERROR", count: 1},
	{name: "srv.example.org.", t: "SRV", rcode: "NOERROR", count: 1},
	{name: "text.example.org.", t: "TXT", rcode: "NOERROR", count: 1},
	{name: "example.org.", t: "SOA", rcode: "NOERROR", count: 1},
	{name: "example.org.", t: "NS", rcode: "NOERROR", count: 1},
	{name: "example.org.", t: "AAAA", rcode: "NOERROR"},
	{name: "unsigned.example.org.", t: "DS", rcode: "NOERROR"},
	{name: "other.example.org.", t: "DS", rcode: "NOERROR"},
	{name: "www.example.org.", t: "DS", rcode: "NOERROR"},
}

// childQueries are queries for zones below signedFile: a signed one, and an unsigned one.
var childQueries = []signedQuery{
	{name: "child.example.org.", t: "DS", rcode: "NOERROR", count: 1},
	{name: "www.child.example.org.", t: "A", rcode: "NOERROR", count: 1},
	{name: "child.example.org.", t: "SOA", rcode: "NOERROR", count: 1},
	{name: "www.unsigned.example.org.", t: "A", rcode: "NOERROR", count: 1, insecure: true},
	{name: "none.unsigned.example.org.", t: "A", rcode: "NXDOMAIN", insecure: true},
}

// denied returns the queries with NOERROR in the place of NXDOMAIN, unless the answer is
// not signed.
func denied(queries []signedQuery) (changed []signedQuery) {
	for _, q := range queries {
		if !q.insecure {
			q.rcode = "NOERROR"
		}
		changed = append(changed, q)
	}
	return changed
}

// Validators accept every kind of answer of a signed cluster and of signed zone files.
func TestOnlineSigningValidates(t *testing.T) {
	for _, c := range []struct {
		name      string
		algorithm uint8
		bits      int
		split     bool
	}{
		{"ECDSA P-256", dns.ECDSAP256SHA256, 256, false},
		{"Ed25519, KSK and ZSK", dns.ED25519, 256, true},
		{"RSA", dns.RSASHA256, 2048, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var keys []*dns.DNSKEY
			options := map[string]string{}
			for _, zone := range []string{"cluster.local.", "example.org.", "child.example.org."} {
				key, path := writeKey(t, dir, zone, 257, c.algorithm, c.bits)
				keys = append(keys, key)
				options[zone] = "key file " + path
				if c.split {
					_, zsk := writeKey(t, dir, zone, 256, c.algorithm, c.bits)
					options[zone] += " " + zsk + ".private"
				}
			}
			writeFile(t, filepath.Join(dir, "db"), signedFile+keys[2].ToDS(dns.SHA256).String()+"\n")
			writeFile(t, filepath.Join(dir, "child"), "@ 60 SOA ns host 1 2 3 4 60\n@ 60 NS ns\nns 60 A 192.0.2.55\nwww 60 A 192.0.2.100\n")
			at := serveSigned(t, fmt.Sprintf(`.:53 {
    kubernetes cluster.local 10.in-addr.arpa {
        $SOURCE
    }
    dnssec cluster.local 10.in-addr.arpa {
        %s
    }
}
example.org:53 {
    root %s
    file db
    dnssec {
        %s
    }
}
child.example.org:53 {
    root %s
    file child
    dnssec {
        %s
    }
}
unsigned.example.org:53 {
    root %s
    file child
}
`, options["cluster.local."], dir, options["example.org."], dir, options["child.example.org."], dir), signedCluster)
			reverse := *keys[0] // a key may sign several zones
			reverse.Hdr.Name = "10.in-addr.arpa."
			anchors := []*dns.DNSKEY{keys[0], &reverse, keys[1]}
			u := startUnbound(t, anchors, map[string]netip.AddrPort{"cluster.local": at, "10.in-addr.arpa": at, "example.org": at, "child.example.org": at, "unsigned.example.org": at})
			cluster := clusterQueries
			if c.split {
				cluster = nil
				for _, q := range clusterQueries {
					if q.t == "DNSKEY" {
						q.count = 2
					}
					cluster = append(cluster, q)
				}
			}
			all := append(append(append([]signedQuery{}, cluster...), denied(fileQueries)...), denied(childQueries)...)
			u.check(t, all)
			if c.algorithm == dns.ECDSAP256SHA256 { // delv takes a tenth of a second for each query
				delv(t, at, anchors, all)
			}
		})
	}
}

// Validators accept every kind of answer of zone files that dnssec-signzone has signed.
func TestSignedFileValidates(t *testing.T) {
	signzone := debian.Program(t, "dnssec-signzone")
	for _, c := range []struct {
		name    string
		options []string
		denial  uint16 // type of the records that prove denials
	}{
		{"NSEC", nil, dns.TypeNSEC},
		{"NSEC3", []string{"-3", "-"}, dns.TypeNSEC3},
		{"NSEC3 with opt-out, salt and iterations", []string{"-3", "aabbccdd", "-H", "5", "-A"}, dns.TypeNSEC3},
		{"NSEC3 with the longest salt", []string{"-3", strings.Repeat("5a", 255)}, dns.TypeNSEC3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			key, path := writeKey(t, dir, "example.org.", 257, dns.ECDSAP256SHA256, 256)
			zsk, zskPath := writeKey(t, dir, "example.org.", 256, dns.ECDSAP256SHA256, 256)
			child, childPath := writeKey(t, dir, "child.example.org.", 257, dns.ECDSAP256SHA256, 256)
			sign := func(zone, file, text, key string, zsks ...string) {
				writeFile(t, filepath.Join(dir, file), text)
				args := append(append([]string{"-o", zone, "-k", key, "-f", file + ".signed"}, c.options...), file)
				if len(zsks) == 0 {
					args = append([]string{"-z"}, args...)
				}
				cmd := exec.Command(signzone, append(args, zsks...)...)
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("dnssec-signzone of %s: %v\n%s", file, err, out)
				}
			}
			sign("example.org", "db", signedFile+child.ToDS(dns.SHA256).String()+"\n"+key.String()+"\n"+zsk.String()+"\n", path, zskPath)
			const childText = "@ 60 SOA ns host 1 2 3 4 60\n@ 60 NS ns\nns 60 A 192.0.2.55\nwww 60 A 192.0.2.100\n"
			sign("child.example.org", "child", childText+child.String()+"\n", childPath)
			writeFile(t, filepath.Join(dir, "unsigned"), childText)
			at := serveSigned(t, fmt.Sprintf(`example.org:53 {
    root %s
    file db.signed
    file child.signed child.example.org
}
unsigned.example.org:53 {
    root %s
    file unsigned
}
`, dir, dir), "")
			keys := []*dns.DNSKEY{key}
			u := startUnbound(t, keys, map[string]netip.AddrPort{"example.org": at, "child.example.org": at, "unsigned.example.org": at})
			queries := append(append([]signedQuery{}, fileQueries...), childQueries...)
			if strings.Contains(c.name, "opt-out") {
				for i, q := range queries {
					// Opt-out does not prove that such a name has no unsigned delegation.
					switch q.name {
					case "none.example.org.", "a.b.none.example.org.", "dangling.example.org.", "unsigned.example.org.", "other.example.org.", "x.deep.wild.example.org.",
						"x.wild.example.org.", "x.y.wild.example.org.", "x.wildname.example.org.", "toany.example.org.", "x.d.example.org.":
						queries[i].insecure = true
					}
				}
			}
			u.check(t, queries)
			if len(c.options) == 2 {
				delv(t, at, keys, queries)
			}
			checkDenials(t, at, c.denial)
		})
	}
}

// checkDenials checks the NSEC or NSEC3 records of negative answers.
func checkDenials(t *testing.T, at netip.AddrPort, denial uint16) {
	t.Helper()
	for _, name := range []string{"none.example.org.", "ent.example.org.", "x.wild.example.org.", "ns.example.org.", "x.other.example.org."} {
		m := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
		m.SetEdns0(1232, true)
		r, _, err := (&dns.Client{Timeout: 20 * time.Second}).Exchange(m, at.String())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		found := 0
		for _, rr := range r.Ns {
			if h := rr.Header(); h.Rrtype == denial {
				found++
			} else if h.Rrtype == dns.TypeNSEC || h.Rrtype == dns.TypeNSEC3 {
				t.Errorf("%s: got %s", name, rr)
			}
		}
		if found == 0 || found > 3 {
			t.Errorf("%s: got %d %s records in\n%v\nwant 1 to 3", name, found, dns.TypeToString[denial], r)
		}
	}
	// Owner names of NSEC3 records do not exist for other queries (RFC 5155 §7.2.8).
	m := new(dns.Msg).SetQuestion("none.example.org.", dns.TypeTXT)
	m.SetEdns0(1232, true)
	r, _, err := (&dns.Client{Timeout: 20 * time.Second}).Exchange(m, at.String())
	if err != nil || denial != dns.TypeNSEC3 {
		return
	}
	for _, rr := range r.Ns {
		if rr.Header().Rrtype == dns.TypeNSEC3 {
			r, _, err := (&dns.Client{Timeout: 20 * time.Second}).Exchange(new(dns.Msg).SetQuestion(rr.Header().Name, dns.TypeNSEC3), at.String())
			if err != nil || r.Rcode != dns.RcodeNameError {
				t.Errorf("%s NSEC3: got error %v and\n%v\nwant NXDOMAIN", rr.Header().Name, err, r)
			}
		}
	}
}
