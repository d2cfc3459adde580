package zone_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// parsed returns a record of a zone file as arguments of Builder.Add.
func parsed(t testing.TB, line string) (owner string, typ wire.Type, ttl uint32, rdata string) {
	t.Helper()
	rr, err := dns.NewRR(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	buf := make([]byte, 1024)
	n, err := dns.PackRR(rr, buf, 0, nil, false)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	r, _ := wire.ReadRecord(buf[:n], 0)
	return string(buf[:r.Head]), r.Type, r.TTL(buf), string(buf[r.RData:r.Next])
}

func addAll(t testing.TB, b *zone.Builder, lines []string) *zone.Zone {
	t.Helper()
	for _, line := range lines {
		owner, typ, ttl, rdata := parsed(t, line)
		if err := b.Add(owner, typ, ttl, rdata); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return b.Zone()
}

// recordsOf returns the records of a zone in lower case, sorted.
func recordsOf(z *zone.Zone) string {
	var all []string
	for r := range z.Records {
		all = append(all, strings.ToLower(fmt.Sprintf("%q", r)))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// pool is records for a zone in any combination.
func pool() (lines []string) {
	for i, name := range []string{"a", "b", "A.b", "c.a.b", "*", "*.a", "x.y.a", "sub.a", "n.sub.a", "m.n.sub.a", "d", "e.d", "f.e.d", "long-name-of-a-host.svc"} {
		for j := range 3 {
			lines = append(lines, fmt.Sprintf("%s.z. 5 A 192.0.2.%d", name, i*3+j), fmt.Sprintf("%s.z. 5 SRV 0 1 %d %s.z.", name, j, []string{"a", "c.a.b", "n.sub.a"}[j]))
		}
		lines = append(lines, fmt.Sprintf("%s.z. 5 NSEC %s.z. A", name, "next"), fmt.Sprintf("%s.z. 9 MX 1 %s.z.", name, name), fmt.Sprintf("%s.z. 5 RRSIG A 13 1 5 20300101000000 20200101000000 1 z. AAAA", name))
	}
	return append(lines, "sub.a.z. 5 NS n.sub.a.z.", "sub.a.z. 5 NS ns.example.", "d.z. 5 DNAME a.z.", "a.z. 5 NS b.z.", "z. 5 NS a.z.", "Z. 5 MX 1 b.z.")
}

// A zone that is made by differences from another version answers as one that is made from
// all records, and the other version does not change.
func TestEdit(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	names := []string{"z.", "no.z.", "*.z.", "y.a.z.", "no.y.a.z.", "no.no.a.z.", "svc.z.", "no.svc.z.", "no.e.d.z.", "no.d.z.", "no.m.n.sub.a.z."}
	lines := pool()
	for _, line := range lines {
		names = append(names, strings.ToLower(strings.Fields(line)[0]))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for seed := range race.Fewer(uint64(40)) {
		rng := rand.New(rand.NewPCG(seed, 1))
		has := map[string]bool{}
		soa := func(serial int) string { return fmt.Sprintf("z. 60 SOA a. b. %d 2 3 4 30", serial) }
		z := addAll(t, zone.NewBuilder("\x01z\x00"), []string{soa(0)})
		for serial := 1; serial <= 30; serial++ {
			before := recordsOf(z)
			old := z
			b := z.Edit()
			add := func(line string) {
				owner, typ, ttl, rdata := parsed(t, line)
				if err := b.Add(owner, typ, ttl, rdata); err != nil {
					t.Fatalf("seed %d: Add(%s): %v", seed, line, err)
				}
			}
			remove := func(line string) {
				owner, typ, _, rdata := parsed(t, line)
				if had, err := b.Remove(owner, typ, rdata); err != nil || !had {
					t.Fatalf("seed %d, version %d: Remove(%s) = %v, %v, want true", seed, serial, line, had, err)
				}
			}
			remove(soa(serial - 1))
			add(soa(serial))
			for range rng.IntN(8) {
				line := lines[rng.IntN(len(lines))]
				if has[line] {
					remove(line)
				} else {
					add(line)
				}
				has[line] = !has[line]
			}
			if z = b.Zone(); recordsOf(old) != before {
				t.Fatalf("seed %d, version %d: the version before has changed", seed, serial)
			}
			all := []string{soa(serial)}
			for line := range maps.Keys(has) {
				if has[line] {
					all = append(all, line)
				}
			}
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			// Signatures without records are dropped.
			want := addAll(t, zone.NewBuilder("\x01z\x00"), all)
			for line := range maps.Keys(has) {
				if owner, typ, _, rdata := parsed(t, line); typ == wire.TypeRRSIG {
					b := want.Edit()
					has[line], _ = b.Has(owner, typ, rdata)
				}
			}
			if got, want := recordsOf(z), recordsOf(want); got != want {
				t.Fatalf("seed %d, version %d: got records that are not wanted, and the reverse:\n%s\n\n%s", seed, serial, without(got, want), without(want, got))
			}
			if z.Bytes() != want.Bytes() || z.Bytes() != sizeOf(z) {
				t.Fatalf("seed %d, version %d: got %d bytes, want %d, and %d of a new zone", seed, serial, z.Bytes(), sizeOf(z), want.Bytes())
			}
			for _, name := range names {
				for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypeMX, dns.TypeNS, dns.TypeDS} {
					got, want := strings.ToLower(ask(t, z, name, qtype, true).text()), strings.ToLower(ask(t, want, name, qtype, true).text())
					if got != want {
						t.Fatalf("seed %d, version %d: %s %s:\ngot\n%s\nwant\n%s", seed, serial, name, dns.Type(qtype), got, want)
					}
				}
			}
		}
	}
}

// without returns the lines of a that b does not have.
func without(a, b string) string {
	lines := strings.Split(b, "\n")
	return strings.Join(slices.DeleteFunc(strings.Split(a, "\n"), func(line string) bool { return slices.Contains(lines, line) }), "\n")
}

// sizeOf returns the bytes of the records.
func sizeOf(z *zone.Zone) (n int) {
	for r := range z.Records {
		n += len(r)
	}
	return n
}

// Queries are answered from one version while others are made from it.
func TestEditConcurrentReaders(t *testing.T) {
	z := largeZone(t, 200)
	want := ask(t, z, "svc0007.ns007.svc.cluster.local.", dns.TypeA, false).text()
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := ask(t, z, "svc0007.ns007.svc.cluster.local.", dns.TypeA, false).text(); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
					return
				}
			}
		})
	}
	next := z
	for i := range 2000 {
		b := next.Edit()
		owner := fmt.Sprintf("\x07svc%04d\x05ns%03d\x03svc\x07cluster\x05local\x00", i%200, i%100)
		if err := b.Add(owner, wire.TypeA, 5, string([]byte{10, 9, byte(i >> 8), byte(i)})); err != nil {
			t.Fatal(err)
		}
		next = b.Zone()
	}
	close(stop)
	readers.Wait()
	if got, want := next.Bytes(), sizeOf(next); got != want || got <= z.Bytes() {
		t.Errorf("got %d bytes after 2000 additions, want %d", got, want)
	}
}

// A difference costs little memory and few allocations, however large the zone is.
func BenchmarkEdit(b *testing.B) {
	z := largeZone(b, 4000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := z.Edit()
		owner := fmt.Sprintf("\x07svc%04d\x05ns%03d\x03svc\x07cluster\x05local\x00", i%4000, i%100)
		if err := e.Add(owner, wire.TypeA, 5, string([]byte{10, 9, byte(i >> 8), byte(i)})); err != nil {
			b.Fatal(err)
		}
		z = e.Zone()
	}
}
