package sidecar

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestParseProbe(t *testing.T) {
	const s = time.Second
	for text, want := range map[string]Probe{
		"kubedns,127.0.0.1:10053,kubernetes.default.svc.cluster.local,5,SRV": {"kubedns", "127.0.0.1:10053", "kubernetes.default.svc.cluster.local.", 5 * s, dns.TypeSRV},
		"dnsmasq,127.0.0.1,example.org.":                                     {"dnsmasq", "127.0.0.1:53", "example.org.", 5 * s, dns.TypeANY},
		"a_B9,kube-dns,example.org,10":                                       {"a_B9", "kube-dns:53", "example.org.", 10 * s, dns.TypeANY},
		"9,kube-dns:domain,example.org,+1,ANY":                               {"9", "kube-dns:domain", "example.org.", s, dns.TypeANY},
		"v6,[::1]:1053,example.org,1,A":                                      {"v6", "[::1]:1053", "example.org.", s, dns.TypeA},
		"v6,[::1],example.org,1,AAAA":                                        {"v6", "[::1]:53", "example.org.", s, dns.TypeAAAA},
		"v6,fe80::1,example.org":                                             {"v6", "[fe80::1]:53", "example.org.", 5 * s, dns.TypeANY},
		"empty,,":                                                            {"empty", ":53", ".", 5 * s, dns.TypeANY},
		"year,a,b,31536000":                                                  {"year", "a:53", "b.", 31536000 * s, dns.TypeANY},
	} {
		got, err := ParseProbe(text)
		if err != nil || got != want {
			t.Errorf("ParseProbe(%q): got %v, error %v, want %v", text, got, err, want)
		}
	}

	for text, want := range map[string]string{
		"":                               "invalid format to --probe: want LABEL,SERVER[:PORT],NAME[,SECONDS][,TYPE]",
		"a":                              "invalid format to --probe: want LABEL,SERVER[:PORT],NAME[,SECONDS][,TYPE]",
		"a,b":                            "invalid format to --probe: want LABEL,SERVER[:PORT],NAME[,SECONDS][,TYPE]",
		"a,b,c,1,A,":                     "invalid format to --probe: want LABEL,SERVER[:PORT],NAME[,SECONDS][,TYPE]",
		"a,b,c,1,A,x":                    "invalid format to --probe: want LABEL,SERVER[:PORT],NAME[,SECONDS][,TYPE]",
		",b,c":                           "label must be of format ^[a-zA-Z0-9_]+$",
		"a-b,b,c":                        "label must be of format ^[a-zA-Z0-9_]+$",
		"a b,b,c":                        "label must be of format ^[a-zA-Z0-9_]+$",
		"a\n,b,c":                        "label must be of format ^[a-zA-Z0-9_]+$",
		"ä,b,c":                          "label must be of format ^[a-zA-Z0-9_]+$",
		"a/../b,b,c":                     "label must be of format ^[a-zA-Z0-9_]+$",
		"a,b,c,0.5":                      `strconv.Atoi: parsing "0.5": invalid syntax`,
		"a,b,c,":                         `strconv.Atoi: parsing "": invalid syntax`,
		"a,b,c,A":                        `strconv.Atoi: parsing "A": invalid syntax`,
		"a,b,c,5s,A":                     `strconv.Atoi: parsing "5s": invalid syntax`,
		"a,b,c,5 ,A":                     `strconv.Atoi: parsing "5 ": invalid syntax`,
		"a,b,c,99999999999999999999":     `strconv.Atoi: parsing "99999999999999999999": value out of range`,
		"a,b,c,0":                        "invalid interval of --probe: want 1..9223372036 seconds, got 0",
		"a,b,c,-5,A":                     "invalid interval of --probe: want 1..9223372036 seconds, got -5",
		"a,b,c,9223372037":               "invalid interval of --probe: want 1..9223372036 seconds, got 9223372037",
		"a,b,c,5,":                       "invalid type for DNS: ",
		"a,b,c,5,a":                      "invalid type for DNS: a",
		"a,b,c,5,MX":                     "invalid type for DNS: MX",
		"a,b,c,5,srv ":                   "invalid type for DNS: srv ",
		"a,127.0.0.1:,c":                 `invalid server of --probe: want a port of 0..65535, got ""`,
		"a,127.0.0.1:123456789,c":        `invalid server of --probe: want a port of 0..65535, got "123456789"`,
		"a,127.0.0.1:dmoain,c":           `invalid server of --probe: want a port of 0..65535, got "dmoain"`,
		"a,1:2:3,c":                      "invalid server of --probe: address 1:2:3: too many colons in address",
		"a,b,c..d":                       `invalid name of --probe: "c..d" is not a domain name`,
		"a,b," + strings.Repeat("x", 64): `invalid name of --probe: "` + strings.Repeat("x", 64) + `" is not a domain name`,
	} {
		if got, err := ParseProbe(text); err == nil || err.Error() != want {
			t.Errorf("ParseProbe(%q): got %v, error %v\nwant error %s", text, got, err, want)
		}
	}
}

func TestOptionsCheck(t *testing.T) {
	good := Options{Dnsmasq: "127.0.0.1:53", Poll: 5 * time.Second, Path: "/metrics", Namespace: "kubedns"}
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(*Options) {}, ""},
		{func(o *Options) { o.Namespace = "" }, ""},
		{func(o *Options) { o.Path = "/" }, ""},
		{func(o *Options) { o.Probes = []Probe{{Label: "a"}, {Label: "b"}} }, ""},
		{func(o *Options) { o.Probes = []Probe{{Label: "a"}, {Label: "b"}, {Label: "a"}} }, "--probe: two probes have the label a:"},
		{func(o *Options) { o.Poll = 0 }, "--dnsmasq-poll-interval-ms: want at least 1, got 0"},
		{func(o *Options) { o.Poll = -time.Second }, "--dnsmasq-poll-interval-ms: want at least 1, got -1000"},
		{func(o *Options) { o.Path = "metrics" }, "--prometheus-path: "},
		{func(o *Options) { o.Path = "" }, "--prometheus-path: "},
		{func(o *Options) { o.Path = "/healthz" }, "--prometheus-path: "},
		{func(o *Options) { o.Path = "/healthcheck/kubedns" }, "--prometheus-path: "},
		{func(o *Options) { o.Namespace = "9a" }, "--prometheus-namespace: "},
		{func(o *Options) { o.Namespace = "kube-dns" }, "--prometheus-namespace: "},
	} {
		o := good
		c.change(&o)
		if err := o.Check(); (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: got error %v, want %q", o, err, c.want)
		}
	}
}
