package directive

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A fixedAnswer is a handler that adds an NSEC record to the authority section if
// signed, and then a SOA record if soa.
type fixedAnswer struct {
	code        wire.RCode
	soa, signed bool
}

func (a *fixedAnswer) ServeDNS(q *dns.Query) dns.Verdict {
	q.RCode, q.AA = a.code, true
	if a.signed {
		q.Answer.Append(wire.Authority, wire.AppendRecordHeader(nil, "\x00", wire.TypeNSEC, 5, 0), 1)
	}
	if a.soa {
		q.Answer.Append(wire.Authority, append(wire.AppendRecordHeader(nil, "\x00", wire.TypeSOA, 5, 22), make([]byte, 22)...), 1)
	}
	return dns.Done
}

func TestLog(t *testing.T) {
	edns := append(packet(t, "Name.example.org", wire.TypeA), 0, 0, 41, 1232>>8, 1232&255, 0, 0, 0x80, 0, 0, 0)
	edns[11] = 1
	tests := []struct {
		directive string
		handler   any
		want      string // for name.example.org A over UDP, then with EDNS over TCP and IPv6
	}{
		{"log", &fixedAnswer{}, `[INFO] 10.0.0.1:53012 - 4 "A IN name.example.org. udp 34 false 512" NOERROR qr,aa,rd 34 0.000102s
[INFO] [fd00::1]:9 - 4 "A IN name.example.org. tcp 45 true 65535" NOERROR qr,aa,rd 45 0.000102s
`},
		{`log . "{combined} {local}"`, &fixedAnswer{}, `[INFO] 10.0.0.1:53012 - 4 "A IN name.example.org. udp 34 false 512" NOERROR qr,aa,rd 34 0.000102s "0" 10.0.0.2
[INFO] [fd00::1]:9 - 4 "A IN name.example.org. tcp 45 true 65535" NOERROR qr,aa,rd 45 0.000102s "0" 10.0.0.2
`},
		{"log \"{\\\"q\\\":\\\"{name}\\\"}\"", &fixedAnswer{}, "[INFO] {\"q\":\"name.example.org.\"}\n[INFO] {\"q\":\"name.example.org.\"}\n"},
		{"log \"{rcode} {>rflags} {rsize}\"", &fixedVerdict{verdict: dns.Drop}, "[INFO] - - 0\n[INFO] - - 0\n"},
		{"log com example.org \"{name}\"", &fixedAnswer{}, "[INFO] name.example.org.\n[INFO] name.example.org.\n"},
		{"log com me.example.org {\nclass all\n}", &fixedAnswer{}, ""},
		// The first rule whose zone contains the name applies.
		{"log example.org {\nclass error\n}\nlog", &fixedAnswer{}, ""},
		{"log \"{rcode}\" {\nclass denial error\n}", &fixedAnswer{}, ""},
		{"log \"{rcode}\" {\nclass denial\n}", &fixedAnswer{soa: true}, "[INFO] NOERROR\n[INFO] NOERROR\n"},
		{"log \"{rcode}\" {\nclass denial\n}", &fixedAnswer{soa: true, signed: true}, "[INFO] NOERROR\n[INFO] NOERROR\n"},
		{"log \"{rcode}\" {\nclass denial\n}", &fixedAnswer{signed: true}, ""},
		{"log \"{rcode}\" {\nclass denial\n}", &fixedAnswer{code: wire.NXDomain}, "[INFO] NXDOMAIN\n[INFO] NXDOMAIN\n"},
		{"log \"{rcode}\" {\nclass error\n}", &fixedAnswer{code: wire.Refused}, "[INFO] REFUSED\n[INFO] REFUSED\n"},
		{"log \"{rcode}\" {\nclass success\nclass error\n}", &fixedAnswer{}, "[INFO] NOERROR\n[INFO] NOERROR\n"},
	}
	for _, test := range tests {
		r := run(t, ".:53 {\n"+test.directive+"\n}", test.handler)
		r.exchange(packet(t, "Name.example.org", wire.TypeA), dns.UDP, client)
		r.exchange(edns, dns.TCP, "[fd00::1]:9")
		if got := r.stop(); got != test.want {
			t.Errorf("%s\ngot\n%swant\n%s", test.directive, got, test.want)
		}
	}
}

