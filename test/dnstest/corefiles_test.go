package dnstest

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/chaintest"
)

// A corefileCase is a Corefile of testdata/coredns/corefiles.txt.
type corefileCase struct {
	at       string // file:line
	plugin   string
	sentence string
	accepted bool
	text     string
}

// corefileCases reads the list. Lines that begin with four spaces are the Corefile of the sentence above
// them.
func corefileCases(t *testing.T) (cases []*corefileCase) {
	const file = root + "testdata/coredns/corefiles.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	plugin := ""
	for i, line := range strings.Split(string(text), "\n") {
		mark, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || mark == "#":
		case mark == "==":
			plugin = rest
		case mark == "+" || mark == "-":
			at := fmt.Sprintf("%s:%d", filepath.Base(file), i+1)
			cases = append(cases, &corefileCase{at: at, plugin: plugin, sentence: rest, accepted: mark == "+"})
		case strings.HasPrefix(line, "    ") && len(cases) > 0:
			cases[len(cases)-1].text += line[4:] + "\n"
		default:
			t.Fatalf("corefiles.txt:%d: want ==, +, - or four spaces, got %q", i+1, line)
		}
	}
	return cases
}

// corefile returns the whole Corefile: directives alone are put into a server block.
func (c *corefileCase) corefile(dir string) string {
	text := c.text
	if first, _, _ := strings.Cut(text, " "); !strings.Contains(first, ":53") && !strings.HasPrefix(first, "(") {
		text = ".:53 {\n" + text + "}\n"
	}
	return strings.ReplaceAll(text, "$DIR", dir)
}

// Each Corefile is accepted or refused, as by CoreDNS.
func TestCorefiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"hosts":       "192.0.2.1 www.example.org\n",
		"resolv.conf": "search example.org\nnameserver 192.0.2.1\n",
		"weights":     "www.example.org\n192.0.2.1 3\n192.0.2.2 1\n",
		"db":          "example.org. 60 IN SOA ns.example.org. host.example.org. 1 2 3 4 5\n",
		"snippet":     "whoami\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range corefileCases(t) {
		t.Run(c.plugin+"/"+c.sentence, func(t *testing.T) {
			t.Parallel()
			if c.text == "" {
				t.Fatalf("%s: no Corefile", c.at)
			}
			var err error
			if text := c.corefile(dir); *coredns != "" {
				_, err = ServeCoreDNS(t, *coredns, text, new(chaintest.Log))
			} else {
				err = planCorefile(text)
			}
			if accepted := err == nil; accepted != c.accepted {
				t.Errorf("%s: got accepted %v, want %v: %v\n%s", c.at, accepted, c.accepted, err, c.text)
			}
		})
	}
}

func planCorefile(text string) error {
	read := corefile.ReadText("Corefile", []byte(text))
	if read.Err != nil {
		return read.Err
	}
	_, err := server.NewPlan(read.Servers, server.Options{
		Directives: builtin.Directives(), Port: 53, Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry),
	})
	return err
}
