package stub

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/operate/resolvconf"
)

func TestNew(t *testing.T) {
	option := func(name, value string) resolvconf.Option { return resolvconf.Option{Name: name, Value: value} }
	for _, c := range []struct {
		config resolvconf.Config
		want   string
	}{
		{resolvconf.Config{}, "[] [] 1 2"},
		{resolvconf.Config{Nameservers: []string{"10.96.0.10", "fd00::a", "192.0.2.1", "192.0.2.2"}, Searches: []string{"a."}}, "[10.96.0.10:53 [fd00::a]:53 192.0.2.1:53] [a.] 1 2"},
		{resolvconf.Config{Options: []resolvconf.Option{option("ndots", "5"), option("attempts", "3"), option("edns0", "")}}, "[] [] 5 3"},
		{resolvconf.Config{Options: []resolvconf.Option{option("ndots", "99"), option("attempts", "0")}}, "[] [] 15 1"},
		{resolvconf.Config{Options: []resolvconf.Option{option("ndots", "x"), option("ndots", "-1")}}, "[] [] 1 2"},
	} {
		r := New(c.config)
		if got := fmt.Sprint(r.Servers, r.Searches, r.Ndots, r.Attempts); got != c.want {
			t.Errorf("New(%+v): got %s, want %s", c.config, got, c.want)
		}
	}
}

func TestCandidates(t *testing.T) {
	long := strings.Repeat("a.", 120)
	for _, c := range []struct {
		ndots              int
		name, search, want string
	}{
		{5, "web", "shop.svc.cluster.local svc.cluster.local", "web.shop.svc.cluster.local. web.svc.cluster.local. web."},
		{5, "web.", "shop.svc.cluster.local", "web."},
		{5, "a.b.c.d.e.f", "s", "a.b.c.d.e.f. a.b.c.d.e.f.s."},
		{5, "www.example.org", "s", "www.example.org.s. www.example.org."},
		{1, "www.example.org", "s", "www.example.org. www.example.org.s."},
		{0, "web", "s", "web. web.s."},
		{1, "web", "", "web."},
		{1, "web", ". s s", "web.s. web."},
		{1, "web", long + "b " + strings.Repeat("c", 50) + "." + long, "web." + long + "b. web."},
	} {
		r := Resolver{Searches: strings.Fields(c.search), Ndots: c.ndots}
		got, err := r.Candidates(c.name)
		if strings.Join(got, " ") != c.want || err != nil {
			t.Errorf("Candidates(%q) with ndots %d and search %q: got %q, error %v, want %q", c.name, c.ndots, c.search, got, err, c.want)
		}
	}
	for _, name := range []string{"", "a..b", "a\ab", strings.Repeat("a", 64)} {
		if got, err := new(Resolver).Candidates(name); err == nil {
			t.Errorf("Candidates(%q): got %q and no error", name, got)
		}
	}
}

// server serves answers on a loopback address: by name and type, a record or a response
// code. Other names are NXDOMAIN; "silent" gets no reply.
func server(t *testing.T, answers map[string]string) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		q := m.Question[0]
		answer, ok := answers[q.Name+" "+dns.TypeToString[q.Qtype]]
		reply := new(dns.Msg).SetReply(m)
		code, isCode := dns.StringToRcode[answer]
		switch {
		case !ok:
			reply.Rcode = dns.RcodeNameError
		case answer == "silent":
			return
		case isCode:
			reply.Rcode = code
		default:
			record, err := dns.NewRR(answer)
			if err != nil {
				t.Error(err)
			}
			reply.Answer = []dns.RR{record}
		}
		_ = w.WriteMsg(reply)
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.ActivateAndServe() }()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return conn.LocalAddr().String()
}

func TestLookup(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	good := server(t, map[string]string{
		"web.b. A": "web.b. 5 IN A 192.0.2.1", "web.b. AAAA": "NOERROR",
		"none. A": "NOERROR", "alias. A": "alias. 5 IN CNAME none.", "none.a. A": "NOERROR", "lame. A": "SERVFAIL", "silent. A": "silent",
	})
	lame := server(t, map[string]string{"web.a. A": "REFUSED", "lame. A": "SERVFAIL"})
	for _, c := range []struct {
		name    string
		types   []uint16
		servers []string
		steps   string
		err     string
	}{
		{"web", []uint16{dns.TypeA, dns.TypeAAAA}, []string{good}, "web.a. A NXDOMAIN, web.a. AAAA NXDOMAIN, web.b. A NOERROR web.b. 5 IN A 192.0.2.1, web.b. AAAA NOERROR", ""},
		{"web.b.", []uint16{dns.TypeA}, []string{good}, "web.b. A NOERROR web.b. 5 IN A 192.0.2.1", ""},
		{"none", []uint16{dns.TypeA}, []string{good}, "none.a. A NOERROR, none.b. A NXDOMAIN, none. A NOERROR", ErrNotFound.Error()},
		{"alias.", []uint16{dns.TypeA}, []string{good}, "alias. A NOERROR alias. 5 IN CNAME none.", ErrNotFound.Error()},
		{"web.a.", []uint16{dns.TypeA}, []string{lame, good}, "web.a. A REFUSED, web.a. A NXDOMAIN", ErrNotFound.Error()},
		{"lame.", []uint16{dns.TypeA}, []string{lame, good}, "lame. A SERVFAIL, lame. A SERVFAIL, lame. A SERVFAIL, lame. A SERVFAIL", errFailed.Error()},
		{"silent.", []uint16{dns.TypeA, dns.TypeAAAA}, []string{good}, "silent. A ERROR, silent. A ERROR", "querying " + good + ": no reply within 2s"},
		{"a..b", nil, nil, "", "not a domain name: want labels of 1 to 63 bytes, and at most 255 bytes in all"},
		{"a", nil, nil, "", "the resolv.conf has no nameserver"},
	} {
		var steps []string
		r := Resolver{Servers: c.servers, Searches: []string{"a", "b"}, Ndots: 1, Attempts: 2}
		err := r.Lookup(t.Context(), c.name, c.types, func(s Step) {
			if s.Time <= 0 || !slices.Contains(c.servers, s.Server) {
				t.Errorf("%s: got the step %+v", c.name, s)
			}
			text := s.Name + " " + s.Type + " " + s.RCode
			if s.Error != "" {
				text += "ERROR"
			}
			steps = append(steps, strings.Join(append([]string{text}, s.Records...), " "))
		})
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got := strings.Join(steps, ", "); got != c.steps || text != c.err {
			t.Errorf("Lookup(%q, %v): got\n%s\nerror %q; want\n%s\nerror %q", c.name, c.types, got, text, c.steps, c.err)
		}
		if c.err == ErrNotFound.Error() && !errors.Is(err, ErrNotFound) {
			t.Errorf("Lookup(%q): got error %v, want ErrNotFound", c.name, err)
		}
	}
}