func TestLogErrors(t *testing.T) {
	wantErrors(t, ".:53 {\nlog a..b \"{remote} {foo}\" {\nclass ok\n}\n}", `Corefile:2: log: not a zone: "a..b": empty label
Corefile:2: log: unknown placeholder {foo}; want {common}, {combined}, {json}, {type}, {name}, {class}, {proto}, {remote}, {port}, {local}, {size}, {rcode}, {rsize}, {duration}, {>id}, {>opcode}, {>do}, {>bufsize}, {>rflags} or {/PLUGIN/NAME}
Corefile:3: log: class: want success, denial, error or all, got "ok"`)
	for directive, want := range map[string]string{
		"log {/a}":                   "Corefile:2: log: {/a} is not a metadata placeholder: want {/PLUGIN/NAME}, such as {/kubernetes/namespace}",
		"log {//a}":                  "Corefile:2: log: {//a} is not a metadata placeholder: want {/PLUGIN/NAME}, such as {/kubernetes/namespace}",
		"log {/a/}":                  "Corefile:2: log: {/a/} is not a metadata placeholder: want {/PLUGIN/NAME}, such as {/kubernetes/namespace}",
		"log \"x {json}\"":           "Corefile:2: log: {json} must be at the beginning of the format",
		"log \"{json} {name}\"":      "Corefile:2: log: want only metadata placeholders after {json}, such as {/kubernetes/namespace}, got \"{name}\"",
		"log \"{json}x\"":            "Corefile:2: log: want only metadata placeholders after {json}, such as {/kubernetes/namespace}, got \"x\"",
		"log {\nclass\n}":            "Corefile:3: log: class: got no arguments, usage: class CLASSES...",
		"log {\nclasses all\n}":      `Corefile:3: log: unknown option "classes"; did you mean "class"?`,
		"log 10.0.0.0/33 ::1 {name}": "Corefile:2: log: \"10.0.0.0/33\" is not a CIDR: want one like 10.96.0.0/12 or fd00::/8\nCorefile:2: log: \"::1\" is not a zone: want a name or a CIDR like fd00::/8",
	} {
		wantErrors(t, ".:53 {\n"+directive+"\n}", want)
	}
}

// fakeMetadata provides metadata. One value contains control characters.
type fakeMetadata struct{}

func (fakeMetadata) ServeDNS(*dns.Query) dns.Verdict { return dns.Next }

func (fakeMetadata) Metadata(_ *dns.Query, key string) (string, bool) {
	v, ok := map[string]string{"x/a": "shop", "x/b.c/d": "\x00one\ntwo\x7f\"\\\xff", "x/empty": ""}[key]
	return v, ok
}

// An observerFunc is an observer.
type observerFunc func(q *dns.Query)

func (f observerFunc) ObserveDNS(q *dns.Query) { f(q) }

func TestLogMetadata(t *testing.T) {
	tests := []struct{ directives, want string }{
		{"metadata\nlog . \"{/x/a} {/x/b.c/d} {/x/empty} {/x/none}\"", "[INFO] shop \\000one\\010two\\127\"\\\xff - -\n"},
		{"log . {/x/a}", "[INFO] -\n"},
		{"metadata example.com\nlog . {/x/a}", "[INFO] -\n"},
		{"metadata\nview v\nlog . {/view/name}", "[INFO] v\n"},
	}
	for _, test := range tests {
		r := run(t, ".:53 {\n"+test.directives+"\nwhoami\n}", fakeMetadata{})
		r.exchange(packet(t, "name.example.org", wire.TypeA), dns.UDP, client)
		if got := r.stop(); got != test.want {
			t.Errorf("%s\ngot  %swant %s", test.directives, got, test.want)
		}
	}
}

