package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
)

// headless is a headless Service with an endpoint at 10.0.0.N.
const headless = `apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.%d]}]
`

// A followedServer is a server of a cluster whose zone others follow.
type followedServer struct {
	*process
	dir, at string
}

// serveFollowed starts a server with directives; %PORT is a free port.
func serveFollowed(t *testing.T, directives string) *followedServer {
	t.Helper()
	port := freeport.Reserve(t)
	s := &followedServer{dir: t.TempDir(), at: "127.0.0.1:" + port}
	write(t, filepath.Join(s.dir, "Corefile"), ".:"+port+" {\n bind 127.0.0.1\n handover seamark.sock\n"+directives+"}\n")
	s.process = serve(t, s.dir, "", "-conf", "Corefile")
	return s
}

// start starts the server again, which has ended or is replaced.
func (s *followedServer) start(t *testing.T) {
	t.Helper()
	s.process = serve(t, s.dir, "", "-conf", "Corefile")
}

// serial returns the serial number of the cluster's zone, 0 for none.
func (s *followedServer) serial() uint32 {
	reply, err := ask("udp", s.at, "cluster.local.", dns.TypeSOA)
	if err != nil || len(reply.Answer) != 1 {
		return 0
	}
	return reply.Answer[0].(*dns.SOA).Serial
}

// A node answers a headless name as it changes, from differences that come through relays: also when a relay is
// stopped, starts again from its file or is replaced by another process, and when the source is reloaded or
// starts again.
func TestFollowCluster(t *testing.T) {
	long(t)
	t.Parallel()
	source := serveFollowed(t, " kubernetes cluster.local {\n  manifests objects\n }\n transfer {\n  to *\n }\n")
	change := func(n int) {
		t.Helper()
		objects := filepath.Join(source.dir, "objects")
		if err := os.MkdirAll(objects, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(source.dir, "new"), fmt.Sprintf(headless, n))
		if err := os.Rename(filepath.Join(source.dir, "new"), filepath.Join(objects, "db.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	change(1)

	var relays []*followedServer
	for range 2 {
		relays = append(relays, serveFollowed(t,
			" secondary cluster.local {\n  transfer from "+source.at+"\n  follow 20ms\n  file zone\n }\n transfer {\n  to *\n }\n"))
	}
	admin, pages := freeport.Reserve(t), freeport.Reserve(t)
	node := serveFollowed(t, fmt.Sprintf(" admin localhost:%s\n prometheus 127.0.0.1:%s\n"+
		" secondary cluster.local {\n  transfer from %s %s\n  follow 50ms\n  expire 5m\n }\n", admin, pages, relays[0].at, relays[1].at))

	// answers waits until the node and the relays have a change.
	last := 1
	answers := func(when string) {
		t.Helper()
		want := fmt.Sprintf("10.0.0.%d", last)
		for _, s := range append([]*followedServer{node}, relays...) {
			chaintest.Eventually(t, when+": the answer "+want, func() bool {
				reply, err := ask("udp", s.at, "db.shop.svc.cluster.local.", dns.TypeA)
				return err == nil && len(reply.Answer) == 1 && reply.Answer[0].(*dns.A).A.String() == want
			})
		}
		for _, relay := range relays { // so that the next version follows this one everywhere
			chaintest.Eventually(t, when+": the serial number of the source", func() bool {
				return relay.serial() == source.serial() && node.serial() == source.serial()
			})
		}
	}
	next := func(when string) {
		t.Helper()
		last++
		change(last)
		answers(when)
	}

	answers("start")
	for range 5 {
		next("a change")
	}
	for i, relay := range relays {
		relay.stop()
		last++
		change(last)
		chaintest.Eventually(t, "an answer while a relay is stopped", func() bool {
			reply, err := ask("udp", node.at, "db.shop.svc.cluster.local.", dns.TypeA)
			return err == nil && len(reply.Answer) == 1 && reply.Answer[0].(*dns.A).A.String() == fmt.Sprintf("10.0.0.%d", last)
		})
		relay.start(t)
		next(fmt.Sprintf("relay %d has started again", i))

		before := relay.process
		relay.start(t)
		if code := before.exit(); code != 0 {
			t.Fatalf("exit status of the replaced relay: got %d, want 0", code)
		}
		next(fmt.Sprintf("relay %d is replaced", i))
	}

	source.signal(syscall.SIGHUP)
	source.until("Reloading complete")
	next("the source is reloaded")
	source.stop()
	source.start(t)
	next("the source has started again")

	text := page(t, "http://127.0.0.1:"+pages+"/metrics")
	if want := `seamark_secondary_transfers_total{zone="cluster.local.",kind="AXFR"} 1` + "\n"; !strings.Contains(text, want) {
		t.Errorf("got metrics\n%s\nwant %q: all but the first version are differences", text, want)
	}
	out, _, _ := run(t, node.dir, "", "status", "--admin", "localhost:"+admin)
	for name, want := range map[string]string{
		"serial number cluster.local.": fmt.Sprint(source.serial()),
	} {
		if got := row(out, name); got != want {
			t.Errorf("%s: got %q, want %q in\n%s", name, got, want, out)
		}
	}
	if got := row(out, "data age cluster.local."); !strings.HasSuffix(got, "s") {
		t.Errorf("data age: got %q, want a duration in\n%s", got, out)
	}
	out, _, _ = run(t, node.dir, "", "explain", "db.shop.svc.cluster.local", "--admin", "localhost:"+admin)
	for _, want := range []string{
		"a primary has confirmed it ", fmt.Sprintf("the version %d has been served for ", source.serial()), "the next one comes from 127.0.0.1:",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("explain: got\n%s\nwant %q", out, want)
		}
	}

	for _, s := range append(relays, node, source) {
		s.stop()
	}
}
