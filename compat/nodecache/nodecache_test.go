package nodecache

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/spf13/pflag"
)

// environment is the environment of a pod beside the Service kube-dns-upstream.
func environment(name string) string {
	return map[string]string{"KUBE_DNS_UPSTREAM_SERVICE_HOST": "10.96.0.99"}[name]
}

// testFlags returns flags for addresses of both families.
func testFlags() Flags {
	f := DefaultFlags()
	f.LocalIPs, f.UpstreamService = "169.254.20.10,fd00:90::10,", "kube-dns-upstream"
	return f
}

func TestFlagsParse(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--localip=169.254.20.10", ""},
		{"--localip=169.254.20.10,10.96.0.10 --syncinterval=60", ""},
		{"--localip=169.254.20.10,fd00:90::10 --syncinterval=1m30s", ""},
		{"--localip=169.254.20.10, --capture=none --setupinterface=false --setupiptables=false --skipteardown --reloadwithsignal", ""},
		{"", "-localip: want the addresses to serve"},
		{"--localip=,", "-localip: want the addresses to serve"},
		{"--localip=169.254.20.10,__PILLAR__DNS__SERVER__", "-localip: __PILLAR__DNS__SERVER__ is a variable of the manifest"},
		{"--localip=localhost", `-localip: want IP addresses such as 169.254.20.10,fd00:90::10, got "localhost"`},
		{"--localip=0.0.0.0", `-localip: want IP addresses`},
		{"--localip=10.0.0.1 --syncinterval=x", "want seconds such as 60, or a duration such as 60s"},
		{"--localip=10.0.0.1 --syncinterval=0", "-syncinterval: want 1s..24h0m0s, got 0s"},
		{"--localip=10.0.0.1 --repeat-reached=0", "-repeat-reached: want 100ms..1h0m0s, got 0s"},
		{"--localip=169.254.20.10,10.0.0.1 --capture=tcx --capture-interfaces=cali*,veth* --capture-foreign", ""},
		{"--localip=10.0.0.1 --capture=xdp", `-capture: want auto, tcx, clsact, address or none, got "xdp"`},
		{"--localip=169.254.20.10,fe80::1 --capture=tcx", "-capture=tcx: want a ClusterIP in -localip, got 169.254.20.10,fe80::1"},
		{"--localip=169.254.20.10,10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,fd00::1,fd00::2,fd00::3,fd00::4 --capture=tcx", ""},
		{"--localip=10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5 --capture=tcx", "-capture=tcx: want at most 4 ClusterIPs of each family in -localip, got 5 of IPv4 and 0 of IPv6"},
		{"--localip=10.0.0.1,fd00::1,fd00::2,fd00::3,fd00::4,fd00::5 --capture=clsact", "-capture=clsact: want at most 4 ClusterIPs of each family in -localip, got 1 of IPv4 and 5 of IPv6"},
		{"--localip=10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5", ""}, // auto, which is address then
		{"--localip=10.0.0.1 --capture-interfaces=veth*,", `-capture-interfaces: want patterns of names such as veth*,cali*, got ""`},
		{"--localip=10.0.0.1 --capture-interfaces=[", `-capture-interfaces: want patterns`},
		{"--localip=10.0.0.1 --interfacename=a-name-too-long-x", "-interfacename: want 1 to 15 characters"},
		{"--localip=10.0.0.1 --health-port=0", "-health-port: want 1..65535, got 0"},
		{"--localip=10.0.0.1 --kubednscm=", "-kubednscm: want a path, got none"},
	} {
		f := DefaultFlags()
		set := pflag.NewFlagSet("test", pflag.ContinueOnError)
		f.AddFlags(set)
		err := set.Parse(strings.Fields(c.args))
		if err == nil {
			err = f.Check()
		}
		if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%q: got error %v, want %q", c.args, err, c.want)
		}
	}
}

// The directive capture has the effect of the flag, and may not contradict it.
func TestSelectCapture(t *testing.T) {
	for _, c := range []struct {
		template  string
		flag      string // "" if it is not given
		want, err string
	}{
		{".:53 {\n whoami\n}\n", "", "auto", ""},
		{".:53 {\n capture address\n bind __PILLAR__LOCAL__DNS__\n}\n", "", "address", ""},
		{".:53 {\n capture tcx\n}\na:53 {\n capture tcx\n}\n", "tcx", "tcx", ""},
		{".:53 {\n capture none\n}\n", "address", "", "Corefile.base:2: capture: want address, the value of the flag -capture, got none"},
		{".:53 {\n capture none\n}\na:53 {\n capture tcx\n}\n", "", "", "Corefile.base:5: capture: want none as at "},
		{".:53 {\n capture xdp\n}\n", "address", "address", ""}, // the server refuses it
		{".:53 {\n capture none\n", "address", "address", ""},
	} {
		f := testFlags()
		f.Base = filepath.Join(t.TempDir(), "Corefile.base")
		put(t, f.Base, c.template)
		if c.flag != "" {
			f.Capture = c.flag
		}
		err := f.SelectCapture(c.flag != "")
		if c.err == "" && (err != nil || f.Capture != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("-capture=%s and template\n%s\ngot %s, error %v, want %s, error %q", c.flag, c.template, f.Capture, err, c.want, c.err)
		}
	}
}

