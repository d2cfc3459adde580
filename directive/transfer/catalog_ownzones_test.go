package transfer_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	mdns "github.com/miekg/dns"
)

// An upstream's records for names in a member zone are not accepted as long as the catalog
// lists the zone.
func TestCatalogMemberOwnZone(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	upstream, at := freePort(t), freePort(t)
	forged := filepath.Join(t.TempDir(), "db")
	write(t, forged, "@ 60 SOA ns. host. 1 2 3 4 5\nalias.test. 60 CNAME www.member.example.\nwww.member.example. 60 A 198.51.100.66\n")
	run(t, upstream, fmt.Sprintf(". {\n file %s\n}", forged))
	p := newCatalogPrimary(t, at)
	p.write(t, "member.example", "www A 192.0.2.1")
	p.catalog(t, "catalog.invalid", nil)
	log := run(t, at, fmt.Sprintf(". {\n secondary catalog.invalid {\n transfer from %s\n catalog\n}\n forward . %s\n}", p.at, upstream))
	for _, c := range []struct {
		members map[string]string
		want    string
	}{{nil, "198.51.100.66"}, {map[string]string{"one": "member.example"}, "192.0.2.1"}, {nil, "198.51.100.66"}} {
		p.catalog(t, "catalog.invalid", c.members)
		eventually(t, func() string {
			if got := alias(at); got != c.want {
				return fmt.Sprintf("members %v: got %s, want %s\n%s", c.members, got, c.want, log)
			}
			return ""
		})
	}
}

// alias returns the address at the end of alias.test's CNAME chain.
func alias(at netip.AddrPort) string {
	r, err := exchange(new(mdns.Msg).SetQuestion("alias.test.", mdns.TypeA), at)
	if err != nil {
		return err.Error()
	}
	for _, record := range r.Answer {
		if a, ok := record.(*mdns.A); ok {
			return a.A.String()
		}
	}
	return mdns.RcodeToString[r.Rcode]
}
