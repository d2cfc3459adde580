package hosts

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/freeport"
)

// dnsmasq and hosts answer from the same lines with the same addresses, in any order,
// and with the same first name of each address.
func TestAgainstDnsmasq(t *testing.T) {
	dir := t.TempDir()
	file, more := filepath.Join(dir, "hosts"), filepath.Join(dir, "more")
	must(t, os.Mkdir(more, 0o755))
	write(t, file, "127.0.0.1 localhost\n::1 localhost ip6-localhost\n127.0.0.9 both\n10.0.0.1 both\n127.4.0.9 both\n10.0.0.2 far a.b\n10.0.0.3 far\n"+
		"10.0.0.4 db dot.\n10.0.0.5 two www.example.test\nfd00::1 six\nfd00::2 six\n")
	write(t, filepath.Join(more, "a"), "10.0.1.1 more\n")
	write(t, filepath.Join(more, "b"), "10.0.1.2 more\n127.0.1.2 more\n")
	write(t, filepath.Join(more, ".hidden"), "10.0.1.3 more hidden\n")
	write(t, filepath.Join(more, "copy~"), "10.0.1.4 more copy\n")
	missing := filepath.Join(dir, "missing")
	theirs := dnsmasq(t, "--addn-hosts="+file, "--addn-hosts="+more, "--addn-hosts="+missing, "--expand-hosts", "--domain=example.test", "--localise-queries")
	ours := serve(t, new(chaintest.Log), "file "+file+" "+more, "file "+missing, "domain example.test", "localise")
	ask := func(at, name string, qtype uint16) (answers []string) {
		t.Helper()
		m, _, err := (&mdns.Client{Timeout: 20 * time.Second}).Exchange(new(mdns.Msg).SetQuestion(name, qtype), at)
		if err != nil {
			t.Fatal(err)
		}
		for _, rr := range m.Answer {
			answers = append(answers, strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
		return answers
	}
	for _, name := range []string{"localhost", "ip6-localhost", "both", "far", "a.b", "db", "dot", "two", "www.example.test", "six", "more", "hidden", "copy", "none"} {
		for _, name := range []string{name + ".", name + ".example.test."} {
			for _, qtype := range []uint16{mdns.TypeA, mdns.TypeAAAA} {
				want, got := ask(theirs, name, qtype), ask(ours, name, qtype)
				slices.Sort(want)
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("%s %s: got %q, dnsmasq has %q", name, mdns.TypeToString[qtype], got, want)
				}
			}
		}
	}
	for _, addr := range []string{"127.0.0.1", "127.0.0.9", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "fd00::1", "10.0.1.1"} {
		name, err := mdns.ReverseAddr(addr)
		must(t, err)
		want, got := ask(theirs, name, mdns.TypePTR), ask(ours, name, mdns.TypePTR)
		if len(want) != 1 || len(got) == 0 || got[0] != want[0] {
			t.Errorf("%s: got %q, dnsmasq has %q", addr, got, want)
		}
	}
	if got := ask(ours, "both.", mdns.TypeA); !slices.Equal(got, []string{"127.0.0.9", "127.4.0.9"}) {
		t.Errorf("both. A, sent to 127.0.0.1: got %q, want 127.0.0.9 and 127.4.0.9", got)
	}
}

// dnsmasq runs dnsmasq with these options until the test ends, and returns its address.
func dnsmasq(t *testing.T, options ...string) (at string) {
	t.Helper()
	program := debian.Program(t, "dnsmasq")
	port, log := freeport.Reserve(t), new(chaintest.Log)
	args := []string{"--no-daemon", "--conf-file=/dev/null", "--pid-file=", "--no-resolv", "--no-hosts",
		"--listen-address=127.0.0.1", "--bind-interfaces", "--port=" + port}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	c := exec.CommandContext(t.Context(), program, append(args, options...)...)
	c.Stderr = log
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
	at = "127.0.0.1:" + port
	chaintest.Eventually(t, "dnsmasq's first answer", func() bool {
		_, _, err := new(mdns.Client).Exchange(new(mdns.Msg).SetQuestion("localhost.", mdns.TypeA), at)
		return err == nil
	})
	return at
}
