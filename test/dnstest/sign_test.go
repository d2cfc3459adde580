package dnstest

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/debian"
)

// Validators accept zone files that sign has signed, and every kind of answer from them.
func TestSignValidates(t *testing.T) {
	verify, ldns := debian.Program(t, "dnssec-verify"), debian.Program(t, "ldns-verify-zone")
	for _, c := range []struct {
		name      string
		algorithm uint8
		bits      int
	}{
		{"ECDSA P-256", dns.ECDSAP256SHA256, 256},
		{"ECDSA P-384", dns.ECDSAP384SHA384, 384},
		{"Ed25519", dns.ED25519, 256},
		{"RSA", dns.RSASHA256, 2048},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			key, _ := writeKey(t, dir, "example.org.", 257, c.algorithm, c.bits)
			second, _ := writeKey(t, dir, "example.org.", 257, c.algorithm, c.bits)
			child, _ := writeKey(t, dir, "child.example.org.", 257, c.algorithm, c.bits)
			writeFile(t, filepath.Join(dir, "db"), signedFile+child.ToDS(dns.SHA256).String()+`
child A 192.0.2.56
below.unsigned AAAA 2001:db8::56
below.d A 192.0.2.57
long TXT "`+strings.Repeat("0123456789", 25)+`" "`+strings.Repeat("\\200\\\" ;", 40)+`"
*.ent2.ent2 MX 10 www
a\.b\\c\@ TXT ""
*a TXT "no wildcard"
\007 TYPE65280 \# 2 0a0b
Upper.Case CAA 0 issue "ca.example"
other2 NS ns.example.com.
other2 DS 1 13 2 0000000000000000000000000000000000000000000000000000000000000001
`)
			const childText = "@ 60 SOA ns host 1 2 3 4 60\n@ 60 NS ns\nns 60 A 192.0.2.55\nwww 60 A 192.0.2.100\n"
			writeFile(t, filepath.Join(dir, "child"), childText)
			writeFile(t, filepath.Join(dir, "unsigned"), childText)
			at := serveSigned(t, fmt.Sprintf(`example.org:53 {
    root %s
    file db.example.org.signed
    sign db {
        key directory .
        directory .
    }
    file db.child.example.org.signed child.example.org
    sign child child.example.org {
        key directory .
        directory .
    }
}
unsigned.example.org:53 {
    root %s
    file unsigned
}
`, dir, dir), "")
			signed := filepath.Join(dir, "db.example.org.signed")
			for _, cmd := range [][]string{{verify, "-z", "-o", "example.org", signed}, {ldns, signed}} {
				if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", cmd, err, out)
				}
			}
			keys := []*dns.DNSKEY{key, second}
			queries := append(append([]signedQuery{
				{name: "example.org.", t: "DNSKEY", rcode: "NOERROR", count: 2},
				{name: "example.org.", t: "CDS", rcode: "NOERROR", count: 2},
				{name: "example.org.", t: "CDNSKEY", rcode: "NOERROR", count: 2},
				{name: "long.example.org.", t: "TXT", rcode: "NOERROR", count: 1},
				{name: "x.ent2.ent2.example.org.", t: "MX", rcode: "NOERROR", count: 1},
				{name: "x.ent2.example.org.", t: "MX", rcode: "NXDOMAIN"},
				{name: "\\*a.example.org.", t: "TXT", rcode: "NOERROR", count: 1},
				{name: "other2.example.org.", t: "DS", rcode: "NOERROR", count: 1},
				{name: "upper.case.example.org.", t: "CAA", rcode: "NOERROR", count: 1},
			}, fileQueries...), childQueries...)
			u := startUnbound(t, keys, map[string]netip.AddrPort{"example.org": at, "child.example.org": at, "unsigned.example.org": at})
			u.check(t, queries)
			if c.algorithm == dns.ECDSAP256SHA256 { // delv takes a tenth of a second for each query
				delv(t, at, keys, queries)
			}
			checkDenials(t, at, dns.TypeNSEC)
		})
	}
}

// Auto serves the zone files that sign writes: from the first query on, and when a zone is
// signed again. Each answer meanwhile is valid, and so are all kinds of answers afterwards.
func TestSignAuto(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	dir := t.TempDir()
	key, _ := writeKey(t, dir, "example.org.", 257, dns.ECDSAP256SHA256, 256)
	child, _ := writeKey(t, dir, "child.example.org.", 257, dns.ECDSAP256SHA256, 256)
	text := signedFile + child.ToDS(dns.SHA256).String() + "\n"
	writeFile(t, filepath.Join(dir, "db"), text)
	const childText = "@ 60 SOA ns host 1 2 3 4 60\n@ 60 NS ns\nns 60 A 192.0.2.55\nwww 60 A 192.0.2.100\n"
	writeFile(t, filepath.Join(dir, "child"), childText)
	writeFile(t, filepath.Join(dir, "unsigned"), childText)
	at := serveSigned(t, strings.ReplaceAll(`example.org:53 {
    root DIR
    auto {
        directory DIR ^db\.(.*)\.signed$ {1}
    }
    sign db {
        key directory .
        directory .
    }
    sign child child.example.org {
        key directory .
        directory .
    }
}
unsigned.example.org:53 {
    root DIR
    file unsigned
}
`, "DIR", dir), "")
	keys := []*dns.DNSKEY{key}
	delv(t, at, keys, []signedQuery{{name: "text.example.org.", t: "TXT"}}) // the first query
	queries := append(append([]signedQuery{}, fileQueries...), childQueries...)
	all := map[string]netip.AddrPort{"example.org": at, "child.example.org": at, "unsigned.example.org": at}
	startUnbound(t, keys, all).check(t, queries)

	ask := func(name string) *dns.Msg {
		t.Helper()
		m := new(dns.Msg).SetQuestion(name, dns.TypeA)
		m.SetEdns0(4096, true)
		r, _, err := (&dns.Client{Timeout: 20 * time.Second}).Exchange(m, at.String())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, address := range []string{"192.0.2.82", "192.0.2.83"} {
		writeFile(t, filepath.Join(dir, "new"), text+"added A "+address+"\n")
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "db")); err != nil {
			t.Fatal(err)
		}
		checked := 0
		for end := time.Now().Add(time.Minute); ; checked++ {
			r := ask("added.example.org.")
			if len(r.Answer) == 2 && r.Answer[0].(*dns.A).A.String() == address {
				break
			}
			if r.Rcode != dns.RcodeNameError && r.Rcode != dns.RcodeSuccess || time.Now().After(end) {
				t.Fatalf("got\n%v\nwant the old answer or, within a minute, %s", r, address)
			}
			if checked%10 == 0 {
				delv(t, at, keys, []signedQuery{{name: "www.example.org.", t: "A"}, {name: "none.example.org.", t: "A"}})
			}
		}
		delv(t, at, keys, append(queries, signedQuery{name: "added.example.org.", t: "A"}))
	}
	startUnbound(t, keys, all).check(t, append(queries, signedQuery{name: "added.example.org.", t: "A", rcode: "NOERROR", count: 1}))
}
