package dnssec_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// writeKey writes the files of a new key pair.
func writeKey(t *testing.T, dir, name string) *mdns.DNSKEY {
	t.Helper()
	key := &mdns.DNSKEY{Hdr: mdns.RR_Header{Name: "example.org.", Rrtype: mdns.TypeDNSKEY, Class: mdns.ClassINET, Ttl: 60}, Flags: 257, Protocol: 3, Algorithm: mdns.ECDSAP256SHA256}
	private, err := key.Generate(256)
	if err != nil {
		t.Fatal(err)
	}
	for ext, text := range map[string]string{".key": key.String() + "\n", ".private": key.PrivateKeyString(private)} {
		if err := os.WriteFile(filepath.Join(dir, name+ext), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return key
}

// A reload keeps the signatures if zones, keys and capacity are the same, whatever else
// changes. With another key each is made again.
func TestReloadKeepsSignatures(t *testing.T) {
	const names = 40
	dir := t.TempDir()
	first, second := writeKey(t, dir, "first"), writeKey(t, dir, "second")
	if err := os.WriteFile(filepath.Join(dir, "db"), []byte(zoneText), 0o600); err != nil {
		t.Fatal(err)
	}
	registry := new(metrics.Registry)
	var plan *server.Plan
	t.Cleanup(func() { plan.Stop(t.Context()) })
	at := netip.MustParseAddrPort("127.0.0.1:0")
	var addr string
	load := func(key, options, more string) {
		t.Helper()
		text := fmt.Sprintf("example.org:53 {\n root %s\n file db\n dnssec {\n key file %s\n%s\n}\n%s\n}\n", dir, key, options, more)
		blocks, err := corefile.Parse("Corefile", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		next, err := server.NewPlan(blocks, server.Options{Directives: builtin.Directives(), Listen: []netip.AddrPort{at}, Log: slog.New(slog.DiscardHandler), Metrics: registry})
		if err == nil {
			err = next.Start(t.Context(), plan)
		}
		if err != nil {
			t.Fatal(err)
		}
		plan = next
		addr = plan.Addresses()[0].String()
	}
	// ask returns the signatures of all answers, positive and negative ones.
	ask := func(key *mdns.DNSKEY) (signatures []string) {
		t.Helper()
		for i := range names {
			for _, name := range []string{fmt.Sprintf("n%d.any.example.org.", i), fmt.Sprintf("n%d.none.example.org.", i)} {
				r, _, err := (&mdns.Client{Timeout: 20 * time.Second}).Exchange(query(name, mdns.TypeA), addr)
				if err != nil {
					t.Fatal(err)
				}
				records := append(r.Answer, r.Ns...)
				verify(t, key, records)
				for _, rr := range records {
					if sig, ok := rr.(*mdns.RRSIG); ok {
						signatures = append(signatures, sig.Hdr.Name+" "+sig.Signature)
					}
				}
			}
		}
		if len(signatures) < 2*names {
			t.Fatalf("got %d signatures, want %d at least", len(signatures), 2*names)
		}
		return signatures
	}
	metric := func(name string) (value int) {
		t.Helper()
		var text strings.Builder
		if err := registry.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if rest, ok := strings.CutPrefix(line, name+"{"); ok {
				if _, err := fmt.Sscan(rest[strings.Index(rest, "} ")+2:], &value); err != nil {
					t.Fatal(err)
				}
			}
		}
		return value
	}
	const entries, misses = "coredns_dnssec_cache_entries", "coredns_dnssec_cache_misses_total"

	load("first", "cache_capacity 1000", "")
	made := ask(first)
	// A name has its own signature, and all denials have that of the SOA record.
	if got := metric(entries); got != 2*names+1 {
		t.Errorf("got %d signatures in the store, want %d", got, 2*names+1)
	}
	before := metric(misses)
	for i, more := range []string{"", "loadbalance", "chaos 1 a\nfile db example.net"} {
		load("first", "cache_capacity 1000", more)
		if got := metric(entries); got != 2*names+1 {
			t.Errorf("reload %d: got %d signatures in the store, want %d", i, got, 2*names+1)
		}
		for j, got := range ask(first) {
			if got != made[j] {
				t.Errorf("reload %d: got signature %s, want the same as before, %s", i, got, made[j])
			}
		}
		if got := metric(misses); got != before {
			t.Errorf("reload %d: %d RRsets were signed, want none", i, got-before)
		}
	}
	load("second", "cache_capacity 1000", "")
	if got := metric(entries); got != 0 {
		t.Errorf("another key: got %d signatures in the store, want none", got)
	}
	ask(second)
	if got := metric(misses) - before; got != 2*names+1 {
		t.Errorf("another key: %d RRsets were signed, want %d", got, 2*names+1)
	}
}
