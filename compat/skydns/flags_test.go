package skydns

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/corefile"
)

func TestFlagsCorefile(t *testing.T) {
	none := func(string) string { return "" }
	for _, c := range []struct {
		change    func(f *Flags)
		env       map[string]string
		stubs     []Stub
		want, not string // starts of lines, separated by |; directives that must be absent
	}{
		{change: func(*Flags) {}, want: ".:53 {|bind 127.0.0.1|loadbalance|chaos|etcd skydns.local. in-addr.arpa ip6.arpa {|path /skydns|endpoint http://127.0.0.1:2379|compatible skydns|ttl 3600|priority 10|negative_ttl 60|fallthrough in-addr.arpa ip6.arpa|screen {|least_labels 2|forward . /etc/resolv.conf {|policy round_robin|read_timeout 2s", not: "cache skydns_metrics log credentials tls local hostmaster lameduck"},
		{change: func(f *Flags) {
			f.Addr, f.Domain, f.PathPrefix, f.Ndots, f.NSRotate, f.RoundRobin = "0.0.0.0:5353", "a.b", "/x/y/", 1, false, false
		}, want: ".:5353 {|etcd a.b. |path /x/y|policy sequential", not: "bind loadbalance screen"},
		{change: func(f *Flags) { f.NoRec, f.RCache, f.RCacheTTL, f.Verbose, f.Lameduck = true, 7, 9, true, time.Second },
			want: "log|cache 9 {|success 7|denial 7|lameduck 1s|least_labels 127", not: "forward"},
		{change: func(f *Flags) {
			f.Etcd.Endpoints, f.Etcd.Username, f.Etcd.Password = "https://a:1,https://b:2", "u", `p "w`
			f.Etcd.Cert, f.Etcd.Key, f.Etcd.CA, f.Local, f.Hostmaster = "c", "k", "ca", "l.x", "h.x"
			f.Nameservers = []string{"10.0.0.1", " 10.0.0.2:54", "2001:db8::1"}
		}, want: `endpoint https://a:1 https://b:2|credentials u "p \"w"|tls c k ca|hostmaster h.x|local l.x|forward . 10.0.0.1:53 10.0.0.2:54 [2001:db8::1]:53 {`},
		{change: func(*Flags) {}, env: map[string]string{"PROMETHEUS_PORT": "8000", "PROMETHEUS_SUBSYSTEM": "s"}, want: "skydns_metrics :8000 /metrics {|subsystem s", not: "namespace"},
		{change: func(f *Flags) { f.NoRec = true }, stubs: []Stub{{"b.example", []string{"10.0.0.1:53", "10.0.0.2:54"}}},
			want: "b.example:53 {|bind 127.0.0.1|forward . 10.0.0.1:53 10.0.0.2:54 {"},
	} {
		f := DefaultFlags(none)
		c.change(&f)
		text, err := f.Corefile(c.stubs, func(name string) string { return c.env[name] })
		if err != nil {
			t.Errorf("Corefile with %s: got error %v, want none", c.want, err)
		}
		if _, err := corefile.Parse("Corefile", []byte(text)); err != nil {
			t.Errorf("parsing: got error %v, want none\n%s", err, text)
		}
		rest := text
		for _, line := range strings.Split(c.want, "|") {
			_, after, found := strings.Cut(rest, line)
			if !found {
				t.Errorf("got\n%s\nwant %q at this position", text, line)
				break
			}
			rest = after
		}
		for _, word := range strings.Fields(c.not) {
			for line := range strings.Lines(text) {
				if words := strings.Fields(line); len(words) > 0 && words[0] == word {
					t.Errorf("got\n%s\nwant no %s", text, word)
				}
			}
		}
	}
}

// All errors are reported at once.
func TestFlagsInvalid(t *testing.T) {
	large := int64(1) << 40 // no constant of an int of 32 bits
	f := DefaultFlags(func(string) string { return "" })
	f.Addr, f.Domain, f.Ndots, f.RCache, f.ReadTimeout = "127.0.0.1", "a b", 500, int(large), 1
	f.Local, f.Hostmaster, f.Nameservers = "a b", "{", []string{"x"}
	f.Etcd.Endpoints, f.Etcd.Key = "a/b", "k"
	_, err := f.Corefile(nil, func(name string) string {
		return map[string]string{"SKYDNS_NDOTS": "x", "PROMETHEUS_PORT": "0"}[name]
	})
	if err == nil {
		t.Fatalf("%+v: got no error", f)
	}
	for _, want := range []string{
		`-addr: want IP:PORT, got "127.0.0.1"`, "-domain: want a name", "-ndots: want 0..127, got 500", "-rcache: want 0..2147483647, got 1099511627776", "-rtimeout: want 10ms..1m0s, got 1ns",
		`-local: want a name, got "a b"`, "-hostmaster: want a name", `-nameservers: want IP or IP:PORT, got "x"`, "endpoint: want a URL", "a certificate needs its key",
		"SKYDNS_NDOTS: want a number", "PROMETHEUS_PORT: want a port",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got\n%v\nwant %s", err, want)
		}
	}
}

