package forward

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/wire"
)

func TestSetup(t *testing.T) {
	b, err := setup(`.:53 {
    forward example.org 192.0.2.1 [2001:db8::1]:5353 dns://192.0.2.2:54 tls://192.0.2.3 https://dns.example up.example:55 {
        except a.example.org b.example.org
        except c.example.org
        force_tcp
        prefer_udp
        expire 20s
        max_age 1m
        max_idle_conns 3
        read_timeout 1s
        max_fails 5
        max_connect_attempts 7
        doh_method GET
        tls_servername name.example
        policy Sequential
        health_check 2s no_rec domain example.org
        max_concurrent 9
        next NXDOMAIN servfail
        next_on_nodata
        failfast_all_unhealthy_upstreams
        case_randomization off
        failover REFUSED NOTIMP
        source_address 127.0.0.1
        resolver 192.0.2.53 [2001:db8::53]:5353
    }
}`, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f := config.Find[*Forward](b)[0]
	o := f.options
	if len(f.except) != 3 || f.limiter.most != 9 || len(f.nextCodes) != 2 || f.nextCodes[1] != wire.ServFail || !f.nextOnNodata {
		t.Errorf("got %+v, want the zones, limit and codes of the Corefile", f)
	}
	if !o.forceTCP || !o.preferUDP || o.expire != 20*time.Second || o.maxAge != time.Minute || o.maxIdleConns != 3 ||
		o.readTimeout != time.Second || o.maxFails != 5 || o.maxAttempts != 7 || o.dohMethod != "GET" || o.serverName != "name.example" ||
		o.policy != sequential || o.check != (healthCheck{2 * time.Second, "\x07example\x03org\x00", true}) ||
		!o.failfast || o.letterCase != "off" || len(o.failover) != 2 || o.sourceAddress != netip.MustParseAddr("127.0.0.1") ||
		len(o.resolvers) != 2 || o.resolvers[1].Port() != 5353 {
		t.Errorf("got %+v, want the options of the Corefile", o)
	}
	want := []destination{
		{scheme: schemeDNS, addr: netip.MustParseAddrPort("192.0.2.1:53"), port: 53},
		{scheme: schemeDNS, addr: netip.MustParseAddrPort("[2001:db8::1]:5353"), port: 5353},
		{scheme: schemeDNS, addr: netip.MustParseAddrPort("192.0.2.2:54"), port: 54},
		{scheme: schemeTLS, addr: netip.MustParseAddrPort("192.0.2.3:853"), port: 853},
		{scheme: schemeHTTPS, url: "https://dns.example/dns-query", port: 0},
		{scheme: schemeDNS, host: "up.example", port: 55},
	}
	for i, p := range o.destinations {
		if p != want[i] {
			t.Errorf("%+v, want %+v", p, want[i])
		}
	}
}

func TestSetupDefaults(t *testing.T) {
	b, err := setup(".:53 {\n forward . 192.0.2.1\n}", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	o := config.Find[*Forward](b)[0].options
	if o.expire != 10*time.Second || o.readTimeout != 2*time.Second || o.maxFails != 2 || o.maxAttempts != -1 ||
		o.policy != random || o.check != (healthCheck{500 * time.Millisecond, wire.Root, false}) || o.maxIdleConns != 0 || o.maxAge != 0 {
		t.Errorf("got %+v, want CoreDNS's defaults", o)
	}
}

func TestSetupErrors(t *testing.T) {
	dir := t.TempDir()
	empty, conf, many := filepath.Join(dir, "empty"), filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "many")
	for file, text := range map[string]string{
		empty: "search example.org\n", conf: "nameserver 192.0.2.1\n", many: strings.Repeat("nameserver 192.0.2.1\n", 15),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for body, want := range map[string]string{
		"forward":                        "forward: want at least 2 arguments, got 0",
		"forward .":                      "forward: want at least 2 arguments, got 1",
		"forward a..b 192.0.2.1":         `forward: not a zone: "a..b": empty label`,
		"forward . 192.0.2.300":          `forward: want an address, a host's name or a file, got "192.0.2.300"`,
		"forward . 192.0.2.1:0":          `forward: want a port of 1..65535, got "0"`,
		"forward . 192.0.2.1:dns":        `forward: want a port of 1..65535, got "dns"`,
		"forward . a_b!":                 `forward: want an address, a host's name or a file, got "a_b!"`,
		"forward . https3://192.0.2.1":   `forward: https3:// is not supported here: use https:// or quic://`,
		"forward . https://":             `forward: want https://HOST[:PORT], got "https://"`,
		"forward . https://a/b?c":        `forward: want https://HOST[:PORT] without a path, which is always /dns-query: got "https://a/b?(hidden)"`,
		"forward . https://a?b":          `forward: want https://HOST[:PORT], got "https://a?(hidden)"`,
		"forward . https://300.1.1.1":    `forward: want https://HOST[:PORT], got "https://300.1.1.1"`,
		"forward . https://a/dns-query":  `forward: want https://HOST[:PORT] without a path, which is always /dns-query: got "https://a/dns-query"`,
		"forward . https://a/":           `forward: want https://HOST[:PORT] without a path, which is always /dns-query: got "https://a/"`,
		"forward . /nowhere/resolv.conf": `forward: not an address, and no such file: "/nowhere/resolv.conf"`,
		"forward . " + empty:             "forward: " + empty + " has no nameserver line",
		"forward . 192.0.2.1 " + many:    "forward: want at most 15 upstreams, got 16",
	} {
		checkSetupError(t, body, want, 2)
	}
	checkSetupError(t, "forward . tls://192.0.2.1%a.example {\n tls_servername b.example\n }",
		"forward: tls_servername b.example excludes the name %a.example in a TO: give one of them", 2)
	checkSetupError(t, "forward . 192.0.2.1 {\n max_age 9s\n }", "forward: max_age 9s is shorter than expire 10s", 2)
	checkSetupError(t, "forward . 192.0.2.1 {\n max_age 1m\n expire 2m\n }", "forward: max_age 1m0s is shorter than expire 2m0s", 2)
	checkSetupError(t, "forward . 192.0.2.1 {\n to x\n }", `forward: unknown option "to"`, 3)
	for option, want := range map[string]string{
		"except":                              "except: got no arguments, usage: except ZONES...",
		"except a..b":                         `except: not a zone: "a..b": empty label`,
		"force_tcp yes":                       "force_tcp: want no argument, got 1",
		"prefer_udp yes":                      "prefer_udp: want no argument, got 1",
		"expire":                              "expire: got no arguments, usage: expire DURATION",
		"expire x":                            `expire: want a duration of 0s..24h, got "x"`,
		"max_age -1s":                         `max_age: want a duration of 0s..8760h, got "-1s"`,
		"max_idle_conns -1":                   `max_idle_conns: want 0..1048576, got "-1"`,
		"read_timeout 2m":                     `read_timeout: want a duration of 10ms..1m, got "2m"`,
		"max_fails many":                      `max_fails: want 0..1048576, got "many"`,
		"max_connect_attempts -1":             `max_connect_attempts: want 0..1048576, got "-1"`,
		"doh_method PUT":                      `doh_method: want GET or POST, got "PUT"`,
		"tls a b c d":                         "tls: got 4 arguments, usage: tls [CERT KEY] [CA]",
		"tls /nowhere":                        "tls: open /nowhere: no such file or directory",
		"tls " + conf:                         "tls: " + conf + " has no certificate in PEM format",
		"tls " + conf + " " + conf:            "tls: tls: failed to find any PEM data in certificate input",
		"tls_servername":                      "tls_servername: got no arguments, usage: tls_servername NAME",
		"policy best":                         `policy: want random or round_robin or sequential, got "best"`,
		"health_check":                        "health_check: got no arguments, usage: health_check DURATION [no_rec] [domain NAME]",
		"health_check often":                  `health_check: want a duration of 10ms..24h, got "often"`,
		"health_check 1s domain":              `health_check: want no_rec or domain NAME, got "domain"`,
		"health_check 1s domain a..b":         `health_check: "a..b": empty label`,
		"health_check 1s rec":                 `health_check: want no_rec or domain NAME, got "rec"`,
		"max_concurrent -1":                   `max_concurrent: want 0..1073741824, got "-1"`,
		"next":                                "next: got no arguments, usage: next RCODES...",
		"next WHAT":                           `next: want response codes such as SERVFAIL or NXDOMAIN, got "WHAT"`,
		"next_on_nodata yes":                  "next_on_nodata: want no argument, got 1",
		"failfast_all_unhealthy_upstreams no": "failfast_all_unhealthy_upstreams: want no argument, got 1",
		"case_randomization on":               `case_randomization: want auto or off, got "on"`,
		"failover":                            "failover: got no arguments, usage: failover RCODES...",
		"failover NOERROR":                    "failover: NOERROR cannot be used in failover",
		"failover WHAT":                       `failover: want response codes such as SERVFAIL or NXDOMAIN, got "WHAT"`,
		"source_address lo":                   `source_address: want an IP address, got "lo"`,
		"resolver":                            "resolver: got no arguments, usage: resolver IP[:PORT]...",
		"resolver dns.example":                `resolver: want IP or IP:PORT, got "dns.example"`,
	} {
		checkSetupError(t, "forward . 192.0.2.1 {\n"+option+"\n}", "forward: "+want, 3)
	}
}

func checkSetupError(t *testing.T, body, want string, line int) {
	t.Helper()
	_, err := setup(".:53 {\n"+body+"\n}\n", slog.New(slog.DiscardHandler))
	want = "Corefile:" + string(rune('0'+line)) + ": " + want
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("%s\ngot  %s\nwant %s", body, got, want)
	}
}

func TestParseDestination(t *testing.T) {
	exists := func(path string) bool { return path == "resolv.conf" || path == "/etc/resolv.conf" }
	for text, want := range map[string]destination{
		"::1":                        {scheme: schemeDNS, addr: netip.MustParseAddrPort("[::1]:53"), port: 53},
		"[::1]":                      {scheme: schemeDNS, addr: netip.MustParseAddrPort("[::1]:53"), port: 53},
		"fe80::1%eth0":               {scheme: schemeDNS, addr: netip.MustParseAddrPort("[fe80::1%eth0]:53"), port: 53},
		"::ffff:192.0.2.1":           {scheme: schemeDNS, addr: netip.MustParseAddrPort("192.0.2.1:53"), port: 53},
		"tls://[::1]:8853":           {scheme: schemeTLS, addr: netip.MustParseAddrPort("[::1]:8853"), port: 8853},
		"tls://192.0.2.1%a.b:8853":   {scheme: schemeTLS, addr: netip.MustParseAddrPort("192.0.2.1:8853"), port: 8853, serverName: "a.b"},
		"quic://[::1]:8853":          {scheme: schemeQUIC, addr: netip.MustParseAddrPort("[::1]:8853"), port: 8853},
		"quic://192.0.2.1%a.b":       {scheme: schemeQUIC, addr: netip.MustParseAddrPort("192.0.2.1:853"), port: 853, serverName: "a.b"},
		"quic://dns.example":         {scheme: schemeQUIC, host: "dns.example", port: 853},
		"tls://dns.example":          {scheme: schemeTLS, host: "dns.example", port: 853},
		"tls://dns.example:8853":     {scheme: schemeTLS, host: "dns.example", port: 8853},
		"dns.example.":               {scheme: schemeDNS, host: "dns.example.", port: 53},
		"kube-dns":                   {scheme: schemeDNS, host: "kube-dns", port: 53},
		"resolv.conf":                {scheme: schemeDNS, file: "resolv.conf", port: 53},
		"dns:///etc/resolv.conf":     {scheme: schemeDNS, file: "/etc/resolv.conf", port: 53},
		"https://[::1]:444":          {scheme: schemeHTTPS, url: "https://[::1]:444/dns-query"},
		"https://dns.example":        {scheme: schemeHTTPS, url: "https://dns.example/dns-query"},
		"tls:///etc/resolv.conf":     {scheme: schemeTLS, file: "/etc/resolv.conf", port: 853},
		"tls://[2001:db8::1]%a.test": {scheme: schemeTLS, addr: netip.MustParseAddrPort("[2001:db8::1]:853"), port: 853, serverName: "a.test"},
	} {
		got, err := parseDestination(text, exists)
		if err != nil || got != want {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", text, err, got, want)
		}
	}
}

// Each upstream's certificate is verified for the name in its TO.
func TestTLSServerName(t *testing.T) {
	b, err := setup(".:53 {\nforward . tls://192.0.2.3%a.example tls://b.example tls://192.0.2.4 https://c.example\n}", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	o := config.Find[*Forward](b)[0].options
	s := &upstreamSet{options: o}
	var names []string
	for _, target := range s.upstreamIDs([][]netip.Addr{1: {netip.MustParseAddr("192.0.2.9")}, 3: nil}) {
		names = append(names, s.tlsConfig(target).ServerName)
	}
	if got := strings.Join(names, " "); got != "a.example b.example 192.0.2.4 " {
		t.Errorf("got server names %q, want %q", got, "a.example b.example 192.0.2.4 ")
	}
}
