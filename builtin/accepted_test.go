package builtin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// Each syntax that the documentation of the directives describes is accepted.
func TestAccepted(t *testing.T) {
	groups := groupsOf(t, "testdata/accepted.txt")
	t.Chdir(folder(t))
	used := map[string]bool{}
	for _, g := range groups {
		blocks, err := planned(".:1053 {\n" + g + "\n}\n")
		if err != nil {
			t.Errorf("got error %v, want none\n%s", err, g)
			continue
		}
		for _, d := range blocks[0].Directives {
			used[d.Text] = true
		}
	}
	for _, d := range Directives() {
		if !used[d.Name] {
			t.Errorf("testdata/accepted.txt has no use of %s: add one", d.Name)
		}
	}
}

// Each form of a whole Corefile is accepted, also without a final newline, and
// with a byte order mark and CRLF.
func TestAcceptedCorefiles(t *testing.T) {
	groups := groupsOf(t, "testdata/corefiles.txt")
	t.Chdir(folder(t))
	for name, value := range map[string]string{"ZONE": "example.org", "PORT": "1053", "UPSTREAM": "192.0.2.53", "WORD": "hello", "TTL": "30"} {
		t.Setenv(name, value)
	}
	for _, g := range groups {
		for _, text := range []string{g + "\n", g, "\ufeff" + strings.ReplaceAll(g, "\n", "\r\n")} {
			if _, err := planned(text); err != nil {
				t.Errorf("got error %v, want none\n%q", err, text)
			}
		}
	}
}

// Each mistake has an error that names the position and the expected words.
func TestRefused(t *testing.T) {
	groups := groupsOf(t, "testdata/refused.txt")
	t.Chdir(folder(t))
	for _, g := range groups {
		text, want, found := strings.Cut(g, "\n! ")
		if !found {
			t.Fatalf("testdata/refused.txt: no line begins with ! in\n%s", g)
		}
		_, err := planned(text + "\n")
		if got := fmt.Sprint(err); got != strings.ReplaceAll(want, "\n! ", "\n") {
			t.Errorf("got\n! %[2]s\nwant\n%[1]s", g, strings.ReplaceAll(got, "\n", "\n! "))
		}
	}
}

// groupsOf returns the groups of lines in a file, without comments.
func groupsOf(t *testing.T, file string) (groups []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for g := range strings.SplitSeq(string(text), "\n\n") {
		if g = strings.Trim(g, "\n"); g != "" && g[0] != '#' {
			groups = append(groups, g)
		}
	}
	return groups
}

// planned parses and plans a Corefile, as the command check does.
func planned(text string) ([]corefile.Server, error) {
	blocks, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		return nil, err
	}
	_, err = planOf(text)
	return blocks, err
}

func planOf(text string) (*server.Plan, error) {
	blocks, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		return nil, err
	}
	return server.NewPlan(blocks, server.Options{
		Directives: withInterfaces(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry),
	})
}

// withInterfaces returns the directives on a machine with the interfaces lo and
// eth0.
func withInterfaces() []config.Directive {
	list := Directives()
	bind := slices.IndexFunc(list, func(d config.Directive) bool { return d.Name == "bind" })
	list[bind].Setup = directive.BindWith(func(name string) ([]netip.Addr, error) {
		return map[string][]netip.Addr{
			"lo":   {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
			"eth0": {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fe80::1%eth0")},
		}[name], nil
	})
	return list
}

// folder returns a directory with the files that the Corefiles of the tests name.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t)
	database(t, filepath.Join(dir, "city.mmdb"), "GeoLite2-City", nil)
	database(t, filepath.Join(dir, "asn.mmdb"), "GeoLite2-ASN", nil)
	for name, text := range map[string]string{
		"path.conf":     "nameserver 192.0.2.53\nsearch example.org example.net\n",
		"example.hosts": "192.0.2.1 www.example.org\n",
		"weights":       "www.example.org\n192.0.2.1 3\n",
		"secret":        "root:$6$salt$HUNTER2:19000:0:99999:7:::\nlgo:HUNTER2\nlog {\n HUNTER2\n}\nview\n",
		"kubeconfig":    "apiVersion: v1\nkind: Config\n",
		"cert.pem":      cert, "key.pem": key, "ca.pem": cert,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// certificate returns a self-signed certificate and its key.
func certificate(t *testing.T) (cert, key string) { return certificateFor(t, time.Hour) }

func certificateFor(t *testing.T, valid time.Duration) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "dns.example"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid), DNSNames: []string{"dns.example"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return text("CERTIFICATE", der), text("PRIVATE KEY", secret)
}