// The directives that listen have the aliases; the Corefile that was read does not.
func TestListenAt(t *testing.T) {
	text := `.:53 {
    bind 169.254.20.10 10.96.0.10 {
        except 10.96.0.10
    }
    ready 10.96.0.10:8181
    prometheus [fd00:96::10]:9253
    forward . 10.96.0.10
}
`
	read := corefile.ReadText("Corefile", []byte(text))
	alias, alias6 := netip.MustParseAddr("169.254.20.11"), netip.MustParseAddr("fd00::11")
	got, err := corefile.Format(ListenAt(read, map[netip.Addr]netip.Addr{
		netip.MustParseAddr("10.96.0.10"): alias, netip.MustParseAddr("fd00:96::10"): alias6,
	}).Servers)
	want := strings.NewReplacer("bind 169.254.20.10 10.96.0.10", "bind 169.254.20.10 169.254.20.11", "except 10.96.0.10", "except 169.254.20.11",
		"ready 10.96.0.10", "ready 169.254.20.11", "[fd00:96::10]", "[fd00::11]").Replace(text)
	if err != nil || got != want {
		t.Errorf("with aliases: got error %v and\n%s\nwant\n%s", err, got, want)
	}
	if before, _ := corefile.Format(read.Servers); before != text {
		t.Errorf("the Corefile that was read: got\n%s\nwant\n%s", before, text)
	}
}

func TestFlagsSyncInterval(t *testing.T) {
	for text, want := range map[string]time.Duration{"60": time.Minute, "60s": time.Minute, "2m": 2 * time.Minute} {
		var i interval
		if err := i.Set(text); err != nil || time.Duration(i) != want {
			t.Errorf("-syncinterval %s: got %v, error %v, want %v", text, time.Duration(i), err, want)
		}
	}
}