// The environment sets the defaults of flags, and the configuration in etcd overrides
// both.
func TestFlagsEnvironmentAndConfiguration(t *testing.T) {
	env := map[string]string{
		"SKYDNS_ADDR": "10.0.0.1:54", "SKYDNS_DOMAIN": "a.b", "SKYDNS_PATH_PREFIX": "p", "SKYDNS_NDOTS": "3", "SKYDNS_NAMESERVERS": "10.0.0.2,10.0.0.3",
		"ETCD_MACHINES": "https://e:1", "ETCD_USERNAME": "u", "ETCD_PASSWORD": "w", "ETCD_TLSPEM": "c", "ETCD_TLSKEY": "k", "ETCD_CACERT": "ca",
	}
	f := DefaultFlags(func(name string) string { return env[name] })
	want := Flags{Addr: "10.0.0.1:54", Domain: "a.b", PathPrefix: "p", Ndots: 3, Nameservers: []string{"10.0.0.2", "10.0.0.3"}, RoundRobin: true, NSRotate: true,
		ReadTimeout: 2 * time.Second, Priority: 10, TTL: 3600, MinTTL: 60, RCacheTTL: 60}
	want.Etcd.Endpoints, want.Etcd.Username, want.Etcd.Password = "https://e:1", "u", "w"
	want.Etcd.Cert, want.Etcd.Key, want.Etcd.CA = "c", "k", "ca"
	if !reflect.DeepEqual(f, want) {
		t.Errorf("DefaultFlags: got\n%+v\nwant\n%+v", f, want)
	}
	got, err := f.withConfig(`{"dns_addr":"10.0.0.4:53","domain":"c.d.","local":"l.d","hostmaster":"h.d","round_robin":false,"ns_rotate":false,"nameservers":["10.0.0.5:53"],
		"no_rec":true,"read_timeout":3000000000,"priority":20,"ttl":30,"min_ttl":5,"scache":1,"rcache":7,"rcache_ttl":8,"ndot":4,"dnssec":"","systemd":false,"etcd":1}`)
	want.Addr, want.Domain, want.Local, want.Hostmaster, want.RoundRobin, want.NSRotate = "10.0.0.4:53", "c.d.", "l.d", "h.d", false, false
	want.Nameservers, want.NoRec, want.ReadTimeout, want.Priority, want.TTL, want.MinTTL = []string{"10.0.0.5:53"}, true, 3*time.Second, 20, 30, 5
	want.RCache, want.RCacheTTL, want.Ndots = 7, 8, 4
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("withConfig: got error %v and\n%+v\nwant\n%+v", err, got, want)
	}
	if f.Nameservers[0] != "10.0.0.2" {
		t.Errorf("nameservers of the original flags: got %q, want them unchanged", f.Nameservers)
	}
	for text, word := range map[string]string{`{`: "unexpected end", `{"dnssec":"K"}`: "dnssec: this command does not sign answers", `{"systemd":true}`: "systemd: skydns does not accept sockets", `{"ttl":-1}`: "cannot unmarshal", `{"domain":"."}`: "-domain: want"} {
		if _, err := f.withConfig(text); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("withConfig(%s): got error %v, want %s", text, err, word)
		}
	}
	if a, b := f.configKey(), f.stubKey(); a != "/p/config" || b != "/p/b/a/dns/stub" {
		t.Errorf("got keys %s and %s, want /p/config and /p/b/a/dns/stub", a, b)
	}
}

func TestStubZones(t *testing.T) {
	const base = "/skydns/local/skydns/dns/stub"
	stubs, problems := parseStubs(base, map[string]string{
		base + "/net/example/1":   `{"host":"10.0.0.2","port":54}`,
		base + "/net/example/2":   `{"host":"10.0.0.1"}`,
		base + "/net/example/3":   `{"host":"10.0.0.1","port":53}`,
		base + "/six/1":           `{"host":"2001:db8::1"}`,
		base + "/1":               `{"host":"10.0.0.1"}`,
		base + "/name/1":          `{"host":"a.b"}`,
		base + "/json/1":          `{`,
		base + "/a b/1":           `{"host":"10.0.0.1"}`,
		base + "/{$HOME}/1":       `{"host":"10.0.0.1"}`,
		base + "//1":              `{"host":"10.0.0.1"}`,
		base + "x/net/example2/1": `{"host":"10.0.0.1"}`,
		"/skydns/config":          `{}`,
	})
	want := []Stub{{"example.net", []string{"10.0.0.1:53", "10.0.0.2:54"}}, {"six", []string{"[2001:db8::1]:53"}}}
	if !reflect.DeepEqual(stubs, want) {
		t.Errorf("parseStubs: got %v, want %v", stubs, want)
	}
	if len(problems) != 6 {
		t.Errorf("got %d problems, want 6:\n%s", len(problems), strings.Join(problems, "\n"))
	}
}

// Values that SkyDNS treats as unset have the defaults.
func TestFlagsUnset(t *testing.T) {
	f := DefaultFlags(func(string) string { return "" })
	want, err := f.Corefile(nil, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	f.ReadTimeout, f.TTL, f.MinTTL, f.Priority, f.Ndots, f.RCache, f.RCacheTTL = 0, 0, 0, 0, -3, -1, 0
	if got, err := f.Corefile(nil, func(string) string { return "" }); got != want || err != nil {
		t.Errorf("got error %v and\n%s\nwant\n%s", err, got, want)
	}
	f.Hostmaster = "me@x.example"
	if got, err := f.Corefile(nil, func(string) string { return "" }); err != nil || !strings.Contains(got, "hostmaster me.x.example\n") {
		t.Errorf("hostmaster me@x.example: got error %v and\n%s\nwant me.x.example", err, got)
	}
}
