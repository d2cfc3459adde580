package signing

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

// newKey returns a key pair, and the text of its private file.
func newKey(t testing.TB, algorithm uint8, bits int) (*dns.DNSKEY, string) {
	t.Helper()
	key := &dns.DNSKEY{Hdr: dns.RR_Header{Name: "example.org.", Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET, Ttl: 60}, Flags: 257, Protocol: 3, Algorithm: algorithm}
	private, err := key.Generate(bits)
	if err != nil {
		t.Fatal(err)
	}
	return key, key.PrivateKeyString(private)
}

func readKey(t testing.TB, public *dns.DNSKEY, private string) (*Key, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k")
	for name, text := range map[string]string{path + ".key": public.String() + "\n", path + ".private": private} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ReadKey(path)
}

// Signatures of every algorithm are those of miekg/dns, also of names that look like
// wildcards.
func TestSign(t *testing.T) {
	for algorithm, bits := range map[uint8]int{
		dns.RSASHA1: 1024, dns.RSASHA256: 1024, dns.RSASHA512: 1024, dns.ECDSAP256SHA256: 256, dns.ECDSAP384SHA384: 384, dns.ED25519: 256,
	} {
		public, private := newKey(t, algorithm, bits)
		k, err := readKey(t, public, private)
		if err != nil {
			t.Errorf("%s: %v", dns.AlgorithmToString[algorithm], err)
			continue
		}
		for owner, labels := range map[wire.Name]uint8{
			"\x07example\x03org\x00": 2, "\x03www\x07example\x03org\x00": 3, "\x01*\x07example\x03org\x00": 2, "\x02*a\x07example\x03org\x00": 3,
		} {
			set := RRset{Owner: owner, Type: wire.TypeTXT, TTL: 60, RData: []string{"\x01b", "\x01a"}}
			rdata, err := k.Sign(set, Validity{Signer: "\x07example\x03org\x00", Inception: 1, Expiration: 2})
			if err != nil {
				t.Errorf("%s: signing %s: %v", dns.AlgorithmToString[algorithm], owner, err)
				continue
			}
			msg := append(wire.AppendRecordHeader(nil, string(owner), wire.TypeRRSIG, 60, len(rdata)), rdata...)
			rr, _, err := dns.UnpackRR(msg, 0)
			if err != nil {
				t.Fatal(err)
			}
			sig := rr.(*dns.RRSIG)
			rrs, _ := set.unpack()
			sig.Hdr.Name = rrs[0].Header().Name // they may be spelled with different escapes
			if err := sig.Verify(public, rrs); err != nil || sig.Labels != labels || sig.Inception != 1 || sig.Expiration != 2 || sig.OrigTtl != 60 {
				t.Errorf("%s: %s: got %v with error %v, want a valid signature with %d labels from 1 to 2", dns.AlgorithmToString[algorithm], owner, sig, err, labels)
			}
		}
	}
}

func TestDS(t *testing.T) {
	public, private := newKey(t, dns.ED25519, 256)
	k, err := readKey(t, public, private)
	if err != nil {
		t.Fatal(err)
	}
	ds := public.ToDS(dns.SHA256)
	want, err := pack(ds)
	if got := k.ds("\x07example\x03org\x00"); err != nil || got != want {
		t.Errorf("DS: got %x, want %x", got, want)
	}
}

func TestAppendNSEC(t *testing.T) {
	for _, types := range [][]uint16{{1}, {1, 2, 15, 46, 47}, {47, 255, 256, 257}, {1, 1024, 65535}, {}} {
		want, err := pack(&dns.NSEC{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeNSEC, Class: 1}, NextDomain: "a.b.", TypeBitMap: types})
		if err != nil {
			t.Fatal(err)
		}
		var list []wire.Type
		for _, n := range types {
			list = append(list, wire.Type(n))
		}
		if got := AppendNSEC(nil, "\x01a\x01b\x00", list); string(got) != want {
			t.Errorf("NSEC of %v: got %x, want %x", types, got, want)
		}
	}
}

// No text makes ReadKey panic, and what it accepts can sign.
func FuzzPrivate(f *testing.F) {
	var keys []*dns.DNSKEY
	for _, c := range []struct {
		algorithm uint8
		bits      int
	}{{dns.RSASHA256, 1024}, {dns.ECDSAP256SHA256, 256}, {dns.ED25519, 256}} {
		public, private := newKey(f, c.algorithm, c.bits)
		keys = append(keys, public)
		f.Add(private)
	}
	f.Add("Private-key-format: v1.3\nAlgorithm: 8 (RSASHA256)\n")
	f.Add("Private-key-format: v1.3\nAlgorithm: 13\n")
	f.Add("Private-key-format: v1.3\nAlgorithm: 15\nPrivateKey: AA==\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, key := range slices.Clone(keys) {
			if private := parsePrivate(key, text); private != nil {
				k := Key{public: key, private: private, Tag: key.KeyTag()}
				_, _ = k.Sign(RRset{Owner: wire.Root, Type: wire.TypeTXT, TTL: 1, RData: []string{"\x01a"}}, Validity{Signer: wire.Root})
			}
		}
	})
}
