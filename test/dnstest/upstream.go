package dnstest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// An upstream is a DNS server to which the server under test may forward. It
// answers from the records of a script, as a recursive resolver would.
type upstream struct {
	records []dns.RR
	codes   map[string]int // by name in lower case; silent means no reply
}

const silent = -1

// seesOptions is a name whose TXT records contain the EDNS options of the query:
// code and data in hexadecimal, "8:00011800c00002".
const seesOptions = "options.upstream."

// parseUpstream parses records, and lines "NAME SERVFAIL" or "NAME silence" for
// names without records.
func parseUpstream(text string) (*upstream, error) {
	u := &upstream{codes: map[string]int{}}
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch len(fields) {
		case 0:
			continue
		case 2:
			code, ok := dns.StringToRcode[fields[1]]
			if fields[1] == "silence" {
				code, ok = silent, true
			}
			if !ok {
				return nil, fmt.Errorf("upstream: want NAME and a response code or silence, got %q", line)
			}
			u.codes[strings.ToLower(dns.Fqdn(fields[0]))] = code
			continue
		}

		rr, err := dns.NewRR(line)
		if err != nil {
			return nil, fmt.Errorf("upstream: %w", err)
		}

		u.records = append(u.records, rr)
	}
	return u, nil
}

// serve runs the upstream on the loopback interface until the test ends.
func (u *upstream) serve(t testing.TB) (addr string, err error) {
	tcp, udp, err := listen()
	if err != nil {
		return "", err
	}
	for _, s := range []*dns.Server{{Listener: tcp, Handler: u}, {PacketConn: udp, Handler: u}} {
		started, ended := make(chan struct{}), make(chan error, 1)
		s.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			_ = s.Shutdown() // the error of ActivateAndServe is more precise
			if err := <-ended; err != nil {
				t.Errorf("upstream: %v", err)
			}
		})
	}
	return tcp.Addr().String(), nil
}

// listen listens on a port that is free for both TCP and UDP. The kernel picks a
// free port for one protocol, which may be in use for the other, so listen tries
// repeatedly.
func listen() (tcp net.Listener, udp net.PacketConn, err error) {
	for range 10 {
		if tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, nil, err
		}
		if udp, err = net.ListenPacket("udp", tcp.Addr().String()); err == nil {
			return tcp, udp, nil
		}
		tcp.Close()
	}
	return nil, nil, err
}

// ServeDNS answers one query.
func (u *upstream) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	m := new(dns.Msg).SetReply(query)
	m.RecursionAvailable = true
	size := dns.MinMsgSize
	if opt := query.IsEdns0(); opt != nil {
		m.SetEdns0(dns.DefaultMsgSize, opt.Do())
		size = int(opt.UDPSize())
	}

	question := query.Question[0]
	name := strings.ToLower(question.Name)
	code, special := u.codes[name]
	switch {
	case special && code == silent:
		return
	case special:
		m.Rcode = code
	case name == seesOptions:
		m.Answer = options(query)
	default:
		u.answer(m, name, question.Qtype)
	}

	if w.LocalAddr().Network() == "udp" {
		m.Truncate(size)
	}

	_ = w.WriteMsg(m) // after an error the client reports a missing reply
}

// answer follows CNAMEs, and adds the SOA record to negative answers.
func (u *upstream) answer(m *dns.Msg, name string, qtype uint16) {
	for range 9 {
		exists, alias := false, ""
		for _, rr := range u.records {
			h := rr.Header()
			owner := strings.ToLower(h.Name)
			exists = exists || dns.IsSubDomain(name, owner)
			if owner != name {
				continue
			}
			if h.Rrtype == qtype || qtype == dns.TypeANY || h.Rrtype == dns.TypeCNAME {
				m.Answer = append(m.Answer, dns.Copy(rr))
			}

			if c, ok := rr.(*dns.CNAME); ok && qtype != dns.TypeCNAME && qtype != dns.TypeANY {
				alias = strings.ToLower(c.Target)
			}
		}

		if alias != "" {
			name = alias
			continue
		}

		if !exists {
			m.Rcode = dns.RcodeNameError
		}

		break
	}

	if n := len(m.Answer); n > 0 && m.Answer[n-1].Header().Rrtype != dns.TypeCNAME || qtype == dns.TypeCNAME && n > 0 {
		return
	}

	for _, rr := range u.records {
		if rr.Header().Rrtype == dns.TypeSOA && dns.IsSubDomain(rr.Header().Name, name) {
			m.Ns = []dns.RR{dns.Copy(rr)}
		}
	}
}

func options(query *dns.Msg) (txt []dns.RR) {
	opt := query.IsEdns0()
	if opt == nil {
		return nil
	}
	for _, o := range opt.Option {
		packed := &dns.Msg{Extra: []dns.RR{&dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT},
			Option: []dns.EDNS0{o}}}}
		wire, err := packed.Pack()
		if err != nil {
			continue
		}
		const head = 12 + 11 + 4 // headers of the message, the OPT record and the option
		txt = append(txt, &dns.TXT{
			Hdr: dns.RR_Header{Name: seesOptions, Rrtype: dns.TypeTXT, Class: dns.ClassINET},
			Txt: []string{fmt.Sprintf("%d:%s", o.Option(), hex.EncodeToString(wire[head:]))},
		})
	}
	return txt
}

// upstreams starts the upstreams of a script and writes their addresses, and the
// directory of the script's files, into its Corefile, objects and files.
func (s *script) upstreams(t testing.TB, dir string) (text string, err error) {
	text = strings.ReplaceAll(s.corefile, "$DIR", dir)
	// Replace longer names first, because one name may be a prefix of another.
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(s.upstream))) {
		at, err := s.upstream[name].serve(t)
		if err != nil {
			return "", err
		}
		if name != "" {
			name = "." + name
		}
		text = strings.ReplaceAll(text, "$UPSTREAM"+name, at)
		for _, st := range s.steps {
			st.apply = bytes.ReplaceAll(st.apply, []byte("$UPSTREAM"+name), []byte(at))
			for file, data := range st.files {
				st.files[file] = strings.ReplaceAll(data, "$UPSTREAM"+name, at)
			}
		}
	}
	return text, nil
}

// write writes the files of a step to dir. It writes each file elsewhere and
// renames it, so that no reader sees a partial file.
func (st *step) write(dir string) error {
	for name, data := range st.files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		spare := filepath.Join(dir, ".new")
		if err := os.WriteFile(spare, []byte(data), 0o644); err != nil {
			return err
		}
		if err := os.Rename(spare, at); err != nil {
			return err
		}
	}
	return nil
}

// Upstream serves records, in the syntax of a script's part upstream, on the
// loopback interface until the test ends.
func Upstream(t testing.TB, records string) (addr string) {
	t.Helper()
	u, err := parseUpstream(records)
	if err != nil {
		t.Fatal(err)
	}
	if addr, err = u.serve(t); err != nil {
		t.Fatal(err)
	}
	return addr
}
