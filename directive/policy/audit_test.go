package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/audit"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/race"
	"github.com/seamark/seamark/wire"
)

// A chainAnswerer answers with a chain of CNAME records for the names that have one, and with an address.
type chainAnswerer map[wire.Name][]wire.Name

func (c chainAnswerer) ServeDNS(q *dns.Query) dns.Verdict {
	for _, target := range c[wire.Name(q.Name())] {
		data := string(target)
		record := "\x00\x05\x00\x01\x00\x00\x00\x3c" + string([]byte{0, byte(len(data))}) + data
		q.Answer.AppendString(wire.Answers, wire.OwnerIsQuestion+record, 1)
	}
	q.Answer.AppendString(wire.Answers, wire.OwnerIsQuestion+"\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x0a\x00\x00\x01", 1)
	return dns.Done
}

// serveAudit serves a policy above a handler, and returns the policy.
func serveAudit(t *testing.T, text string, c *stubCluster, h chainAnswerer) (*chaintest.Block, *Policy) {
	t.Helper()
	b, err := chaintest.Setup(".:53 {\n"+text+"\n}\n", chaintest.QuietLog(), config.Directive{Name: "policy", Setup: Setup})
	if err == nil {
		b.Offer(c)
		b.SetDirective("whoami")
		b.Handle(h)
		err = corefile.Sorted(b.Planned()...)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return chaintest.Run(t, b, nil), config.Find[*Policy](b)[0]
}

// generated returns the directive that is written from the audits of policies.
func generated(t *testing.T, suffixes bool, all ...*Policy) string {
	t.Helper()
	var sums []audit.Sum
	for _, p := range all {
		report, ok := p.Audit()
		if !ok {
			t.Fatal("no report of an audit")
		}
		sums = audit.Add(sums, []audit.Report{report})
	}
	var text strings.Builder
	if err := sums[0].Write(&text, suffixes); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// A sent query of a client.
type sent struct {
	client, name string
	kind         string
}

func (s sent) ask(b *chaintest.Block) string {
	b.Prepare = func(q *dns.Query) { q.Peer = netip.AddrPortFrom(netip.MustParseAddr(s.client), 53000) }
	m := b.Ask(chaintest.Query(s.name, s.kind), dns.UDP)
	for _, o := range m.Extra {
		if o, ok := o.(*mdns.OPT); ok && len(o.Option) > 0 {
			return fmt.Sprint(mdns.RcodeToString[m.Rcode], " ", o.Option)
		}
	}
	return mdns.RcodeToString[m.Rcode]
}

// A policy that is written from an audit allows what the audit saw, whatever the groups, the clients and
// the targets of names are.
func TestAuditReplay(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	outside := func() string {
		n := make([]string, 1+r.IntN(3))
		for i := range n {
			n[i] = pick("a", "b", "c", "\\042", "x{y", "p q")
		}
		return strings.Join(append(n, pick("good.test", "bad.test", "d.bad.test", "test", "github.io")), ".") + "."
	}
	name := func() string {
		if r.IntN(4) == 0 {
			return pick("api", "web") + "." + pick("prod", "sandbox", "dev", "*") + ".svc.cluster.local."
		}
		if r.IntN(4) == 0 {
			return fmt.Sprintf("n%d.%s", r.IntN(300), pick("many.test.", "many.bad.test.", "co.uk."))
		}
		return outside()
	}

	denied, rounds := 0, race.Fewer(40)
	if testing.Short() {
		rounds /= 4
	}
	for round := range rounds {
		c := new(stubCluster)
		clients := []string{"10.9.9.9"}
		for i := range 8 {
			ip := fmt.Sprintf("10.1.0.%d", i)
			var labels []string
			for _, key := range []string{"app", "app.kubernetes.io/name", "tier"} {
				if r.IntN(2) == 0 {
					labels = append(labels, key, pick("x", "y"))
				}
			}
			c.add(ip, pod(pick("prod", "sandbox"), fmt.Sprint("p", i), labels...))
			clients = append(clients, ip)
		}

		h := chainAnswerer{}
		var groups strings.Builder
		for i := range 1 + r.IntN(3) {
			fmt.Fprintf(&groups, "group g%d {\n", i)
			for _, line := range []string{
				"namespaces " + pick("prod", "sand*", "sandbox prod"), "pods " + pick("app=x", "tier in (x,y)", "!app"), "unknown",
				"deny *", "deny *.bad.test d.bad.test", "deny a.good.test *.many.test n7.many.test", "allow *.good.test", "services " + pick("own", "prod", "own dev"),
			} {
				if r.IntN(2) == 0 {
					fmt.Fprintln(&groups, line)
				}
			}
			groups.WriteString("}\n")
		}
		before := "policy {\n" + pick("rcode refused\n", "") + groups.String() + "}"

		var queries []sent
		for range 600 {
			q := sent{pick(clients...), name(), pick("A", "A", "A", "A", "A", "A", "AXFR")}
			if strings.HasSuffix(q.name, "test.") && q.kind == "AXFR" {
				q.kind = "A"
			}
			owner, err := wire.ParseName(q.name)
			if err != nil {
				t.Fatal(err)
			}
			for r.IntN(3) == 0 {
				target, _ := wire.ParseName(name())
				h[owner] = append(h[owner], target)
			}
			queries = append(queries, q)
		}
		for i := range 150 { // as many as are recorded by their parent
			queries = append(queries, sent{clients[1], fmt.Sprintf("n%d.many.test.", i), "A"})
		}

		audited, p := serveAudit(t, strings.Replace(before, "{\n", "{\naudit\n", 1), c, h)
		for _, q := range queries {
			if got := q.ask(audited); got != "NOERROR" {
				t.Fatalf("an audit denies %v: %s", q, got)
			}
		}
		strict, _ := serveAudit(t, before, c, h)
		text := generated(t, round%2 == 1, p)
		after, _ := serveAudit(t, text, c, h)
		for _, q := range queries {
			if q.kind == "AXFR" { // which are told in a comment
				continue
			}
			if q.client != "10.9.9.9" && q.ask(strict) != "NOERROR" { // an unknown one waits for a pod
				denied++
			}
			if got := q.ask(after); got != "NOERROR" && !isOfNoNamespace(c, q) {
				t.Fatalf("round %d: %v is answered with %s, want it allowed\nbefore:\n%s\ntargets %v\nwritten:\n%s", round, q, got, before, h[chaintest.Name(q.name)], text)
			}
		}
	}
	if denied < 1000 {
		t.Errorf("without the generated groups %d queries are denied, want at least 1000: the test shows nothing", denied)
	}
}

// isOfNoNamespace reports whether a name is of a namespace that does not exist: such names of search paths
// are NXDOMAIN with or without a policy.
func isOfNoNamespace(c *stubCluster, q sent) bool {
	labels := strings.Split(q.name, ".")
	namespace := labels[max(0, len(labels)-5)]
	return strings.HasSuffix(q.name, ".svc.cluster.local.") && namespace != "*" &&
		!c.HasNamespace(append([]byte{byte(len(namespace))}, namespace...))
}
