package kubednsconfig

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	long := strings.Repeat(label63+".", 3) + strings.Repeat("a", 61) // of 253 bytes
	for _, c := range []struct {
		name, key, value string
		want             string // of the Config
	}{
		{"comma", federations, "abc=d.e.f", "federation=abc:d.e.f"},
		{"comma, several", federations, "prod=example.org,dev=example.net", "federation=dev:example.net federation=prod:example.org"},
		{"comma, spaces", federations, " prod = example.org , dev=example.net\n", "federation=dev:example.net federation=prod:example.org"},
		{"no federations", federations, "", ""},
		{"no federations, a line", federations, " \n", ""},
		{"JSON", federations, `{"prod": "example.org", "dev": "example.net"}`, "federation=dev:example.net federation=prod:example.org"},
		{"JSON, none", federations, ` {} `, ""},
		{"name of digits", federations, "1=2", "federation=1:2"},
		{"longest name", federations, label63 + "=a", "federation=" + label63 + ":a"},

		{"address", stubDomains, `{"acme.local": ["1.2.3.4"]}`, "acme.local=[1.2.3.4:53]"},
		{"name", stubDomains, `{"acme.local": ["ns.foo.com"]}`, "acme.local=[ns.foo.com]"},
		{"order", stubDomains, `{"b.local": ["2.2.2.2", "1.1.1.1", "a"], "a.local": ["3.3.3.3"]}`, "a.local=[3.3.3.3:53] b.local=[2.2.2.2:53 1.1.1.1:53 a]"},
		{"ports", stubDomains, `{"a": ["1.2.3.4:1", "1.2.3.4:65535", "[2001:db8::1]:5353"]}`, "a=[1.2.3.4:1 1.2.3.4:65535 [2001:db8::1]:5353]"},
		{"IPv6", stubDomains, `{"a": ["2001:db8::1", "::ffff:1.2.3.4"]}`, "a=[[2001:db8::1]:53 1.2.3.4:53]"},
		{"mixed up", stubDomains, `{"a": ["1.2.3.4", "ns", "1.2.3.4:5353"]}`, "a=[1.2.3.4:53 ns 1.2.3.4:5353]"},
		{"no domains", stubDomains, `{}`, ""},
		{"null", stubDomains, `null`, ""},
		{"no servers", stubDomains, `{"a": [], "b": null, "c": ["1.1.1.1"]}`, "c=[1.1.1.1:53]"},
		{"reverse", stubDomains, `{"10.in-addr.arpa": ["1.1.1.1"]}`, "10.in-addr.arpa=[1.1.1.1:53]"},
		{"longest domain", stubDomains, `{"` + long + `": ["1.1.1.1"]}`, long + "=[1.1.1.1:53]"},
		{"a number too large is a name", stubDomains, `{"a": ["1.1.1.256"]}`, "a=[1.1.1.256]"},
		{"escapes", stubDomains, `{"\u0061.local": ["\u0031.1.1.1"]}`, "a.local=[1.1.1.1:53]"},
		{"lines", stubDomains, "\n{\n  \"a\" :\n [ \"1.1.1.1\" ]\n}\n", "a=[1.1.1.1:53]"},

		{"three", upstreams, `["1.1.1.1", "2.2.2.2:5353", "[::1]:53"]`, "upstreams=[1.1.1.1:53 2.2.2.2:5353 [::1]:53]"},
		{"order of upstreams", upstreams, `["2.2.2.2", "1.1.1.1", "2.2.2.2"]`, "upstreams=[2.2.2.2:53 1.1.1.1:53 2.2.2.2:53]"},
		{"no upstreams", upstreams, `[]`, ""},
		{"null upstreams", upstreams, `null`, ""},

		{"unknown key", "stubdomains", `{"a": ["1.2.3.4"]}`, ""},
		{"unknown key, no text", "logo.png", "\x89PNG\xff", ""},
	} {
		t.Run(c.key+"/"+c.name, func(t *testing.T) {
			got, err := Parse(map[string]string{c.key: c.value})
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != c.want {
				t.Errorf("%.100q:\ngot  %s\nwant %s", c.value, got, c.want)
			}
		})
	}
}