func TestFlagsAddresses(t *testing.T) {
	f := testFlags()
	f.LocalIPs = "169.254.20.10, ::ffff:10.96.0.10,fd00:90::10,169.254.20.10"
	want := []netip.Addr{netip.MustParseAddr("169.254.20.10"), netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:90::10")}
	if got, err := f.Addresses(); err != nil || !slices.Equal(got, want) {
		t.Errorf("addresses of %s: got %v, error %v, want %v", f.LocalIPs, got, err, want)
	}
}

func TestGenerate(t *testing.T) {
	const block = ".:53 {\n%s\n}\n"
	custom := config{upstreams: []string{"8.8.8.8", "tls://1.1.1.1"}}
	for _, c := range []struct {
		template string // in a block
		config   config
		want     string // in a block
	}{
		{"bind __PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__", config{}, "bind 169.254.20.10 fd00:90::10 "},
		{"forward . __PILLAR__CLUSTER__DNS__ {\n force_tcp\n}", custom, "forward . 10.96.0.99 {\n force_tcp\n}"},
		{"forward . __PILLAR__UPSTREAM__SERVERS__", config{}, "forward . /etc/resolv.conf"},
		{"forward . __PILLAR__UPSTREAM__SERVERS__ {\nforce_tcp\n}", config{}, "forward . /etc/resolv.conf {\nforce_tcp\n}"},
		{"forward . __PILLAR__UPSTREAM__SERVERS__ {\n\t\t\tforce_tcp # why\n   max_concurrent 5\n }", custom, "forward . 8.8.8.8 tls://1.1.1.1 {\n\t\t\t # why\n   max_concurrent 5\n }"},
		{"prometheus __PROMETHEUS__ENDPOINT__", config{}, "prometheus :9253"},
		{"health", config{}, "health 169.254.20.10:8080"},
		{"health :8081 {\n lameduck 5s\n}", config{}, "health 169.254.20.10:8081 {\n lameduck 5s\n}"},
		{"health __PILLAR__LOCAL__DNS__:8080", config{}, "health 169.254.20.10:8080"},
		{"health 127.0.0.1:8080", config{}, "health 127.0.0.1:8080"},
		{"# __PILLAR__DNS__DOMAIN__\nwhoami", config{}, "# __PILLAR__DNS__DOMAIN__\nwhoami"},
	} {
		got, err := testFlags().generate("Corefile.base", fmt.Sprintf(block, c.template), c.config, environment)
		if want := fmt.Sprintf(block, c.want); err != nil || got != want {
			t.Errorf("template\n%s\ngot\n%s\nerror %v, want\n%s", c.template, got, err, want)
		}
	}
}

// A directive of a snippet that is imported twice changes once.
func TestGenerateSnippet(t *testing.T) {
	got, err := testFlags().generate("Corefile.base", "(common) {\nhealth\n}\n.:53 {\nimport common\n}\ncluster.local:53 {\nimport common\n}\n", config{}, environment)
	if err != nil || strings.Count(got, "169.254.20.10:8080") != 1 {
		t.Errorf("got\n%s\nerror %v, want the address once", got, err)
	}
}

func TestGenerateIPv6First(t *testing.T) {
	f := testFlags()
	f.LocalIPs = "fd00:90::10"
	got, err := f.generate("Corefile.base", ".:53 {\nhealth __PILLAR__LOCAL__DNS__:8080\n}\n", config{}, environment)
	if want := ".:53 {\nhealth [fd00:90::10]:8080\n}\n"; err != nil || got != want {
		t.Errorf("got %q, error %v, want %q", got, err, want)
	}
}

func TestGenerateStubDomains(t *testing.T) {
	c, err := parseConfig(map[string]string{"stubDomains": `{"b.example": ["10.0.0.1:54"], "a.example": ["tls://10.0.0.2", "10.0.0.3"], "none.example": []}`})
	if err != nil {
		t.Fatal(err)
	}
	got, err := testFlags().generate("Corefile.base", ".:53 {\n}\n", c, environment)
	want := `.:53 {
}

a.example:53 {
    errors
    cache 30
    bind 169.254.20.10 fd00:90::10
    forward . tls://10.0.0.2 10.0.0.3
}

b.example:53 {
    errors
    cache 30
    bind 169.254.20.10 fd00:90::10
    forward . 10.0.0.1:54
}
`
	if err != nil || got != want {
		t.Errorf("got\n%s\nerror %v, want\n%s", got, err, want)
	}
}

func TestGenerateInvalid(t *testing.T) {
	f := testFlags()
	f.UpstreamService = "other-dns"
	for template, want := range map[string]string{
		".:53 {\n\n forward . __PILLAR__CLUSTER__DNS__\n}\n": "Corefile.base:3: __PILLAR__CLUSTER__DNS__: the environment variable OTHER_DNS_SERVICE_HOST has no address: create the Service other-dns",
		"__PILLAR__DNS__DOMAIN__:53 {\n whoami\n}\n":         "Corefile.base:1: __PILLAR__DNS__DOMAIN__ is not known here",
		".:53 {\n whoami\n": "Corefile.base:",
	} {
		if text, err := f.generate("Corefile.base", template, config{}, environment); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("template\n%s\ngot %q, error %v, want error %q", template, text, err, want)
		}
	}
}

func TestParseConfigInvalid(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"stubDomains", "[]", "stubDomains: want a JSON object"},
		{"stubDomains", `{"a.example": ["ns.example"]}`, `stubDomains: a.example: want IP or IP:PORT, optionally after dns:// or tls://, got "ns.example"`},
		{"stubDomains", `{"A.example.": ["10.0.0.1"]}`, "stubDomains: want a domain name"},
		{"upstreamNameservers", `"8.8.8.8"`, "upstreamNameservers: want a JSON array"},
		{"upstreamNameservers", `["https://8.8.8.8"]`, `upstreamNameservers: want IP`},
		{"upstreamNameservers", `["8.8.8.8 }"]`, `upstreamNameservers: want IP`},
	} {
		if got, err := parseConfig(map[string]string{c.key: c.value}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: got %v, error %v, want error %q", c.key, c.value, got, err, c.want)
		}
	}
}

// A followed is a Follower of files in a directory.
type followed struct {
	*Follower
	t      *testing.T
	flags  Flags
	errors *metrics.Counter
}

