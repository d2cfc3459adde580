package template

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/wire"
)

const hostile = `.:53 {
	template IN A . {
		answer "{{ .Name }} 60 IN A 192.0.2.1"
	}
	template IN TXT . {
		answer "{{ .Name }} 60 IN TXT \"{{ .Name }}\""
	}
	template IN CNAME . {
		answer "{{ printf \"%s\" .Name }} 60 IN CNAME {{ .Question.Name }}"
	}
	template IN MX . {
		match (?s)^(?P<a>.)(?P<b>.*)$
		answer "{{ .Group.a }} 60 IN MX 1 {{ .Group.b }}"
	}
	template IN SPF . {
		match (?s)^(?P<a>.)(?P<b>.*)$
		answer "{{ .Group.b }} 60 IN SPF \"{{ .Group.a }}\" {{ .Group.a }}"
	}
}`

// hostileNames are names with characters that are special in zone files.
var hostileNames = [...]string{
	"\x01.\x00", "\x01\\\x00", "\x01\"\x00", "\x01;\x00", "\x01(\x00", "\x01)\x00", "\x01@\x00", "\x01$\x00", "\x01#\x00", "\x01\n\x00", "\x01\x00\x00", "\x01 \x00", "\x01'\x00", "\x01`\x00",
	"\x16a. 60 IN A 192.0.2.66\n\x00",
	"\x10\n$INCLUDE /etc/x\x00",
	"\x08$INCLUDE\x04 /a \x00",
	"\x0d\" \"; IN A 1(\n\x01\t\x00",
	"\x06{{ 1 }\x08{{ .Q }}\x00",
	"\x04\\010\x03\\\\.\x00",
}

// The answer is one record with the type and class of the template and the name of
// the query, or none, whatever the name contains.
func FuzzHostileNames(f *testing.F) {
	for _, name := range hostileNames {
		f.Add([]byte(name))
	}
	r := run(f, hostile)
	f.Fuzz(func(t *testing.T, name []byte) {
		r.t = t
		hostileName(t, r, name)
	})
}

func TestHostileNames(t *testing.T) {
	r := run(t, hostile)
	random := rand.New(rand.NewPCG(3, 4))
	const special = "\\\"'();@$#{}`. \t\n\r\x00\x7f\x80\xff0aA9-_*/"
	for range 3000 {
		var name []byte
		for len(name) < 40 && (len(name) == 0 || random.IntN(4) > 0) {
			n := 1 + random.IntN(8)
			name = append(name, byte(n))
			for range n {
				name = append(name, special[random.IntN(len(special))])
			}
		}
		hostileName(t, r, append(name, 0))
	}
}

func hostileName(t *testing.T, r *testBlock, name []byte) {
	for _, qtype := range []wire.Type{wire.TypeA, wire.TypeTXT, wire.TypeCNAME, wire.TypeMX, 99} {
		if whole, next, ok := wire.ReadName(nil, name, 0); !ok || next != len(name) || len(whole) != next {
			return // not a name
		}
		reply, _ := r.exchange(name, qtype)
		m := new(mdns.Msg)
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("%q %s: %v", name, qtype, err)
		}
		if m.Rcode == mdns.RcodeServerFailure {
			if len(m.Answer) > 0 || slices.Contains([]wire.Type{wire.TypeA, wire.TypeCNAME, wire.TypeTXT}, qtype) {
				t.Fatalf("%q %s: got SERVFAIL (%v) with records %v", name, qtype, r.Err, m.Answer)
			}
			continue
		}
		if len(m.Answer) != 1 || len(m.Ns) != 0 || len(m.Extra) != 1 {
			t.Fatalf("%q %s: got\n%v\nwant one answer record", name, qtype, m)
		}
		h := m.Answer[0].Header()
		if h.Rrtype != uint16(qtype) || h.Class != mdns.ClassINET {
			t.Fatalf("%q %s: got %v, want the type of the query and class IN", name, qtype, m.Answer[0])
		}
		queried := m.Question[0].Name
		switch rr := m.Answer[0].(type) {
		case *mdns.A:
			if h.Name != queried || h.Ttl != 60 || rr.A.String() != "192.0.2.1" {
				t.Fatalf("%q: got %v, want %s 60 IN A 192.0.2.1", name, rr, queried)
			}
		case *mdns.TXT:
			// In a string, as in a name, an escape represents one byte.
			want := unescaped(string(wire.AppendText(nil, []byte(wire.Lower(string(name))))))
			if h.Name != queried || h.Ttl != 60 || unescaped(strings.Join(rr.Txt, "")) != want {
				t.Fatalf("%q: got %v, want the text %q", name, rr, want)
			}
		case *mdns.CNAME:
			if h.Name != queried || h.Ttl != 60 || rr.Target != queried {
				t.Fatalf("%q: got %v, want %s 60 IN CNAME %s", name, rr, queried, queried)
			}
		}
	}
}

// unescaped replaces the escapes of a zone file by the bytes that they represent.
func unescaped(text string) string {
	var out []byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\\' && i+3 < len(text) && text[i+1] >= '0' && text[i+1] <= '2' {
			c = (text[i+1]-'0')*100 + (text[i+2]-'0')*10 + text[i+3] - '0'
			i += 3
		} else if c == '\\' && i+1 < len(text) {
			i++
			c = text[i]
		}
		out = append(out, c)
	}
	return string(out)
}