// An error names the key, the value and the expected form.
func TestParseInvalid(t *testing.T) {
	for _, c := range []struct {
		name, key, value string
		want             []string // an error for each
	}{
		{"dots in a name", federations, "a.b=cdef", []string{wantLabel + `, got "a.b"`}},
		{"domain", federations, "a=$$$$", []string{wantDomain + `, got "$$$$"`}},
		{"both", federations, "$=$$", []string{wantLabel + `, got "$"`, wantDomain + `, got "$$"`}},
		{"upper case", federations, "A=b", []string{wantLabel + `, got "A"`}},
		{"long name", federations, strings.Repeat("a", 64) + "=b", []string{wantLabel + `, got "aaa`}},
		{"no domain", federations, "a=", []string{wantDomain + `, got ""`}},
		{"no name", federations, "=a", []string{wantLabel + `, got ""`}},
		{"no sign", federations, "abc", []string{wantFederation + `, got "abc"`}},
		{"comma at the end", federations, "a=b,", []string{wantFederation + `, got ""`}},
		{"half", federations, "a=b,pro", []string{wantFederation + `, got "pro"`}},
		{"two signs", federations, "a=b=c", []string{wantDomain + `, got "b=c"`}},
		{"twice", federations, "a=b,a=c", []string{`want each name once, got "a"`}},
		{"dot at the end", federations, "a=example.org.", []string{wantDomain + `, got "example.org."`}},
		{"JSON twice", federations, `{"a":"b","a":"b"}`, []string{`want each name once, got "a"`}},
		{"JSON number", federations, `{"a":1}`, []string{"a: " + wantDomain + `, got "1"`}},
		{"JSON null", federations, `{"a":null}`, []string{"a: " + wantDomain + `, got "null"`}},
		{"JSON half", federations, `{"a":"b`, []string{wantFederation + `, or a JSON object such as {"name": "example.org"}; at byte 7: unexpected end of JSON input: got "{\"a\":\"b"`}},
		{"JSON array", federations, `["a=b"]`, []string{wantLabel + `, got "[\"a"`, wantDomain + `, got "b\"]"`}},
		{"not UTF-8", federations, "a=b\xff", []string{`want UTF-8, got "a=b\xff"`}},

		{"port", stubDomains, `{"foo.com": ["1.1.1.1:123456789"]}`, []string{`"foo.com": ` + wantServer + `, got "1.1.1.1:123456789"`}},
		{"port 0", stubDomains, `{"foo.com": ["1.1.1.1:0"]}`, []string{`"foo.com": ` + wantServer + `, got "1.1.1.1:0"`}},
		{"port 65536", stubDomains, `{"foo.com": ["[::1]:65536"]}`, []string{`"foo.com": ` + wantServer + `, got "[::1]:65536"`}},
		{"no port", stubDomains, `{"foo.com": ["1.1.1.1:"]}`, []string{`"foo.com": ` + wantServer + `, got "1.1.1.1:"`}},
		{"port of letters", stubDomains, `{"foo.com": ["1.1.1.1:abc"]}`, []string{`"foo.com": ` + wantServer + `, got "1.1.1.1:abc"`}},
		{"signed port", stubDomains, `{"foo.com": ["1.1.1.1:+53"]}`, []string{`"foo.com": ` + wantServer + `, got "1.1.1.1:+53"`}},
		{"name and port", stubDomains, `{"foo.com": ["ns.foo.com:53"]}`, []string{`"foo.com": ` + wantServer + `, got "ns.foo.com:53"`}},
		{"brackets", stubDomains, `{"foo.com": ["[::1]"]}`, []string{`"foo.com": ` + wantServer + `, got "[::1]"`}},
		{"interface", stubDomains, `{"foo.com": ["fe80::1%eth0"]}`, []string{`"foo.com": ` + wantServer + `, got "fe80::1%eth0"`}},
		{"server", stubDomains, `{"foo.com": ["$$$$"]}`, []string{`"foo.com": ` + wantServer + `, got "$$$$"`}},
		{"upper case server", stubDomains, `{"foo.com": ["NS.foo.com"]}`, []string{`"foo.com": ` + wantServer + `, got "NS.foo.com"`}},
		{"empty server", stubDomains, `{"foo.com": [""]}`, []string{`"foo.com": ` + wantServer + `, got ""`}},
		{"space", stubDomains, `{"foo.com": [" 1.1.1.1"]}`, []string{`"foo.com": ` + wantServer + `, got " 1.1.1.1"`}},
		{"null server", stubDomains, `{"foo.com": [null]}`, []string{`"foo.com": ` + wantServer + `, got "null"`}},
		{"number", stubDomains, `{"foo.com": [1]}`, []string{`"foo.com": ` + wantServer + `, got "1"`}},
		{"no list", stubDomains, `{"foo.com": "1.1.1.1"}`, []string{`"foo.com": want a list of nameservers such as ["1.2.3.4"], got "\"1.1.1.1\""`}},
		{"domain", stubDomains, `{"$$$$": ["1.2.3.4"]}`, []string{wantDomain + `, got "$$$$"`}},
		{"empty domain", stubDomains, `{"": ["1.2.3.4"]}`, []string{wantDomain + `, got ""`}},
		{"root", stubDomains, `{".": ["1.2.3.4"]}`, []string{wantDomain + `, got "."`}},
		{"upper case domain", stubDomains, `{"Foo.com": ["1.2.3.4"]}`, []string{wantDomain + `, got "Foo.com"`}},
		{"underscore", stubDomains, `{"_foo.com": ["1.2.3.4"]}`, []string{wantDomain + `, got "_foo.com"`}},
		{"dot at the end of a domain", stubDomains, `{"foo.com.": ["1.2.3.4"]}`, []string{wantDomain + `, got "foo.com."`}},
		{"long label", stubDomains, `{"` + strings.Repeat("a", 64) + `": ["1.2.3.4"]}`, []string{wantDomain + `, got "aaa`}},
		{"long domain", stubDomains, `{"` + strings.Repeat("a.", 127) + `a": ["1.2.3.4"]}`, []string{wantDomain + `, got "a.a`}},
		{"domain twice", stubDomains, `{"foo.com": ["1.2.3.4"], "foo.com": ["1.2.3.5"]}`, []string{`want each domain once, got "foo.com"`}},
		{"nothing", stubDomains, ``, []string{wantStubs + `; at byte 0: unexpected end of JSON input: got ""`}},
		{"half", stubDomains, `{"foo.com": ["1.2.3`, []string{wantStubs + `; at byte 19: unexpected end of JSON input: got "{\"foo.com\": [\"1.2.3"`}},
		{"more behind", stubDomains, `{} {}`, []string{wantStubs + `; at byte 4: invalid character '{' after top-level value: got "{} {}"`}},
		{"array", stubDomains, `["foo.com"]`, []string{wantStubs + `, got "[\"foo.com\"]"`}},
		{"comma form", stubDomains, `foo.com=1.2.3.4`, []string{wantStubs + `; at byte 2: invalid character 'o' in literal false (expecting 'a'): got "foo.com=1.2.3.4"`}},
		{"not UTF-8", stubDomains, "{\"foo\xff\": []}", []string{`want UTF-8, got "{\"foo\xff\": []}"`}},
		{"several", stubDomains, `{"$": ["$$"], "a": ["$$$", "1.1.1.1", "$$$$"]}`, []string{`got "$"`, `"$": ` + wantServer + `, got "$$"`, `"a": ` + wantServer + `, got "$$$"`, `"a": ` + wantServer + `, got "$$$$"`}},

		{"four", upstreams, `["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]`, []string{`want at most 3 nameservers, got 4: "[\"1.1.1.1\", \"2.2.2.2\", \"3.3.3.3\", \"4.4.4.4\"]"`}},
		{"name", upstreams, `["ns.foo.com"]`, []string{wantAddress + `, got "ns.foo.com"`}},
		{"port", upstreams, `["1.1.1.1:123456789"]`, []string{wantAddress + `, got "1.1.1.1:123456789"`}},
		{"letters", upstreams, `["1.1.1.1:abc"]`, []string{wantAddress + `, got "1.1.1.1:abc"`}},
		{"no port", upstreams, `["1.1.1.1:"]`, []string{wantAddress + `, got "1.1.1.1:"`}},
		{"dollars", upstreams, `["$$$$"]`, []string{wantAddress + `, got "$$$$"`}},
		{"string", upstreams, `"1.1.1.1"`, []string{wantUpstreams + `, got "\"1.1.1.1\""`}},
		{"object", upstreams, `{"a": ["1.1.1.1"]}`, []string{wantUpstreams + `, got "{\"a\": [\"1.1.1.1\"]}"`}},
		{"half", upstreams, `["1.1.1.1`, []string{wantUpstreams + `; at byte 9: unexpected end of JSON input: got "[\"1.1.1.1"`}},
		{"nothing", upstreams, ` `, []string{wantUpstreams + `; at byte 1: unexpected end of JSON input: got " "`}},
		{"not UTF-8", upstreams, "[\"1.1.1.1\xff\"]", []string{`want UTF-8, got "[\"1.1.1.1\xff\"]"`}},
	} {
		t.Run(c.key+"/"+c.name, func(t *testing.T) {
			// One invalid key discards the valid ones, too.
			data := map[string]string{federations: "good=example.org", stubDomains: `{"good.local": ["10.0.0.1"]}`, upstreams: `["10.0.0.2"]`}
			data[c.key] = c.value
			got, err := Parse(data)
			if err == nil {
				t.Fatalf("%s: %q: parsed as %q, want an error", c.key, c.value, got)
			}
			if !got.Equal(Config{}) {
				t.Errorf("%s: %q: the error comes with Config %q, want the default", c.key, c.value, got)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("%s: %q: %d errors, want %d:\n%v", c.key, c.value, len(lines), len(c.want), err)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(lines[i], c.key+": ") || !strings.Contains(lines[i], want) {
					t.Errorf("%s: %q:\ngot  %s\nwant %s: … %s", c.key, c.value, lines[i], c.key, want)
				}
			}
		})
	}
}