func TestLogJSON(t *testing.T) {
	const head = `{"time":"1970-01-01T00:00:00.000000Z","server":"dns://:53","zone":".","view":""`
	tests := []struct {
		directives string
		handler    any
		name       string
		proto      dns.Proto
		peer       string
		want       string
	}{
		{"log . {json}", &fixedAnswer{}, "Name.example.org", dns.UDP, client,
			head + `,"remote":"10.0.0.1","port":53012,"local":"10.0.0.2","proto":"udp","id":4,"opcode":0,"class":"IN","type":"A","name":"name.example.org.","do":false,"bufsize":512,"size":34,"rcode":"NOERROR","rflags":["qr","aa","rd"],"rsize":34,"answers":0,"duration":0.000102,"by":"test"}`},
		{"log {json}", &fixedVerdict{verdict: dns.Drop}, ".", dns.TCP, "[fd00::1]:9",
			head + `,"remote":"fd00::1","port":9,"local":"10.0.0.2","proto":"tcp","id":4,"opcode":0,"class":"IN","type":"A","name":".","do":false,"bufsize":65535,"size":17,"rcode":null,"rflags":[],"rsize":0,"answers":0,"duration":0.000102,"by":"test"}`},
		{"log {json}", &fixedVerdict{verdict: dns.Done, code: wire.ServFail, err: errors.New("no \"way\"\n\x7f\xff é")}, `a\.b\"\\\010\200.x`, dns.UDP, client,
			head + `,"remote":"10.0.0.1","port":53012,"local":"10.0.0.2","proto":"udp","id":4,"opcode":0,"class":"IN","type":"A","name":"a\\.b\\\"\\\\\\010\\200.x.","do":false,"bufsize":512,"size":27,"rcode":"SERVFAIL","rflags":["qr","rd"],"rsize":27,"answers":0,"duration":0.000102,"by":"test","error":"no \"way\"\u000a\u007f` + "\uFFFD" + ` é"}`},
		{"metadata\nview v\nlog . \"{json} {/x/a} {/x/b.c/d} {/x/empty} {/view/name}\"\nwhoami", fakeMetadata{}, "a", dns.UDP, client,
			strings.Replace(head, `"view":""`, `"view":"v"`, 1) + `,"remote":"10.0.0.1","port":53012,"local":"10.0.0.2","proto":"udp","id":4,"opcode":0,"class":"IN","type":"A","name":"a.","do":false,"bufsize":512,"size":19,"rcode":"NOERROR","rflags":["qr","aa","rd"],"rsize":59,"answers":0,"duration":0.000102,"by":"whoami","metadata":{"x/a":"shop","x/b.c/d":"\u0000one\u000atwo\u007f\"\\` + "\uFFFD" + `","x/empty":null,"view/name":"v"}}`},
	}
	page, err := os.ReadFile("../docs/reference/directives/log.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ = bytes.Cut(page, []byte(" Its keys, in this order, are "))
	sentence, _, _ := bytes.Cut(page, []byte(". "))
	order := strings.FieldsFunc(string(sentence), func(r rune) bool { return strings.ContainsRune("`, \n", r) })
	for _, test := range tests {
		r := run(t, ".:53 {\n"+test.directives+"\n}", test.handler)
		r.exchange(packet(t, test.name, wire.TypeA), test.proto, test.peer)
		got := r.stop()
		if got != test.want+"\n" {
			t.Errorf("%s\ngot  %swant %s", test.directives, got, test.want)
		}
		if keys := keysInOrder(t, got); !subsequence(keys, order) {
			t.Errorf("%s: got the keys %q, want those of the page of log in its order, %q", test.directives, keys, order)
		}
	}
}

// keysInOrder returns the keys of a JSON object as they are written.
func keysInOrder(t *testing.T, object string) (keys []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(object))
	if _, err := d.Token(); err != nil {
		t.Fatalf("got invalid JSON %s: %v", object, err)
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err := errors.Join(err, d.Decode(&value)); err != nil {
			t.Fatalf("got invalid JSON %s: %v", object, err)
		}
		keys = append(keys, key.(string))
	}
	return keys
}

// subsequence reports whether all has the strings of some, in their order.
func subsequence(some, all []string) bool {
	for _, s := range all {
		if len(some) > 0 && some[0] == s {
			some = some[1:]
		}
	}
	return len(some) == 0
}

// Strings that appendString writes are decoded to the same string.
func FuzzJSONString(f *testing.F) {
	f.Add("")
	f.Add("a\x00\x1f\"\\/\x7f\xc3\x28\xe2\x82\xac\xf0\x9f\x98\x80\xed\xa0\x80\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		written := appendString(nil, s)
		var read string
		if err := json.Unmarshal(written, &read); err != nil {
			t.Fatalf("appendString(%q) = %s: %v", s, written, err)
		}
		if want := string([]rune(s)); read != want { // invalid bytes become U+FFFD
			t.Errorf("appendString(%q): decoded %q, want %q", s, read, want)
		}
		if bytes.ContainsFunc(written, func(r rune) bool { return r < ' ' }) {
			t.Errorf("appendString(%q) = %q, want no control characters", s, written)
		}
	})
}

// Formatting a log line does not allocate.
func TestLogAllocations(t *testing.T) {
	for _, text := range []string{combinedFormat, "{name} {/view/name} {/x/none}", "{json} {/view/name} {/x/none}"} {
		f, err := parseFormat(text)
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, ".:53 {\nmetadata\nview v\nwhoami\n}")
		f.bindMetadata(r.block)
		n := -1.0
		r.block.Chain.Observe(observerFunc(func(q *dns.Query) {
			n = testing.AllocsPerRun(100, func() {
				var buf [1024]byte
				_ = f.append(buf[:0], q)
			})
		}))
		r.route()
		r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
		if n != 0 {
			t.Errorf("%s: got %v allocations, want 0", text, n)
		}
	}
}

// The log has the ID of the trace of a followed query.
func TestLogTraceID(t *testing.T) {
	r := run(t, ".:53 {\nmetadata\ntrace 127.0.0.1:1 {\nevery 2\n}\nlog . \"{/trace/traceid}\"\nwhoami\n}")
	for range 2 {
		r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	}
	if got := r.stop(); !regexp.MustCompile(`^(\S* )?-\n(\S* )?[0-9a-f]{32}\n$`).MatchString(got) {
		t.Errorf("got\n%swant a line without and one with an ID", got)
	}
}
