package cmd_test

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cmd"
	"github.com/seamark/seamark/test/program"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Texts with command lines have the name that the user types, which is kubectl seamark for the plugin.
// Otherwise they are the same.
func TestNameAsTyped(t *testing.T) {
	const typed = "\x00"
	line := regexp.MustCompile(`(?m)(^|[^-])\bseamark [-a-z[]`)
	for _, args := range []string{
		"--help", "check --help", "canary --help", "canary start --help", "resolvconf --help", "convert --help", "help --all",
		"chekc", "plan", "status --color x", // errors
	} {
		texts := map[string]string{}
		for _, name := range []string{"seamark", "kubectl-seamark"} {
			var out bytes.Buffer
			c := program.Command(t, t.TempDir(), strings.Fields(args)...)
			c.Args[0], c.Stdout, c.Stderr = "/usr/local/bin/"+name, &out, &out
			_ = c.Run() // the status is that of the command
			texts[name] = out.String()
		}

		plugin := strings.ReplaceAll(texts["kubectl-seamark"], "kubectl seamark", typed)
		if found := line.FindString(plugin); found != "" || !strings.Contains(plugin, typed) {
			t.Errorf("kubectl seamark %s: got a command line without kubectl (%q), or none:\n%s", args, found, plugin)
		}
		// The help of canary tells about the plugin.
		server := strings.ReplaceAll(texts["seamark"], "kubectl seamark canary status", "seamark canary status")
		if want := strings.ReplaceAll(plugin, typed, "seamark"); server != want {
			t.Errorf("seamark %s: got\n%s\nwant\n%s", args, server, want)
		}
	}
}

// The shell completes each value of a flag that accepts a few: those in the error at another value.
func TestFlagValuesComplete(t *testing.T) {
	long(t)
	t.Parallel()
	dir, list := t.TempDir(), regexp.MustCompile(`-(\w[\w-]*): want ((?:[\w-]+, )*[\w-]+) or ([\w-]+), got "nosuch"`)
	complete := func(args []string, flag string) []string {
		out, _, _ := run(t, dir, "", slices.Concat([]string{"__complete"}, args, []string{"--" + flag, ""})...)
		return strings.Fields(strings.TrimSuffix(out, ":4\n"))
	}

	found := map[string]bool{}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		args := strings.Fields(c.CommandPath())[1:]
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			// The usage of such a flag has an alternative, and a file or an address is not for this test.
			if f.Value.Type() != "string" || !strings.Contains(f.Usage, " or ") || strings.Contains(f.Usage, "FILE") {
				return
			}
			_, stderr, _ := run(t, dir, "", slices.Concat(args, []string{"--" + f.Name, "nosuch"}, needed[c.Name()])...)
			for _, wanted := range list.FindAllStringSubmatch(stderr, -1) {
				if wanted[1] != f.Name {
					continue
				}
				found[f.Name] = true
				want := append(strings.Split(wanted[2], ", "), wanted[3])
				if got := complete(args, f.Name); !maps.Equal(set(got), set(want)) {
					t.Errorf("%s --%s: got the values %q, want %q", c.CommandPath(), f.Name, got, want)
				}
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	root := cmd.Commands(builtin.Directives())
	for _, c := range root.Commands() {
		visit(c)
	}

	for _, flag := range []string{"output", "color", "fail-on", "transport", "pace", "dns-policy", "log-format", "capture", "sandbox", "compare", "cache-for"} {
		if !found[flag] {
			t.Errorf("no command refused --%s nosuch with its values", flag)
		}
	}

	for _, c := range []struct {
		args, flag string
		want       []string
	}{
		{"check", "coredns", []string{"1.15.0", "1.11.1", "1.0.0"}},
		{"records", "directive", []string{"kubernetes", "file"}},
		{"tail", "rcode", []string{"NXDOMAIN"}},
		{"cache list", "type", []string{"AAAA"}},
	} {
		got := complete(strings.Fields(c.args), c.flag)
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("%s --%s: got the values %q, want %s among them", c.args, c.flag, got, want)
			}
		}
	}
}

// needed are arguments without which a command does not look at the values of its flags.
var needed = map[string][]string{
	"check": {"Corefile"}, "plan": {"Corefile"}, "fmt": {"Corefile"}, "explain": {"web"}, "query": {"web"},
	"diff": {"--against=127.0.0.1"}, "shadow": {"--pcap=-"}, "convert": {"-"}, "node": {"--localip=169.254.20.10"},
	"start": {"--image=registry.example/seamark:1"},
}

func set(words []string) map[string]bool {
	found := map[string]bool{}
	for _, word := range words {
		found[word] = true
	}
	return found
}