// Parse reports the mistakes of all keys at once.
func TestParseAllErrors(t *testing.T) {
	_, err := Parse(map[string]string{federations: "a", stubDomains: "b", upstreams: "c"})
	var keys []string
	for line := range strings.SplitSeq(fmt.Sprint(err), "\n") {
		key, _, _ := strings.Cut(line, ":")
		keys = append(keys, key)
	}
	if want := []string{federations, stubDomains, upstreams}; !slices.Equal(keys, want) {
		t.Errorf("errors of %q, want %q: %v", keys, want, err)
	}
}

func TestQuote(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{"", `""`},
		{strings.Repeat("a", 80), `"` + strings.Repeat("a", 80) + `"`},
		{strings.Repeat("a", 1<<20), `"` + strings.Repeat("a", 80) + `" and 1048496 more bytes`},
		{strings.Repeat("a", 79) + "€uro", `"` + strings.Repeat("a", 79) + `" and 6 more bytes`},
		{strings.Repeat("\xbf", 100), `"` + strings.Repeat(`\xbf`, 76) + `" and 24 more bytes`},
		{"a\nb", `"a\nb"`},
	} {
		if got := Quote(c.value); got != c.want {
			t.Errorf("%.100q:\ngot  %s\nwant %s", c.value, got, c.want)
		}
	}
}

