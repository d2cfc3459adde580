package rewrite

import (
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/test/chaintest"
)

// plan sets up the rewrite directives of one server block, with a metadata directive
// and the handlers below.
func plan(text string, below ...any) (*config.Block, error) {
	b, err := chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "rewrite", Setup: Setup})
	if b == nil {
		return nil, err
	}
	b.Offer(metadata{})
	b.SetDirective("below")
	for _, h := range below {
		b.Handle(h)
	}
	return b, corefile.Sorted(append(b.Planned(), err)...)
}

// metadata selects every query, as the metadata directive does.
type metadata struct{}

func (metadata) HasMetadata([]byte) bool { return true }

func TestSetupErrors(t *testing.T) {
	const fields = "name, type, class, edns0, ttl, cname, rcode"
	for _, c := range []struct{ line, want string }{
		{"", "want one of " + fields + " and its arguments"},
		{"stop", "want one of " + fields + " and its arguments"},
		{"nam a b", "want " + fields + `, got "nam"; did you mean "name"?`},
		{"stop {\n name a b {\n x\n }\n}", "Corefile:3: rewrite: name: takes no braces"},
		{"name a", "name: want 2 to 3 arguments, got 1"},
		{"name exact a", ""},
		{"name suffx a b", `name: want exact, prefix, suffix, substring or regex before 2 arguments, got "suffx"; did you mean "suffix"?`},
		{"name exact a..b c", `name: "a..b": empty label`},
		{"name exact c a..b", `name: "a..b": empty label`},
		{"name substring \"\" b", `name: substring: want some text, got ""`},
		{"name regex a( b", "name: error parsing regexp: missing closing ): `a(`"},
		{"name regex a b{1}", "name: {1}: the regular expression has 0 groups"},
		{"name regex (a) {0}{1}{2}", "name: {2}: the regular expression has 1 groups"},
		{"name regex (a) {x}{1}{", ""},
		{"name exact a b auto", `name: want answer, got "auto"`},
		{"name a b answer", "name: answer: want auto, name REGEX NAME or value REGEX NAME"},
		{"name a b answer auto answer name x", "name: answer: want auto, name REGEX NAME or value REGEX NAME"},
		{"name a b answer nam x y", "name: answer: want auto, name REGEX NAME or value REGEX NAME"},
		{"name a b answer value ( y", "name: answer: value: error parsing regexp: missing closing ): `(`"},
		{"name a b answer name x {1}", "name: answer: name: {1}: the regular expression has 0 groups"},
		{"name a.b c.d answer name A B name C D", ""},
		{"name a.b c.d answer name A B value C D answer value E F", ""},
		{"name a b answer auto value C D", ""},
		{"name a b answer name A B C D", "name: answer: want auto, name REGEX NAME or value REGEX NAME"},
		{"name a b answer auto answer name A B", "name: answer: auto cannot be combined with name REGEX NAME"},
		{"CONTINUE NAME SUFFIX a b", ""},
		{"Stop EDNS0 LOCAL Set 0xffee x", ""},
		{"TTL Exact a 5", ""},
		{"type A", "type: want 2 arguments, got 1"},
		{"type A B", `type: want two types like A or TYPE65, got ["A" "B"]`},
		{"class IN", "class: want 2 arguments, got 1"},
		{"class IN A", `class: want two classes like IN or CH, got ["IN" "A"]`},
		{"ttl a", "ttl: want 2 to 3 arguments, got 1"},
		{"ttl exact a 1 2", "ttl: want 2 arguments, got 3"},
		{"ttl a -", `ttl: want a TTL of 0..2147483647, or MIN-MAX, MIN- or -MAX, got "-"`},
		{"ttl a 2147483648", `ttl: want a TTL of 0..2147483647, or MIN-MAX, MIN- or -MAX, got "2147483648"`},
		{"ttl a 10-5", `ttl: want a TTL of 0..2147483647, or MIN-MAX, MIN- or -MAX, got "10-5"`},
		{"ttl a 1-2-3", `ttl: want a TTL of 0..2147483647, or MIN-MAX, MIN- or -MAX, got "1-2-3"`},
		{"ttl a ten", `ttl: want a TTL of 0..2147483647, or MIN-MAX, MIN- or -MAX, got "ten"`},
		{"ttl regex ( 5", "ttl: error parsing regexp: missing closing ): `(`"},
		{"rcode a NXDOMAIN", "rcode: want 3 to 4 arguments, got 2"},
		{"rcode a NXDOMAIN 24", `rcode: want a response code like NXDOMAIN or a number of 0..23, got "24"`},
		{"rcode a NX 0", `rcode: want a response code like NXDOMAIN or a number of 0..23, got "NX"`},
		{"rcode suffix a nxdomain NOERROR x", "rcode: want 3 arguments, got 4"},
		{"cname a", "cname: want 2 to 3 arguments, got 1"},
		{"cname exact a b c", "cname: want 2 arguments, got 3"},
		{"cname regex (a) {2}", "cname: {2}: the regular expression has 1 groups"},
		{"edns0", "edns0: want local, nsid or subnet, and set, append, replace or unset"},
		{"edns0 local", "edns0: want local, nsid or subnet, and set, append, replace or unset"},
		{"edns0 cookie set", `edns0: cookie: want local, nsid or subnet, got "cookie"`},
		{"edns0 local sett 1 2", `edns0: local: want set, append, replace or unset, got "sett"; did you mean "set"?`},
		{"edns0 local set 0xffee", "edns0: local: want 2 arguments, got 1"},
		{"edns0 local set 65536 x", `edns0: local: want the number of an option, like 0xffee, got "65536"`},
		{"edns0 local set 0xffee 0x123", `edns0: local: "0x123": want pairs of hexadecimal digits after 0x`},
		{"edns0 local set 0xffee {qnam}", "edns0: local: unknown variable {qnam}; want {qname}, {qtype}, {protocol}, {client_ip}, {client_port}, {server_ip}, {server_port} or metadata such as {kubernetes/namespace}"},
		{"edns0 local unset 0xffee x", "edns0: local: want 1 argument, got 2"},
		{"edns0 nsid set x", "edns0: nsid: want no argument, got 1"},
		{"edns0 subnet set 24", "edns0: subnet: want 2 arguments, got 1"},
		{"edns0 subnet set 33 56", `edns0: subnet: want 0..32 bits of IPv4 and 0..128 of IPv6, got ["33" "56"]`},
		{"edns0 subnet set 24 129", `edns0: subnet: want 0..32 bits of IPv4 and 0..128 of IPv6, got ["24" "129"]`},
		{"edns0 subnet unset 24 56", "edns0: subnet: want no argument, got 2"},
	} {
		_, err := plan(".:53 {\nrewrite " + c.line + "\n}")
		got := ""
		if err != nil {
			got = err.Error()
		}
		want := c.want
		if want != "" && !strings.HasPrefix(want, "Corefile:") {
			want = "Corefile:2: rewrite: " + want
		}
		if got != want {
			t.Errorf("rewrite %s\ngot  %s\nwant %s", c.line, got, want)
		}
	}
}

