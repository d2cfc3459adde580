package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// An answer is a handler that answers with a response code, by which tests
// identify blocks.
type answer wire.RCode

func (a answer) ServeDNS(q *dns.Query) dns.Verdict { q.RCode = wire.RCode(a); return dns.Done }

// directives returns the directives of these tests: bind, code N, and watch,
// which is an observer.
func directives() []config.Directive {
	return []config.Directive{
		{Name: "bind", Setup: func(b *config.Block, uses []corefile.Directive) error {
			var bound addresses
			for _, a := range uses[0].Args {
				bound = append(bound, config.Address{IP: netip.MustParseAddr(a.Text), From: a})
			}
			b.Offer(bound)
			return nil
		}},
		{Name: "watch", Setup: func(b *config.Block, _ []corefile.Directive) error { b.Offer(new(watcher)); return nil }},
		{Name: "slow", Setup: func(b *config.Block, _ []corefile.Directive) error { b.Handle(newSlow()); return nil }},
		{Name: "code", Setup: func(b *config.Block, uses []corefile.Directive) error {
			code := 0
			err := errors.Join(config.Once(uses), uses[0].Arity(1, 1), corefile.Int(&code, 0, 15)(uses[0]))
			b.Handle(answer(code))
			b.OnPlanned(func() error {
				if code == 13 {
					return uses[0].Errorf("thirteen")
				}
				return nil
			})
			return err
		}},
	}
}

// addresses is the value that bind offers.
type addresses []config.Address

func (a addresses) Bound() []config.Address { return a }

type watcher struct{}

func (*watcher) ObserveDNS(*dns.Query) {}

func options() Options {
	return Options{Directives: directives(), Port: 1053, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry)}
}

func planOf(text string, opts Options) (*Plan, error) {
	servers, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		return nil, err
	}
	return NewPlan(servers, opts)
}

func TestPlanErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown directive", "a {\n cod 1\n}\n", `Corefile:2: unknown directive "cod"; did you mean "code"?`},
		{"one of CoreDNS's, misspelled", "a {\n rout53\n}\n", `Corefile:2: unknown directive "rout53"; did you mean "route53"?`},
		{"removed", "a {\n proxy . 1.1.1.1\n}\n", "Corefile:2: proxy: removed in CoreDNS 1.5, use forward"},
		{"unset variable", "a:{$SEAMARK_PORT} {\n}\n", `Corefile:1: a:: want a port of 0..65535 after the last colon, got ""; environment variable SEAMARK_PORT is not set`},
		{"nothing like it", "a {\n zzzzzz\n}\n", `Corefile:2: unknown directive "zzzzzz"`},
		{"not yet", "a {\n nomad 30\n azure\n}\n", "Corefile:2: nomad: not supported: use hosts or file, with a file that a template of the scheduler writes\nCorefile:3: azure: not supported: use forward to the provider's resolver, or a copy of the zones with file or secondary"},
		{"twice in a block", "a {\n code 1\n code 2\n}\n", "Corefile:3: code: already given at Corefile:2, and can be given once in a server block"},
		{"scheme", "doh://a {\n}\n", `Corefile:1: doh://a: unknown scheme "doh", want dns://, tls://, https://, https3://, quic:// or grpc://`},
		{"CIDR", "10.0.0.0/33 {\n}\n", `Corefile:1: "10.0.0.0/33" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8`},
		{"same zone", "a b {\n}\nb.:1053 {\n}\n", "Corefile:3: b.:1053: zone b. is already served on dns://:1053 by b at Corefile:1"},
		{"same zone in one block", "a A {\n}\n", "Corefile:1: A: zone a. is already served on dns://:1053 by a at Corefile:1"},
		{"same zone by CIDR", "10.0.0.0/23 {\n}\n1.0.10.in-addr.arpa {\n}\n", "Corefile:3: 1.0.10.in-addr.arpa: zone 1.0.10.in-addr.arpa. is already served on dns://:1053 by 10.0.0.0/23 at Corefile:1"},
		{"same zone on one of the addresses", "a {\n bind 127.0.0.1 127.0.0.2\n}\na {\n bind 127.0.0.2\n}\n",
			"Corefile:4: a: zone a. is already served on dns://127.0.0.2:1053 by a at Corefile:1"},
		{"all and one", "a {\n}\nb {\n bind 127.0.0.1\n}\n",
			"Corefile:4: dns://127.0.0.1:1053 and dns://:1053 (Corefile:1) cannot both be listened on: give each of these blocks a bind with single addresses"},
		{"IPv4 wildcard and single", "a {\n bind 127.0.0.1\n}\nb {\n bind 0.0.0.0\n}\n",
			"Corefile:5: dns://0.0.0.0:1053 and dns://127.0.0.1:1053 (Corefile:2) cannot both be listened on: give each of these blocks a bind with single addresses"},
		{"wildcard and IPv4 wildcard", "a {\n}\nb {\n bind 0.0.0.0\n}\n",
			"Corefile:4: dns://0.0.0.0:1053 and dns://:1053 (Corefile:1) cannot both be listened on: give each of these blocks a bind with single addresses"},
		{"second pass", "a {\n code 13\n}\nb {\n code 13\n}\n", "Corefile:2: code: thirteen\nCorefile:5: code: thirteen"},
		{"every error, sorted", "a:x {\n zzzzzz\n code 99\n}\nb {\n code\n}\nb {\n azure\n}\n", strings.Join([]string{
			`Corefile:1: a:x: want a port of 0..65535 after the last colon, got "x"`,
			`Corefile:2: unknown directive "zzzzzz"`,
			`Corefile:3: code: want 0..15, got "99"`,
			"Corefile:6: code: want 1 argument, got 0",
			"Corefile:8: b: zone b. is already served on dns://:1053 by b at Corefile:5",
			"Corefile:9: azure: not supported: use forward to the provider's resolver, or a copy of the zones with file or secondary",
		}, "\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := planOf(c.text, options()); err == nil || err.Error() != c.want {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

func TestPlanFits(t *testing.T) {
	for name, text := range map[string]string{
		"both wildcards, one block":      "a {\n bind :: 0.0.0.0\n}\n",
		"IPv4 wildcard, single IPv6":     "a {\n bind 0.0.0.0\n}\nb {\n bind ::1\n}\n",
		"same zone, two ports":           "a:1 a:2 {\n}\na:3 {\n}\n",
		"same zone, two addresses":       "a {\n bind 127.0.0.1\n}\na {\n bind 127.0.0.2\n}\n",
		"two zones on one address":       "a {\n bind 127.0.0.1\n}\nb {\n bind 127.0.0.1\n}\n",
		"wildcard and single, two ports": "a:1 {\n}\nb:2 {\n bind 127.0.0.1\n}\n",
		"block without directives":       "a {\n}",
	} {
		if _, err := planOf(text, options()); err != nil {
			t.Errorf("%s: got error %v, want none\n%s", name, err, text)
		}
	}
}

func TestDescribe(t *testing.T) {
	p, err := planOf(`cluster.local 10.96.0.0/15:53 {
    watch
    code 1
    slow
    bind 127.0.0.1 ::1
}
example.org {
}
`, options())
	// The second block listens on the wildcard address, which conflicts with
	// 127.0.0.1.
	if err == nil || p != nil {
		t.Fatal("NewPlan returned no error for a wildcard address and 127.0.0.1 on one port")
	}
	p, err = planOf(`cluster.local 10.96.0.0/15:53 {
    watch
    code 1
    slow
    bind 127.0.0.1
}
example.org:5353 {
}
`, options())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := p.Describe(&b); err != nil {
		t.Fatal(err)
	}
	want := `dns://127.0.0.1:1053 zone cluster.local. (Corefile:1)
  slow  makes every query wait
  code  answers at once
  seen by watch
dns://127.0.0.1:53 zone 96.10.in-addr.arpa. (Corefile:1)
  slow  makes every query wait
  code  answers at once
  seen by watch
dns://127.0.0.1:53 zone 97.10.in-addr.arpa. (Corefile:1)
  slow  makes every query wait
  code  answers at once
  seen by watch
dns://:5353 zone example.org. (Corefile:7)
  nothing answers here
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestListenReplacesBind(t *testing.T) {
	opts := options()
	opts.Listen = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:5300")}
	p, err := planOf("a:53 {\n bind 127.0.0.2\n}\nb:54 {\n}\n", opts)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.sites) != 1 || p.sites[0].addr != opts.Listen[0] || len(p.sites[0].routes) != 2 {
		t.Errorf("sites: got %v, want %v with two routes", p.sites, opts.Listen)
	}
}

// The errors of an imported file that is no Corefile show none of its contents, which may be
// secret.
func TestImportHidesContents(t *testing.T) {
	dir := t.TempDir()
	secrets := []string{"saltsalt", "daemon", "TopSecretWord", "19000", "PRIVATE", "bm90IGEga2V5"}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	shadow := write("shadow", "adm:$6$saltsalt$hash:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\nTopSecretWord value {\n TopSecretWord\n}\n")
	key := write("key", "-----BEGIN PRIVATE KEY-----\nbm90IGEga2V5Cg==\n-----END PRIVATE KEY-----\n")
	for _, file := range []string{shadow, key} {
		for _, text := range []string{"a {\n import " + file + "\n}\n", "import " + file + "\n"} {
			read := corefile.ReadText(filepath.Join(dir, "Corefile"), []byte(text))
			err := read.Err
			if err == nil {
				_, err = NewPlan(read.Servers, options())
			}
			if err == nil {
				t.Errorf("%s: got no error", text)
				continue
			}
			for _, secret := range secrets {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s: got error %q, want it without %q", text, err, secret)
				}
			}
		}
	}
}

// Each plugin without a directive is refused with its replacement, and the page for users of CoreDNS has the
// same table.
func TestReplacements(t *testing.T) {
	page, err := os.ReadFile("../docs/how-to/from-coredns.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range replacements {
		names := strings.Fields(r.plugins)
		if row := fmt.Sprintf("\n| `%s` | %s |\n", strings.Join(names, "`, `"), r.advice); !strings.Contains(string(page), row) {
			t.Errorf("from-coredns.md: want the row %s", row)
		}
		for _, name := range names {
			want := fmt.Sprintf("Corefile:2: %s: not supported: %s", name, r.advice)
			if _, err := planOf("a {\n "+name+" x {\n  y\n }\n}\n", options()); err == nil || err.Error() != want || seen[name] {
				t.Errorf("%s (given before: %v): got\n%v\nwant\n%s", name, seen[name], err, want)
			}
			seen[name] = true
		}
	}
	for name := range strings.FieldsSeq(unsupported) {
		if !seen[name] {
			t.Errorf("%s: got no replacement, want one", name)
		}
	}
}
