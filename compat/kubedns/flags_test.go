package kubedns

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/corefile"
)

func TestFlags(t *testing.T) {
	for _, c := range []struct {
		name  string
		env   map[string]string
		flags func(*Flags)
		want  string // lines of the Corefile
		not   string // words that are not in it
		notes int
	}{
		{name: "the defaults", flags: func(*Flags) {},
			want: ".:53 {|bind 0.0.0.0|kubedns_status :8081 {|cache local|kubernetes cluster.local in-addr.arpa ip6.arpa {|compatible kube-dns|wildcards|ttl 30|startup_timeout 1m0s|forward . /etc/resolv.conf {|policy sequential|lameduck 5s|chaos {|statistics|success 10000",
			not:  "skydns_metrics kubedns_config pprof endpoint federation"},
		{name: "the manifest", env: map[string]string{"PROMETHEUS_PORT": "10055"},
			flags: func(f *Flags) { f.Port, f.ConfigDir = 10053, "kube-dns-config" },
			want:  ".:10053 {|skydns_metrics :10055 /metrics|kubedns_config ./kube-dns-config {|period 10s", not: "forward"},
		{name: "the API", env: map[string]string{"PROMETHEUS_PORT": "1", "PROMETHEUS_PATH": "/x", "PROMETHEUS_NAMESPACE": "a", "PROMETHEUS_SUBSYSTEM": "b", "HOST": "10.0.0.1"},
			flags: func(f *Flags) { f.ConfigMap, f.Master = "kube-dns", "https://$HOST:6443" },
			want:  "skydns_metrics :1 /x {|namespace a|subsystem b|kubedns_config kube-system/kube-dns {|endpoint https://10.0.0.1:6443", not: "forward period"},
		{name: "without a ConfigMap", flags: func(f *Flags) {
			f.Nameservers, f.Federations, f.Kubeconfig, f.Profiling = "8.8.8.8, [::1]:54,8.8.8.8:53", "b=b.example,a=a.example", "/a file", true
		}, want: `forward . 8.8.8.8:53 [::1]:54 {|federation {|a a.example|b b.example|kubeconfig "/a file"|pprof localhost:6060`},
		{name: "flags that kube-dns does not have", flags: func(f *Flags) { f.CacheSize, f.Wildcards, f.CacheFor, f.Lameduck = 0, false, "any", 0 }, want: "cache any", not: "success wildcards lameduck"},
		{name: "ignored flags", flags: func(f *Flags) { f.Nameservers, f.Federations, f.ConfigDir = "8.8.8.8", "a=b", "/c" }, want: "kubedns_config /c {", not: "8.8.8.8 federation", notes: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := DefaultFlags()
			c.flags(&f)
			text, notes, err := f.Corefile(func(name string) string { return c.env[name] })
			if err != nil || len(notes) != c.notes {
				t.Errorf("got notes %q, error %v; want %d notes, no error", notes, err, c.notes)
			}
			if _, err := corefile.Parse("Corefile", []byte(text)); err != nil {
				t.Error(err)
			}
			lines := "\n"
			for line := range strings.Lines(text) {
				lines += strings.TrimSpace(line) + "\n"
			}
			for want := range strings.SplitSeq(c.want, "|") {
				if !strings.Contains(lines, "\n"+want+"\n") {
					t.Errorf("got\n%s\nwant the line %q", text, want)
				}
			}
			for _, word := range strings.Fields(c.not) {
				if strings.Contains(text, word) {
					t.Errorf("got\n%s\nwant no %q", text, word)
				}
			}
		})
	}
}

func TestFlagsInvalid(t *testing.T) {
	f := DefaultFlags()
	f.Domain, f.BindAddress, f.Nameservers, f.CacheFor = "a b", "localhost", "1.1.1.1:123456789,$$$$", "all"
	f.CacheSize, f.Lameduck = -1, -time.Second
	f.Federations, f.Kubeconfig, f.Master = "a_b=c", "x", "y"
	_, _, err := f.Corefile(func(string) string { return "99999" })
	if err == nil {
		t.Fatalf("%+v: no error", f)
	}
	want := `--dns-bind-address: want an IP address, got "localhost"
--cache-for: want local or any, got "all"
--cache-size: want 0 or more, got -1
--lameduck: want 0s..1h0m0s, got -1s
PROMETHEUS_PORT: want a port of 1..65535, got "99999"
--domain: want a name of DNS-1123 labels such as cluster.local., got "a b"
--kube-master-url: want a URL such as https://10.0.0.1:6443, got "y"
--kubecfg-file and --kube-master-url: want one of them: the file can name the server
--nameservers: want IP or IP:PORT, got "1.1.1.1:123456789"
--nameservers: want IP or IP:PORT, got "$$$$"
--federations: federations: `
	if !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Corefile quotes or refuses values with a meaning in a Corefile.
func TestFlagsCorefileSyntax(t *testing.T) {
	for _, c := range []struct{ kubeconfig, federations, path, want string }{
		{kubeconfig: `/a\b`},
		{kubeconfig: `/a "b" #c`},
		{kubeconfig: "/a\nb"},
		{kubeconfig: `/a b\`, want: `--kubecfg-file: "/a b\\" cannot be written in a Corefile`},
		{kubeconfig: `/a\" } x`, want: `--kubecfg-file: "/a\\\" } x" cannot be written in a Corefile`},
		{path: "/{$HOME}", want: `PROMETHEUS_PATH: "/{$HOME}" cannot be written in a Corefile`},
		{federations: "import=example.org", want: "--federations: the name import has a meaning in a Corefile: set this federation in a ConfigMap"},
	} {
		f := DefaultFlags()
		f.Kubeconfig, f.Federations = c.kubeconfig, c.federations
		text, _, err := f.Corefile(func(name string) string {
			return map[string]string{"PROMETHEUS_PORT": "1", "PROMETHEUS_PATH": c.path}[name]
		})
		if c.want != "" {
			if err == nil || err.Error() != c.want {
				t.Errorf("%q: got error %v, want %s", c, err, c.want)
			}
			continue
		}
		servers, parseErr := corefile.Parse("Corefile", []byte(text))
		if err != nil || parseErr != nil {
			t.Fatalf("%q: Corefile: %v, parse: %v", c, err, parseErr)
		}
		k := servers[0].Directives[slices.IndexFunc(servers[0].Directives, func(d corefile.Directive) bool { return d.Text == "kubernetes" })]
		if got := k.Body[0].Args[0].Text; got != c.kubeconfig || k.Body[0].Text != "kubeconfig" {
			t.Errorf("got %s %q, want kubeconfig %q", k.Body[0].Text, got, c.kubeconfig)
		}
	}
}
