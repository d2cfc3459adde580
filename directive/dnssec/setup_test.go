package dnssec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/test/chaintest"
)

// writeKey writes the files of a new key pair, DIR/NAME.key and DIR/NAME.private.
func writeKey(t testing.TB, path, zone string, flags uint16, algorithm uint8, bits int) *mdns.DNSKEY {
	t.Helper()
	key := &mdns.DNSKEY{Hdr: mdns.RR_Header{Name: zone, Rrtype: mdns.TypeDNSKEY, Class: mdns.ClassINET, Ttl: 60}, Flags: flags, Protocol: 3, Algorithm: algorithm}
	private, err := key.Generate(bits)
	if err != nil {
		t.Fatalf("generating a key: %v", err)
	}
	writeFile(t, path+".key", key.String()+"\n")
	writeFile(t, path+".private", key.PrivateKeyString(private))
	return key
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func plan(text string) (*config.Block, error) {
	return chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "dnssec", Setup: Setup})
}

func TestSetupErrors(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	writeKey(t, path("good"), "example.org.", 257, mdns.ECDSAP256SHA256, 256)
	writeKey(t, path("other"), "example.org.", 257, mdns.ECDSAP256SHA256, 256)
	writeKey(t, path("net"), "example.net.", 257, mdns.ECDSAP256SHA256, 256)
	writeKey(t, path("rsa"), "example.org.", 257, mdns.RSASHA256, 1024)
	public := func(name, rdata string) {
		writeFile(t, path(name+".key"), "example.org. IN DNSKEY "+rdata+"\n")
		writeFile(t, path(name+".private"), "Private-key-format: v1.3\n")
	}
	public("ed448", "257 3 16 3kgROaDjrh0H2iuixWBrc8g2EpBBLCdGzHmn+G2MpTPhpj/OiBVHHSfPodx1FYYUcJKm1MDpJtIA")
	public("host", "0 3 13 5E7UDhpKsmPYwDT1sAQrOUWMzLwOlowfBxO9bPPVLplhdzL28Onn5dX4SW88eKJ33/uab709xuvtReOdIBp1lg==")
	public("revoked", "385 3 13 5E7UDhpKsmPYwDT1sAQrOUWMzLwOlowfBxO9bPPVLplhdzL28Onn5dX4SW88eKJ33/uab709xuvtReOdIBp1lg==")
	writeFile(t, path("address.key"), "\nexample.org. IN A 192.0.2.1\n")
	writeFile(t, path("bad.key"), "example.org. IN DNSKEY 257 3 13\n")
	writeFile(t, path("empty.key"), "; nothing\n")
	for name, from := range map[string]string{"mismatch": "good", "cross": "rsa", "public": "good", "directory": "good", "garbage": "good"} {
		text, _ := os.ReadFile(path(from + ".key"))
		writeFile(t, path(name+".key"), string(text))
	}
	for name, from := range map[string]string{"mismatch": "other", "cross": "good"} {
		text, _ := os.ReadFile(path(from + ".private"))
		writeFile(t, path(name+".private"), string(text))
	}
	writeFile(t, path("garbage.private"), "no key\n")
	if err := os.Mkdir(path("directory.private"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ directive, want string }{
		{"dnssec", "Corefile:2: dnssec: no key: make one with dnssec-keygen -a ECDSAP256SHA256 -f KSK example.org., and add a line: key file FILE"},
		{"dnssec {\n key file $/good\n}\ndnssec {\n key file $/good\n}", "Corefile:5: dnssec: already given at Corefile:2, and can be given once in a server block"},
		{"dnssec {\n key\n}", "Corefile:3: dnssec: key: got no arguments, usage: key file KEY..."},
		{"dnssec {\n key file\n}", "Corefile:3: dnssec: key: got 1 argument, usage: key file KEY..."},
		{"dnssec {\n key directory /tmp\n}", `Corefile:3: dnssec: key: want file, got "directory"`},
		{"dnssec {\n key aws_secretsmanager a\n}", "Corefile:3: dnssec: key: aws_secretsmanager is not supported: write the keys to files, and name them after key file"},
		{"dnssec {\n key file $/none\n}", "Corefile:3: dnssec: key: $/none.key: no such file or directory"},
		{"dnssec {\n key file $/public\n}", "Corefile:3: dnssec: key: reading $/public.private: no such file or directory"},
		{"dnssec {\n key file $/directory\n}", "Corefile:3: dnssec: key: reading $/directory.private: a directory"},
		{"dnssec {\n key file $/garbage\n}", "Corefile:3: dnssec: key: $/garbage.private: want a private key for the algorithm ECDSAP256SHA256 as dnssec-keygen writes it"},
		{"dnssec {\n key file $/mismatch\n}", "Corefile:3: dnssec: key: $/mismatch.private: the private key does not belong to $/mismatch.key: copy both files of one key pair"},
		{"dnssec {\n key file $/cross\n}", "Corefile:3: dnssec: key: $/cross.private: want a private key for the algorithm RSASHA256 as dnssec-keygen writes it"},
		{"dnssec {\n key file $/net.key\n}", "Corefile:3: dnssec: key: $/net is a key of example.net., which is in none of the zones: make one for example.org., or add the zone after dnssec"},
		{"dnssec {\n key file $/ed448.private\n}", "Corefile:3: dnssec: key: $/ed448.key:1: algorithm 16 (ED448) is not supported: make a key with dnssec-keygen -a ECDSAP256SHA256"},
		{"dnssec {\n key file $/host\n}", "Corefile:3: dnssec: key: $/host.key:1: flags 0: not the key of a zone: make one with dnssec-keygen"},
		{"dnssec {\n key file $/revoked\n}", "Corefile:3: dnssec: key: $/revoked.key:1: the key is revoked: remove it"},
		{"dnssec {\n key file $/address\n}", "Corefile:3: dnssec: key: $/address.key:2: want a DNSKEY record, got A"},
		{"dnssec {\n key file $/bad\n}", "Corefile:3: dnssec: key: $/bad.key:1: malformed DNSKEY record"},
		{"dnssec {\n key file $/empty\n}", "Corefile:3: dnssec: key: $/empty.key: want a DNSKEY record, got nothing"},
		{"dnssec {\n key file $/good\n cache_capacity 0\n}", `Corefile:4: dnssec: cache_capacity: want 1..1000000, got "0"`},
		{"dnssec {\n key file $/good\n nsec3\n}", `Corefile:4: dnssec: unknown option "nsec3"`},
	} {
		_, err := plan("example.org:53 {\n" + strings.ReplaceAll(c.directive, "$", dir) + "\n}\n")
		if want := strings.ReplaceAll(c.want, "$", dir); err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", c.directive, err, want)
		}
	}
	if _, err := plan(fmt.Sprintf("example.org:53 {\ndnssec {\n key file %s %s.private\n}\n}\n", path("good"), path("rsa"))); err != nil {
		t.Errorf("two good keys: got %v, want no error", err)
	}
}

func TestSetupWeakAlgorithm(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sha1")
	writeKey(t, path, "example.org.", 257, mdns.RSASHA1, 1024)
	b, err := plan("example.org:53 {\ndnssec {\n key file " + path + "\n}\n}\n")
	want := "Corefile:3: dnssec: key: " + path + " has the algorithm RSASHA1, which resolvers may not accept: make a key with dnssec-keygen -a ECDSAP256SHA256"
	if got := b.Warnings(); err != nil || len(got) != 1 || got[0].Error() != want {
		t.Errorf("got error %v and warnings %v\nwant only the warning %s", err, got, want)
	}
}
