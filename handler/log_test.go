package handler

import (
	"testing"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// An answers is a handler that adds one SOA record to the authority section,
// or not.
type answers struct {
	code wire.RCode
	soa  bool
}

func (a *answers) ServeDNS(q *dns.Query) dns.Verdict {
	q.RCode, q.AA = a.code, true
	if a.soa {
		q.Answer.Append(wire.Authority, append(wire.AppendHead(nil, "\x00", wire.TypeSOA, 5, 22), make([]byte, 22)...), 1)
	}
	return dns.Done
}

func TestLog(t *testing.T) {
	edns := append(packet(t, "Name.example.org", wire.TypeA), 0, 0, 41, 1232>>8, 1232&255, 0, 0, 0x80, 0, 0, 0)
	edns[11] = 1
	tests := []struct {
		directive string
		handler   any
		want      string // of the question name.example.org A, then of its like with EDNS over TCP and IPv6
	}{
		{"log", &answers{}, `[INFO] 10.0.0.1:53012 - 4 "A IN name.example.org. udp 34 false 512" NOERROR qr,aa,rd 34 0.000102s
[INFO] [fd00::1]:9 - 4 "A IN name.example.org. tcp 45 true 65535" NOERROR qr,aa,rd 45 0.000102s
`},
		{`log . "{combined} {local}"`, &answers{}, `[INFO] 10.0.0.1:53012 - 4 "A IN name.example.org. udp 34 false 512" NOERROR qr,aa,rd 34 0.000102s "0" 10.0.0.2
[INFO] [fd00::1]:9 - 4 "A IN name.example.org. tcp 45 true 65535" NOERROR qr,aa,rd 45 0.000102s "0" 10.0.0.2
`},
		{"log \"{\\\"q\\\":\\\"{name}\\\"}\"", &answers{}, "[INFO] {\"q\":\"name.example.org.\"}\n[INFO] {\"q\":\"name.example.org.\"}\n"},
		{"log \"{rcode} {>rflags} {rsize}\"", &says{verdict: dns.Drop}, "[INFO] - - 0\n[INFO] - - 0\n"},
		{"log com example.org \"{name}\"", &answers{}, "[INFO] name.example.org.\n[INFO] name.example.org.\n"},
		{"log com me.example.org {\nclass all\n}", &answers{}, ""},
		// The first rule that the name is within has it.
		{"log example.org {\nclass error\n}\nlog", &answers{}, ""},
		{"log \"{rcode}\" {\nclass denial error\n}", &answers{}, ""},
		{"log \"{rcode}\" {\nclass denial\n}", &answers{soa: true}, "[INFO] NOERROR\n[INFO] NOERROR\n"},
		{"log \"{rcode}\" {\nclass denial\n}", &answers{code: wire.NXDomain}, "[INFO] NXDOMAIN\n[INFO] NXDOMAIN\n"},
		{"log \"{rcode}\" {\nclass error\n}", &answers{code: wire.Refused}, "[INFO] REFUSED\n[INFO] REFUSED\n"},
		{"log \"{rcode}\" {\nclass success\nclass error\n}", &answers{}, "[INFO] NOERROR\n[INFO] NOERROR\n"},
	}
	for _, test := range tests {
		r := run(t, ".:53 {\n"+test.directive+"\n}", test.handler)
		r.ask(packet(t, "Name.example.org", wire.TypeA), dns.UDP, client)
		r.ask(edns, dns.TCP, "[fd00::1]:9")
		if got := r.stop(); got != test.want {
			t.Errorf("%s\ngot\n%swant\n%s", test.directive, got, test.want)
		}
	}
}

func TestLogWrong(t *testing.T) {
	wrong(t, ".:53 {\nlog a..b \"{remote} {foo}\" {\nclass ok\n}\n}", `Corefile:2: log: not a zone: "a..b": empty label
Corefile:2: log: no such placeholder: {foo}; there are {common}, {combined}, {type}, {name}, {class}, {proto}, {remote}, {port}, {local}, {size}, {rcode}, {rsize}, {duration}, {>id}, {>opcode}, {>do}, {>bufsize}, {>rflags}
Corefile:3: log: class: want success, denial, error or all, got "ok"`)
}

// A line of the log is no garbage either.
func TestLogAllocations(t *testing.T) {
	f, err := parseFormat(combinedFormat)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, ".:53 {\nwhoami\n}")
	r.ask(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	if n := testing.AllocsPerRun(100, func() {
		var room [640]byte
		_ = f.append(room[:0], r.query)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