// newFollowed starts a Follower of a template. check is the server's.
func newFollowed(t *testing.T, template string, check func([]corefile.Server) error) *followed {
	t.Helper()
	dir := t.TempDir()
	f := testFlags()
	f.Base, f.Corefile, f.ConfigDir = filepath.Join(dir, "Corefile.base"), filepath.Join(dir, "Corefile"), filepath.Join(dir, "kube-dns")
	put(t, f.Base, template)
	errors := new(metrics.Registry).Counter("errors", "Errors.")
	w, err := NewFollower(f, environment, check, slog.New(slog.DiscardHandler), errors, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return &followed{w, t, f, errors}
}

// contains waits until the Corefile contains text, in memory and in the file.
func (f *followed) contains(text string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		written, _ := os.ReadFile(f.flags.Corefile)
		if strings.Contains(string(written), text) && f.Read().Sum == corefile.ReadText(f.flags.Base, written).Sum {
			return
		}
		select {
		case <-f.Changed():
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			f.t.Fatalf("got Corefile\n%s\nerror %v, want %q in it", written, f.Read().Err, text)
		}
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func accept([]corefile.Server) error { return nil }

// Changes of the template and of the ConfigMap, which may be created later, are followed.
// An invalid ConfigMap leaves the previous one in use.
func TestFollower(t *testing.T) {
	f := newFollowed(t, ".:53 {\n forward . __PILLAR__UPSTREAM__SERVERS__\n}\n", accept)
	f.contains("forward . /etc/resolv.conf")
	put(t, filepath.Join(f.flags.ConfigDir, "upstreamNameservers"), `["8.8.8.8"]`)
	f.contains("forward . 8.8.8.8")
	put(t, f.flags.Base, ".:53 {\n log\n forward . __PILLAR__UPSTREAM__SERVERS__\n}\n")
	f.contains("log\n forward . 8.8.8.8")
	if got := f.errors.Value(); got != 0 {
		t.Errorf("errors of valid ConfigMaps: got %v, want 0", got)
	}
	put(t, filepath.Join(f.flags.ConfigDir, "stubDomains"), "{")
	put(t, f.flags.Base, ".:53 {\n errors\n forward . __PILLAR__UPSTREAM__SERVERS__\n}\n")
	f.contains("errors\n forward . 8.8.8.8")
	if got := f.errors.Value(); got == 0 {
		t.Error("errors of an invalid ConfigMap: got 0, want more")
	}
}

// After a restart the Corefile is not written again: that would wait for the disk.
func TestFollowerUnchangedCorefile(t *testing.T) {
	f := newFollowed(t, ".:53 {\n whoami\n}\n", accept)
	f.contains("whoami")
	before, err := os.Stat(f.flags.Corefile)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewFollower(f.flags, environment, accept, slog.New(slog.DiscardHandler), f.errors, "")
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if after, err := os.Stat(f.flags.Corefile); err != nil || !os.SameFile(before, after) {
		t.Errorf("Corefile after another start: got another file, error %v, want the same", err)
	}
}

// A ConfigMap that the server cannot use beside the template counts as invalid.
func TestFollowerConflict(t *testing.T) {
	f := newFollowed(t, "a.example:53 {\n whoami\n}\n", func(servers []corefile.Server) error {
		if len(servers) > 1 {
			return servers[1].Keys[0].Errorf("", "zone a.example is served twice")
		}
		return nil
	})
	put(t, filepath.Join(f.flags.ConfigDir, "stubDomains"), `{"a.example": ["10.0.0.1"]}`)
	put(t, f.flags.Base, "a.example:53 {\n errors\n whoami\n}\n")
	f.contains("errors")
	for deadline := time.Now().Add(time.Minute); f.errors.Value() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("errors of a ConfigMap with a zone of the template: got 0, want more")
		}
	}
	if n := len(f.Read().Servers); n != 1 {
		t.Errorf("got %d server blocks, want that of the template", n)
	}
}

// An invalid template is an error of the Corefile, with file and line.
func TestFollowerInvalidTemplate(t *testing.T) {
	f := newFollowed(t, ".:53 {\n forward . __PILLAR__NONE__\n}\n", accept)
	if err := f.Read().Err; err == nil || !strings.Contains(err.Error(), "Corefile.base:2: __PILLAR__NONE__") {
		t.Errorf("got error %v, want one about line 2", err)
	}
}

func TestSource(t *testing.T) {
	dir := t.TempDir()
	base, own, other := filepath.Join(dir, "Corefile.base"), filepath.Join(dir, "Corefile"), filepath.Join(dir, "other")
	f := testFlags()
	f.Base, f.Corefile = base, own
	check := func(condition, want, wantErr string) {
		t.Helper()
		got, err := f.source()
		if got != want || (err != nil) != (wantErr != "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: got %q, error %v, want %q, error %q", condition, got, err, want, wantErr)
		}
	}
	check("no file", "", "reading the template "+base+": file does not exist")
	put(t, own, "")
	check("a Corefile alone", own, "")
	put(t, base, "")
	check("a template", "", "")
	f.Conf = own
	check("-conf as -corefile", "", "")
	f.Conf = other
	check("another -conf", other, "")
}
