package config

import (
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

func names(zones []wire.Name) string {
	var texts []string
	for _, z := range zones {
		texts = append(texts, z.String())
	}
	return strings.Join(texts, " ")
}

func token(text string) corefile.Token { return corefile.Token{Text: text, File: "Corefile", Line: 3} }

func TestParseZones(t *testing.T) {
	for _, c := range []struct{ arg, want string }{
		{".", "."},
		{"Cluster.Local", "cluster.local."},
		{"in-addr.arpa.", "in-addr.arpa."},
		{"10.0.0.0/24", "0.0.10.in-addr.arpa."},
		{"10.0.0.7/24", "0.0.10.in-addr.arpa."},
		{"10.0.0.0/8", "10.in-addr.arpa."},
		{"0.0.0.0/0", "in-addr.arpa."},
		{"10.0.0.1/32", "1.0.0.10.in-addr.arpa."},
		{"10.0.0.0/31", "0.0.0.10.in-addr.arpa. 1.0.0.10.in-addr.arpa."},
		{"10.96.0.0/14", "96.10.in-addr.arpa. 97.10.in-addr.arpa. 98.10.in-addr.arpa. 99.10.in-addr.arpa."},
		{"fd00::/8", "d.f.ip6.arpa."},
		{"2001:db8::/32", "8.b.d.0.1.0.0.2.ip6.arpa."},
		{"2001:db8::/31", "8.b.d.0.1.0.0.2.ip6.arpa. 9.b.d.0.1.0.0.2.ip6.arpa."},
		{"::/0", "ip6.arpa."},
		{"0/26.2.0.192.in-addr.arpa", "0/26.2.0.192.in-addr.arpa."},
	} {
		zones, err := ParseZones("kubernetes", []corefile.Token{token(c.arg)})
		if err != nil || names(zones) != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.arg, names(zones), err, c.want)
		}
	}
	if zones, err := ParseZones("", []corefile.Token{token("10.96.0.0/9"), token("x")}); len(zones) != 129 || err != nil {
		t.Errorf("10.96.0.0/9 and x: got %d zones, %v; want 129", len(zones), err)
	}
	for arg, want := range map[string]string{
		"10.0.0.0/33": `Corefile:3: kubernetes: "10.0.0.0/33" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8`,
		"10.0.0/24":   `Corefile:3: kubernetes: "10.0.0/24" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8`,
		"10.0.0.0/x":  `Corefile:3: kubernetes: "10.0.0.0/x" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8`,
		"fd00::/129":  `Corefile:3: kubernetes: "fd00::/129" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8`,
		"fd00::1":     `Corefile:3: kubernetes: "fd00::1" is not a zone: want a name or a CIDR like fd00::/8`,
		"a..b":        `Corefile:3: kubernetes: not a zone: "a..b": empty label`,
		"":            `Corefile:3: kubernetes: not a zone: empty name`,
	} {
		if _, err := ParseZones("kubernetes", []corefile.Token{token(arg)}); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", arg, err, want)
		}
	}
}

func TestParseKey(t *testing.T) {
	for _, c := range []struct {
		key, zones string
		port       uint16
	}{
		{".:53", ".", 53},
		{".", ".", 1053},
		{":5353", ".", 5353},
		{"example.org", "example.org.", 1053},
		{"dns://example.org:54", "example.org.", 54},
		{"dns://.", ".", 1053},
		{"10.0.0.0/24:55", "0.0.10.in-addr.arpa.", 55},
		{"10.0.0.0/23", "0.0.10.in-addr.arpa. 1.0.10.in-addr.arpa.", 1053},
		{"fd00::/8", "d.f.ip6.arpa.", 1053},
		{"fd00::/8:53", "d.f.ip6.arpa.", 53},
		{".:0", ".", 0},
		{"tls://.", ".", 853},
		{"https://.", ".", 443},
		{"grpc://.", ".", 443},
		{"quic://.", ".", 853},
		{"https3://.", ".", 443},
		{"tls://example.org:8853", "example.org.", 8853},
	} {
		keys, err := ParseKey(token(c.key), 1053)
		var zones []wire.Name
		for _, k := range keys {
			zones = append(zones, k.Zone)
			if k.Port != c.port {
				t.Errorf("%s: port: got %d, want %d", c.key, k.Port, c.port)
			}
		}
		if err != nil || names(zones) != c.zones {
			t.Errorf("%s: got %s, %v; want %s", c.key, names(zones), err, c.zones)
		}
	}
	for key, want := range map[string]string{
		"ftp://a":       `Corefile:3: ftp://a: unknown scheme "ftp", want dns://, tls://, https://, https3://, quic:// or grpc://`,
		"a:":            `Corefile:3: a:: want a port of 0..65535 after the last colon, got ""`,
		"a:65536":       `Corefile:3: a:65536: want a port of 0..65535 after the last colon, got "65536"`,
		"a:dns":         `Corefile:3: a:dns: want a port of 0..65535 after the last colon, got "dns"`,
		"10.0.0.0/33:5": `Corefile:3: "10.0.0.0/33" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8`,
	} {
		if _, err := ParseKey(token(key), 53); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", key, err, want)
		}
	}
}

func TestFallthrough(t *testing.T) {
	name := func(s string) []byte { n, _ := wire.ParseName(s); return []byte(n) }
	var f Fallthrough
	if f.Through(name("a.b")) {
		t.Error("Through(a.b) without the option = true, want false")
	}
	option := corefile.Directive{Token: token("fallthrough"), Path: "kubernetes: fallthrough"}
	if err := f.Parse(option); err != nil || !f.Through(name("a.b")) || !f.Through(name(".")) {
		t.Errorf("option without zones: %v; or Through = false, want true for every name", err)
	}
	option.Args = []corefile.Token{token("in-addr.arpa"), token("fd00::/8")}
	if err := f.Parse(option); err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]bool{
		"1.0.0.10.in-addr.arpa": true, "in-addr.arpa": true, "xin-addr.arpa": false, "arpa": false, ".": false,
		"1.d.f.ip6.arpa": true, "a.cluster.local": false,
	} {
		n := name(s)
		if got := f.Through(n); got != want {
			t.Errorf("Through(%s) = %v, want %v", s, got, want)
		}
		if allocs := testing.AllocsPerRun(10, func() { f.Through(n) }); allocs > 0 {
			t.Errorf("Through(%s): got %v allocations, want none", s, allocs)
		}
	}
}

func TestOnce(t *testing.T) {
	use := func(line int) corefile.Directive {
		return corefile.Directive{Token: corefile.Token{Text: "kubernetes", File: "Corefile", Line: line}, Path: "kubernetes"}
	}
	if err := Once([]corefile.Directive{use(2)}); err != nil {
		t.Error(err)
	}
	err := Once([]corefile.Directive{use(2), use(5), use(7)})
	want := "Corefile:5: kubernetes: already given at Corefile:2, and can be given once in a server block\n" +
		"Corefile:7: kubernetes: already given at Corefile:2, and can be given once in a server block"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
