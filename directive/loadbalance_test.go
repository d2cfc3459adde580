package directive

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	seamark "github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

func find[T any](r *testBlock) []T { return config.Find[T](r.block) }

// octets sends one query and returns the last bytes of the addresses, in order.
func (r *testBlock) octets() string {
	var m dns.Msg
	if err := m.Unpack(r.exchange(packet(r.t, "www.example.org", wire.TypeA), seamark.UDP, client)); err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for _, rr := range m.Answer {
		b.WriteByte('0' + rr.(*dns.A).A[3])
	}
	return b.String()
}

// Each record is sometimes the first, and the order of the records is a rotation.
func TestLoadbalanceRotation(t *testing.T) {
	for _, text := range []string{"loadbalance", "loadbalance round_robin"} {
		r := run(t, ".:53 {\n"+text+"\n}")
		r.addBelow(&addressHandler{4})
		seen := map[string]int{}
		for range 200 {
			seen[r.octets()]++
		}
		if len(seen) != 4 || seen["0123"]*seen["1230"]*seen["2301"]*seen["3012"] == 0 {
			t.Errorf("got %v, want the four rotations of 0123", seen)
		}
	}
}

func TestLoadbalancePrefer(t *testing.T) {
	for options, front := range map[string]string{
		"prefer 192.0.2.2/32":                               "2",
		"prefer 192.0.2.3/32 192.0.2.0/32":                  "30",
		"prefer 192.0.2.1/32 fd00::/8\nprefer 192.0.2.0/31": "10",
	} {
		r := run(t, ".:53 {\nloadbalance {\n"+options+"\n}\n}")
		r.addBelow(&addressHandler{4})
		for range 20 {
			if got := r.octets(); !strings.HasPrefix(got, front) || len(got) != 4 {
				t.Errorf("%s: got %s, want %s first", options, got, front)
			}
		}
	}
}

// Zone transfers and errors are not reordered.
func TestLoadbalanceUnchanged(t *testing.T) {
	for _, c := range []struct {
		qtype wire.Type
		code  wire.RCode
	}{{wire.TypeAXFR, 0}, {wire.TypeIXFR, 0}, {wire.TypeA, wire.ServFail}} {
		q, l := seamark.NewQuery(nil), &Loadbalance{}
		q.Type, q.RCode = c.qtype, c.code
		q.Answer.Reset(nil, []byte("\x00\x00\x01\x00\x01"))
		(&addressHandler{200}).ServeDNS(q)
		before := string(q.Answer.Buf)
		for range 5 {
			if l.FinishDNS(q); string(q.Answer.Buf) != before {
				t.Errorf("%v, %v: the order of the records changed", c.qtype, c.code)
			}
		}
	}
}

// An address with weight 200 is nearly always before two of weight 1, and the others
// keep their order.
func TestLoadbalanceWeighted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(file, []byte("# a comment\nwww.Example.org. # and one\n\n192.0.2.1 200\nother.example.org\n192.0.2.2 255\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, ".:53 {\nloadbalance weighted "+file+"\n}")
	r.addBelow(&addressHandler{3})
	seen := map[string]int{}
	for range 2000 {
		seen[r.octets()]++
	}
	// Of 2000, 1980 are expected; 1900 is more than fifteen standard deviations less.
	if len(seen) > 3 || seen["102"] < 1900 || seen["102"] == 2000 || seen["012"]+seen["102"]+seen["201"] != 2000 {
		t.Errorf("got %v, want 102 nearly always, and otherwise 012 or 201", seen)
	}
}

// A file that is missing at the start is a warning. A new or changed one applies after the next check; a wrong
// one does not.
func TestLoadbalanceReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weights")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b, err := plan(t, ".:53 {\nloadbalance weighted "+file+" {\nreload 5s\n}\n}")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(b.Warnings()); !strings.Contains(got, "Corefile:2: loadbalance: reading weights: open "+file) {
			t.Errorf("without the file: got the warnings %s", got)
		}
		start := config.NewStart(context.Background(), nil)
		if err := b.Started(start); err != nil {
			t.Fatal(err)
		}
		defer start.Stop()
		w := config.Find[*Loadbalance](b)[0].weights
		for _, c := range []struct{ text, want string }{
			{"www.example.org\n192.0.2.1 7\n", "7"},
			{"www.example.org\n192.0.2.1 x\n", "7"},
			{"", "7"},
			{"www.example.org\n192.0.2.1 8\n", "8"},
		} {
			write(c.text)
			time.Sleep(6 * time.Second)
			synctest.Wait()
			if got := fmt.Sprint((*w.current.Load())["\x03www\x07example\x03org\x00"][netip.MustParseAddr("192.0.2.1")]); got != c.want {
				t.Errorf("%q: got weight %s, want %s", c.text, got, c.want)
			}
		}
	})
}

