package kubetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A replay is a file of directive/etcd/testdata/skydns, in the format described
// there: keys, and queries with their answers.
type replay struct {
	options, zones, keys []string
	external             map[string][]dns.RR
	queries              []replayed
}

// ofCoreDNS reports whether the Corefile of a replay is one of CoreDNS.
func (r *replay) ofCoreDNS() bool {
	return !slices.ContainsFunc(r.options, func(o string) bool {
		word, _, _ := strings.Cut(o, " ")
		return slices.Contains([]string{"compatible", "ttl", "negative_ttl"}, word)
	})
}

type replayed struct {
	name string
	kind uint16
	want []string
	line int

	differs bool // the reply of CoreDNS
}

func readReplay(t *testing.T, file string) (r replay) {
	t.Helper()
	r.external = map[string][]dns.RR{}
	text := string(must(os.ReadFile(file))(t))
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '/':
			r.keys = append(r.keys, line)
		case word == "option":
			r.options = append(r.options, rest)
		case word == "zones":
			r.zones = strings.Fields(rest)
		case word == "upstream":
			rr := must(dns.NewRR(rest))(t)
			r.external[strings.ToLower(rr.Header().Name)] = append(r.external[strings.ToLower(rr.Header().Name)], rr)
		case word == "query":
			words := strings.Fields(rest)
			r.queries = append(r.queries, replayed{name: words[0], kind: dns.StringToType[words[1]], line: n, differs: len(words) > 2 && words[2] == "differs"})
		case len(r.queries) > 0:
			q := &r.queries[len(r.queries)-1]
			q.want = append(q.want, line)
		default:
			t.Fatalf("%s:%d: unknown line %q", file, n, line)
		}
	}
	return r
}

// startUpstream starts an upstream for external names, which follows CNAME records.
func (r *replay) startUpstream(t *testing.T) (at string) {
	t.Helper()
	port := freeport.Reserve(t)
	handle := dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		reply.RecursionAvailable = true
		name, exists := strings.ToLower(m.Question[0].Name), false
		for range 10 {
			next := ""
			for _, rr := range r.external[name] {
				exists = true
				cname, isAlias := rr.(*dns.CNAME)
				if isAlias || rr.Header().Rrtype == m.Question[0].Qtype {
					reply.Answer = append(reply.Answer, rr)
				}
				if isAlias && m.Question[0].Qtype != dns.TypeCNAME {
					next = strings.ToLower(cname.Target)
				}
			}
			if name = next; name == "" {
				break
			}
		}
		if !exists {
			reply.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(reply)
	})
	for _, network := range []string{"udp", "tcp"} {
		started, failed := make(chan struct{}), make(chan error, 1)
		s := &dns.Server{Addr: "127.0.0.1:" + port, Net: network, Handler: handle, NotifyStartedFunc: func() { close(started) }}
		go func() { failed <- s.ListenAndServe() }()
		select {
		case <-started:
		case err := <-failed:
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return "127.0.0.1:" + port
}

// digest returns the compared parts of a reply: the response code, the flags, and
// each section's records, sorted. The numbers of SOA records are not compared.
func digest(m *dns.Msg) []string {
	code := dns.RcodeToString[m.Rcode]
	if m.Authoritative {
		code += " aa"
	}
	if m.Truncated {
		code += " tc"
	}
	var records []string
	for i, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			line := strings.Join(strings.Fields(rr.String()), " ")
			switch rr := rr.(type) {
			case *dns.OPT:
				continue
			case *dns.SOA:
				line = fmt.Sprintf("%s %d IN SOA %s %s", rr.Hdr.Name, rr.Hdr.Ttl, rr.Ns, rr.Mbox)
			}
			records = append(records, []string{"answer ", "authority ", "additional "}[i]+line)
		}
	}
	slices.Sort(records)
	return append([]string{code}, records...)
}

// The cases of SkyDNS's and CoreDNS's own tests have the same answers here, with
// keys in a real etcd, by UDP and TCP, from memory and by a request for each
// query. With -coredns they are CoreDNS's answers, except those that are marked as different.
func TestEtcdReplay(t *testing.T) {
	t.Parallel()
	s := startKeyReader(t)
	files := must(filepath.Glob("../directive/etcd/testdata/skydns/*.txt"))(t)
	if len(files) < 5 {
		t.Fatalf("got %d files, want at least 5", len(files))
	}
	asked := 0
	for _, file := range files {
		r := readReplay(t, file)
		if _, err := s.client.Delete(t.Context(), "/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		for _, line := range r.keys {
			key, value, _ := strings.Cut(line, " ")
			if _, err := s.client.Put(t.Context(), key, strings.TrimSpace(value)); err != nil {
				t.Fatalf("%s: %s: %v", file, key, err)
			}
		}
		for _, watch := range []string{"on", "off"} {
			t.Run(filepath.Base(file)+" watch "+watch, func(t *testing.T) {
				options := append([]string{"endpoint " + s.at}, r.options...)
				if *coredns == "" {
					options = append(options, "watch "+watch)
				} else if watch == "off" || !r.ofCoreDNS() {
					t.Skip("the case is not for CoreDNS")
				}
				directive := "etcd " + strings.Join(r.zones, " ") + " {\n  " + strings.Join(options, "\n  ") + "\n }\n"
				text := strings.Join(r.zones, " ") + " {\n ready $READY\n " + directive + "}\n"
				if len(r.external) > 0 {
					text = ". {\n ready $READY\n " + directive + " forward . " + r.startUpstream(t) + "\n}\n"
				}
				d := serveEither(t, text)
				chaintest.Eventually(t, "readiness", d.isReadyNow)
				for _, q := range r.queries {
					for _, network := range []string{"udp", "tcp"} {
						m := new(dns.Msg).SetQuestion(q.name, q.kind)
						m.SetEdns0(4096, false)
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						reply, _, err := (&dns.Client{Net: network, UDPSize: 4096, Timeout: replyTime}).ExchangeContext(ctx, m, d.at)
						cancel()
						if err != nil {
							t.Fatalf("%s:%d: %v", file, q.line, err)
						}
						if reply.Truncated && network == "udp" {
							continue
						}
						want := slices.Clone(q.want)
						slices.Sort(want[1:])
						if got := digest(reply); slices.Equal(got, want) == (*coredns != "" && q.differs) {
							t.Errorf("%s:%d: %s %s by %s\ngot\n%s\nwant\n%s", file, q.line, q.name, dns.TypeToString[q.kind], network, strings.Join(got, "\n"), strings.Join(want, "\n"))
						}
						asked++
					}
				}
			})
		}
	}
	t.Logf("%d answers", asked)
}
