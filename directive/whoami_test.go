package directive

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	seamark "github.com/seamark/seamark/dns"
)

func TestWhoami(t *testing.T) {
	r := run(t, ".:53 {\nwhoami\n}")
	for _, test := range []struct {
		name, peer string
		proto      seamark.Proto
		want       string
	}{
		{"Example.org.", "10.0.0.1:53012", seamark.UDP, "Example.org. 0 IN A 10.0.0.1|_udp.Example.org. 0 IN SRV 0 0 53012 ."},
		{"example.org.", "[fd00::1]:1", seamark.TCP, "example.org. 0 IN AAAA fd00::1|_tcp.example.org. 0 IN SRV 0 0 1 ."},
		{".", "[fe80::1%lo]:1", seamark.UDP, ". 0 IN AAAA fe80::1|_udp. 0 IN SRV 0 0 1 ."},
		{strings.Repeat("x.", 126), "10.0.0.1:1", seamark.UDP, strings.Repeat("x.", 126) + " 0 IN A 10.0.0.1"},
	} {
		p, err := new(dns.Msg).SetQuestion(test.name, dns.TypeTXT).Pack()
		if err != nil {
			t.Fatal(err)
		}
		var m dns.Msg
		if err := m.Unpack(r.exchange(p, test.proto, test.peer)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rr := range m.Extra {
			got = append(got, strings.ReplaceAll(rr.String(), "\t", " "))
		}
		if strings.Join(got, "|") != test.want || !m.Authoritative || len(m.Answer) > 0 || m.Rcode != 0 {
			t.Errorf("%s: got %s\n%v\nwant %s", test.name, got, &m, test.want)
		}
	}
	wantErrors(t, ".:53 {\nwhoami x\n}", "Corefile:2: whoami: want no argument, got 1")
	if got := classify(r.query); got != success {
		t.Errorf("classify of a reply without answers and SOA record: got %d, want success", got)
	}
}