// The errors of all rules are reported. A chain step may wait only if a rule may.
func TestSetupSeveralRules(t *testing.T) {
	_, err := plan(".:53 {\nrewrite x\nrewrite name a b\nrewrite y\n}")
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("got %v, want two errors", err)
	}
	for text, mayWait := range map[string]bool{"name a b": false, "cname a b": true} {
		b, err := plan(".:53 {\nrewrite " + text + "\n}")
		if err != nil || b.Chain.Steps()[0].MayWait != mayWait {
			t.Errorf("rewrite %s: got error %v and steps %+v, want MayWait %v", text, err, b.Chain.Steps(), mayWait)
		}
	}
}

// A class rule may produce answers of a class that no handler below has.
func TestChangesClass(t *testing.T) {
	for text, changes := range map[string]bool{"class CH IN": true, "name a b": false} {
		b, err := plan(".:53 {\nrewrite " + text + "\n}")
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Find[dns.AnyClass](b)[0].AnyClass() == dns.ClassChanged; got != changes {
			t.Errorf("rewrite %s: the class is changed: got %v, want %v", text, got, changes)
		}
	}
}

// answerAll is a handler that calls see and answers.
type answerAll struct{ see func(q *dns.Query) }

func (d *answerAll) ServeDNS(q *dns.Query) dns.Verdict {
	if d.see != nil {
		d.see(q)
	}
	return dns.Done
}

func (*answerAll) AnyClass() dns.ClassUse { return dns.ClassAnswered }

// Metadata has one key.
func (*answerAll) Metadata(_ *dns.Query, key string) (string, bool) {
	return "shop", key == "kubernetes/namespace"
}

func name(s string) []byte { return []byte(chaintest.Name(s)) }
