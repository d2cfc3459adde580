package expression

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// query returns a query of the client 10.0.0.1 with EDNS and DO.
func query(t testing.TB, name string, qtype wire.Type, proto dns.Proto) *dns.Query {
	t.Helper()
	n, err := wire.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	packet := wire.AppendRequest(nil, 4711, wire.FlagRD, []byte(n), qtype)
	packet = append(packet, 0, 0, 41, 1232>>8, 1232&255, 0, 0, 0x80, 0, 0, 0)
	packet[11] = 1
	q := dns.NewQuery(nil)
	q.Reset(packet, proto, time.Unix(0, 0))
	q.Peer, q.Local = netip.MustParseAddrPort("10.0.0.1:53012"), netip.MustParseAddrPort("[fe80::53%eth0]:53")
	if fault := q.Parse(packet); fault != wire.NoFault {
		t.Fatal(fault)
	}
	return q
}

// known returns the metadata of every query.
func known(_ *dns.Query, key string) string {
	return map[string]string{"kubernetes/namespace": "shop", "x/cidr": "10.0.0.0/40"}[key]
}

func TestFunctions(t *testing.T) {
	q := query(t, "Api.example.org", wire.TypeAAAA, dns.UDP)
	for text, want := range map[string]any{
		"bufsize()":                          1232,
		"class()":                            "IN",
		"client_ip()":                        "10.0.0.1",
		"do()":                               true,
		"id()":                               4711,
		"name()":                             "api.example.org.",
		"opcode()":                           0,
		"port()":                             "53012",
		"proto()":                            "udp",
		"server_ip()":                        "fe80::53",
		"server_port()":                      "53",
		"size()":                             44,
		"type()":                             "AAAA",
		"incidr(client_ip(), '10.0.0.0/8')":  true,
		"incidr(client_ip(), '10.0.0.9/8')":  true,
		"incidr(client_ip(), '10.1.0.0/16')": false,
		"incidr(client_ip(), 'fd00::/8')":    false,
		"incidr(server_ip(), 'fe80::/10')":   true,
		"incidr(server_ip(), '[fe80::]/10')": true,
		"incidr(server_ip(), '[fd00::]/8')":  false,
		"incidr('::ffff:10.0.0.1', '10.0.0.0/8')":                   true,
		"metadata('kubernetes/namespace')":                          "shop",
		"metadata('kubernetes/nothing')":                            "",
		"name() matches '^api\\\\.example'":                         true,
		"name() matches `^api\\.example`":                           true,
		"name() endsWith 'example.org.' and type() in ['A','AAAA']": true,
		"split(name(), '.')[1]":                                     "example",
		"size() > 512 ? 'large' : 'small'":                          "small",
	} {
		e, err := Value(text, Names{Metadata: known})
		if err != nil {
			t.Errorf("%s: got error %v, want none", text, err)
			continue
		}
		if got, err := e.Value(q); got != want || err != nil {
			t.Errorf("%s = %v, error %v; want %v", text, got, err, want)
		}
		if e.String() != text {
			t.Errorf("String() = %s, want %s", e, text)
		}
	}
	e, err := Value("bufsize()", Names{Metadata: known})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.Value(query(t, "a", wire.TypeA, dns.TCP)); got != 65535 || err != nil {
		t.Errorf("bufsize() over TCP = %v, error %v; want 65535", got, err)
	}
}

// Special characters are escaped, so that the text identifies the name.
func TestNameEscaped(t *testing.T) {
	e, err := Value("name()", Names{Metadata: known})
	if err != nil {
		t.Fatal(err)
	}
	const escaped = `a\.b\"\010.example.`
	if got, err := e.Value(query(t, escaped, wire.TypeA, dns.UDP)); got != escaped || err != nil {
		t.Errorf("name() = %v, error %v; want %s", got, err, escaped)
	}
}

func TestConditionErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "want an expression, got nothing",
		"nome() == 'a'":                      "unknown name nome, at character 1 of nome() == 'a'",
		"type()":                             "want true or false, got string, in type()",
		"size()":                             "want true or false, got int, in size()",
		"type == 'A'":                        "invalid operation: == (mismatched types func() string and string), at character 6 of type == 'A'",
		"port() == 53":                       "invalid operation: == (mismatched types string and int), at character 8 of port() == 53",
		"do() do()":                          `unexpected token Identifier("do"), at character 6 of do() do()`,
		"name() +":                           "unexpected token EOF, at character 8 of name() +",
		"name() matches '('":                 "error parsing regexp: missing closing ): `(`, at character 8 of name() matches '('",
		`name() matches 'a\.b'`:              `invalid char escape (write a backslash twice, or the string between backquotes), at character 19 of name() matches 'a\.b'`,
		"incidr(client_ip())":                "not enough arguments to call incidr, at character 1 of incidr(client_ip())",
		"incidr('a', 'fd00::')":              `incidr: "fd00::" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8, at character 13 of incidr('a', 'fd00::')`,
		"metadata(1) == 'a'":                 "cannot use int as argument (type string) to call metadata, at character 10 of metadata(1) == 'a'",
		"incidr('a', 'fd00::/8')":            `incidr: "a" is not an IP address, at character 8 of incidr('a', 'fd00::/8')`,
		"incidr(client_ipp(), '10.0.0.0/8')": "unknown name client_ipp, at character 8 of incidr(client_ipp(), '10.0.0.0/8')",
		"do() || incidr(client_ip(), lower(nome()))": "unknown name nome, at character 35 of do() || incidr(client_ip(), lower(nome()))",
		"incidr(size(), 'fd::/8')":                   "cannot use int as argument (type string) to call incidr, at character 8 of incidr(size(), 'fd::/8')",
	} {
		if _, err := Condition(text, Names{Metadata: known}); err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// A condition that fails for a query is false and returns the error.
func TestTrueEvaluationErrors(t *testing.T) {
	q := query(t, "a", wire.TypeA, dns.UDP)
	for text, want := range map[string]string{
		"incidr(client_ip(), metadata('x/cidr'))": `incidr: "10.0.0.0/40" is not a CIDR`,
		"incidr(name(), '10.0.0.0/8')":            `incidr: "a." is not an IP address`,
		"fromJSON('3')":                           "invalid operation: bool(float64), at character 1 of",
		"split(name(), '.')[7] == 'a'":            "index out of range",
	} {
		e, err := Condition(text, Names{Metadata: known})
		if err != nil {
			t.Fatal(err)
		}
		holds, err := e.True(q)
		if holds || err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s = %v, error %v; want false, %s", text, holds, err, want)
		}
	}
}

func TestExpressionConcurrentUse(t *testing.T) {
	e, err := Condition("name() == lower(type()) + '.'", Names{Metadata: known})
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for i, name := range []string{"a", "aaaa", "txt", "a"} {
		q := query(t, name, []wire.Type{wire.TypeA, wire.TypeAAAA, wire.TypeTXT, wire.TypeMX}[i], dns.UDP)
		readers.Go(func() {
			for range 200 {
				if holds, err := e.True(q); holds != (i < 3) || err != nil {
					t.Errorf("%s %s: got %v, error %v; want %v", name, q.Type, holds, err, i < 3)
				}
			}
		})
	}
	readers.Wait()
}

// An expression allocates an interface value for each string that a function
// returns, the text of each string that is built, and each number above 255.
func TestAllocations(t *testing.T) {
	q := query(t, "api.example.org", wire.TypeAAAA, dns.UDP)
	for text, limit := range map[string]float64{
		"do() and opcode() == 0":            0,
		"bufsize() < 4096":                  1,
		"type() == 'AAAA'":                  1,
		"name() == 'api.example.org.'":      2,
		"incidr(client_ip(), '10.0.0.0/8')": 4, // two, incidr's arguments and their count
	} {
		e, err := Condition(text, Names{Metadata: known})
		if err != nil {
			t.Fatal(err)
		}
		m := newMachine(known)
		got := testing.AllocsPerRun(100, func() {
			if v, err := m.run(e.program, q, Scope{}); v != true || err != nil {
				t.Errorf("%s = %v, error %v; want true", text, v, err)
			}
		})
		if got > limit {
			t.Errorf("%s: got %v allocations, want at most %v", text, got, limit)
		}
	}
}

// Deeply nested parentheses must not overflow the stack.
func TestExpressionTooLong(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("(", n) + "true" + strings.Repeat(")", n) }
	if _, err := Condition(nested(maxLength/2-2), Names{Metadata: known}); err != nil {
		t.Errorf("%d bytes: got %.80v, want no error", maxLength, err)
	}
	_, err := Condition(nested(maxLength/2-1), Names{Metadata: known})
	if want := "want an expression of at most 65536 bytes, got 65538"; err == nil || err.Error() != want {
		t.Errorf("got %.80v, want %s", err, want)
	}
}

// A prefix with brackets is accepted with a warning; other brackets are not.
func TestBracketedPrefix(t *testing.T) {
	for text, want := range map[string]string{
		"incidr(client_ip(), 'fd00::/8')":                      "",
		"incidr(client_ip(), '[fd00::]/8') || do()":            "incidr: '[fd00::]/8' is read as 'fd00::/8', and matches nothing in CoreDNS: write it without brackets",
		"do() && incidr(server_ip(), '[::ffff:10.0.0.0]/104')": "incidr: '[::ffff:10.0.0.0]/104' is read as '::ffff:10.0.0.0/104', and matches nothing in CoreDNS: write it without brackets",
	} {
		e, err := Condition(text, Names{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := ""
		if e.Warning() != nil {
			got = e.Warning().Error()
		}
		if got != want {
			t.Errorf("%s: warned %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"[10.0.0.0]/8", "[fd00::/8]", "[fd00::]", "[fd00::]/129", "fd00::]/8", "[fd00::8"} {
		if _, err := Condition("incidr(client_ip(), '"+text+"')", Names{}); err == nil {
			t.Errorf("%s: accepted, want an error", text)
		}
	}
}