// A reload while the file is missing keeps the last good weights, also with reload 0, as does the next reload. A new file
// applies, and one for another file name does not.
func TestLoadbalanceReloadWithoutFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "weights")
	var start *config.Start
	t.Cleanup(func() { start.Stop() })
	wantWeight := func(name, period, want string) {
		t.Helper()
		b, err := plan(t, ".:53 {\nloadbalance weighted "+filepath.Join(dir, name)+" {\nreload "+period+"\n}\n}")
		if err != nil {
			t.Fatal(err)
		}
		start = config.NewStart(context.Background(), start)
		if err := b.Started(start); err != nil {
			t.Fatal(err)
		}
		start.Commit()
		w := config.Find[*Loadbalance](b)[0].weights
		if got := fmt.Sprint((*w.current.Load())["\x03www\x07example\x03org\x00"][netip.MustParseAddr("192.0.2.1")]); got != want {
			t.Errorf("%s with reload %s: got weight %s, want %s", name, period, got, want)
		}
	}
	write := func(weight string) {
		if err := os.WriteFile(file, []byte("www.example.org\n192.0.2.1 "+weight+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write("7")
	wantWeight("weights", "0", "7")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for _, period := range []string{"0", "0", "1h", "0"} {
		wantWeight("weights", period, "7")
	}
	write("8")
	wantWeight("weights", "0", "8")
	wantWeight("others", "0", "0")
}

func TestLoadbalanceErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(file, []byte("www.example.org\n192.0.2.1 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{
		{"loadbalance\nloadbalance", "Corefile:3: loadbalance: already given at Corefile:2, and can be given once in a server block"},
		{"loadbalance random", `Corefile:2: loadbalance: want round_robin or weighted, got "random"`},
		{"loadbalance weigted f", `Corefile:2: loadbalance: want round_robin or weighted, got "weigted"; did you mean "weighted"?`},
		{"loadbalance round_robin f", "Corefile:2: loadbalance: want 1 argument, got 2"},
		{"loadbalance weighted", "Corefile:2: loadbalance: weighted: want a file"},
		{"loadbalance weighted a b", "Corefile:2: loadbalance: weighted: want a file"},
		{"loadbalance {\nreload 5s\n}", "Corefile:3: loadbalance: reload: requires weighted"},
		{"loadbalance weighted /", "Corefile:2: loadbalance: reading weights: read /: is a directory"},
		{"loadbalance weighted " + file + " {\nreload 1ms\n}", `Corefile:3: loadbalance: reload: want a duration of 1s..24h, got "1ms"`},
		{"loadbalance weighted " + file + " {\nreload\n}", "Corefile:3: loadbalance: reload: got no arguments, usage: reload DURATION"},
		{"loadbalance {\nprefer\n}", "Corefile:3: loadbalance: prefer: got no arguments, usage: prefer CIDR..."},
		{"loadbalance {\nprefer 10.0.0.1\n}", `Corefile:3: loadbalance: prefer: "10.0.0.1" is not a CIDR: want one like 10.0.0.0/8 or fd00::/8`},
		{"loadbalance {\nshuffle\n}", `Corefile:3: loadbalance: unknown option "shuffle"`},
	} {
		wantErrors(t, ".:53 {\n"+c.text+"\n}", c.want)
	}
	for text, want := range map[string]string{
		"www.example.org\n192.0.2.1 0\n":   "2: want a weight of 1..255, got \"0\"",
		"www.example.org\n192.0.2.1 256\n": "2: want a weight of 1..255, got \"256\"",
		"www.example.org\n192.0.2 1\n":     "2: want an IP address, got \"192.0.2\"",
		"192.0.2.1 1\n":                    "1: want a name before the first address",
		"a..b\n":                           "1: want a name: \"a..b\": empty label",
		"a b c\n":                          "1: want a name, or an address and its weight, got \"a b c\"",
		"# nothing\n":                      "2: want at least one name",
	} {
		if _, err := parseWeights([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// A file that becomes wrong between the plan and its start is an error of the start.
func TestLoadbalanceWrongFileAtStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(file, []byte("www.example.org\n192.0.2.1 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := plan(t, ".:53 {\nloadbalance WEIGHTED "+file+"\n}")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("www.example.org\n192.0.2.1 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = b.Started(config.NewStart(context.Background(), nil))
	if want := "Corefile:2: loadbalance: " + file + `:2: want a weight of 1..255, got "0"`; err == nil || err.Error() != want {
		t.Errorf("weights changed before start: got %v, want %s", err, want)
	}
}

func BenchmarkLoadbalance(b *testing.B) {
	for _, n := range []int{2, 60} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q, l := seamark.NewQuery(nil), &Loadbalance{}
			q.Answer.Reset(make([]byte, 0, 8192), []byte("\x00\x00\x01\x00\x01"))
			(&addressHandler{n}).ServeDNS(q)
			b.ReportAllocs()
			for b.Loop() {
				l.FinishDNS(q)
			}
		})
	}
}