// Parse accepts only valid configurations.
func FuzzParse(f *testing.F) {
	f.Add("a=b,c=d", `{"acme.local": ["1.2.3.4", "ns.foo.com"]}`, `["1.1.1.1", "[::1]:53"]`)
	f.Add(`{"a": "b"}`, `{"a": [], "a": null}`, `null`)
	f.Add("a=b\xff", `{"a": ["1.1.1.1:`, `[[]]`)
	f.Fuzz(func(t *testing.T, feds, stubs, ups string) {
		c, err := Parse(map[string]string{federations: feds, stubDomains: stubs, upstreams: ups})
		if err != nil {
			if !c.Equal(Config{}) {
				t.Errorf("error %q with Config %q, want the default", err, c)
			}
			return
		}
		if len(c.Upstreams) > maxUpstreams {
			t.Errorf("%q: %d upstreams, want at most %d", ups, len(c.Upstreams), maxUpstreams)
		}
		for i, d := range c.StubDomains {
			if !IsSubdomain(d.Domain) || len(d.Servers) == 0 || i > 0 && c.StubDomains[i-1].Domain >= d.Domain {
				t.Errorf("%q: got stub domains %s, want them valid and sorted", stubs, c)
			}
			for _, s := range d.Servers {
				if again, ok := parseServer(s.String()); !ok || again != s {
					t.Errorf("%q: server %s parsed again: got %v, want the same", stubs, s, again)
				}
			}
		}
		for i, d := range c.Federations {
			if !IsLabel(d.Name) || !IsSubdomain(d.Domain) || i > 0 && c.Federations[i-1].Name >= d.Name {
				t.Errorf("%q: got federations %s, want them valid and sorted", feds, c)
			}
		}
	})
}
