//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// patience is the time in which every agent has to have a change.
const patience = 10 * time.Minute

// An agent is the server of one node, and its pods.
type agent struct {
	api     string       // address of the API server
	bytes   atomic.Int64 // received from it
	at      string       // address for queries
	replies atomic.Int64 // to the pods
	metrics metrics.Registry
	plan    *server.Plan
	queries sync.WaitGroup
}

// options returns the options of the directive kubernetes of a node.
func (r *run) options(i int) (string, error) {
	switch r.source {
	case "services":
		return "only services", nil
	case "pods":
		return "only services\n pods verified\n node " + nodeName(i), nil
	case "forward", "everything":
		return "", nil
	}
	return "", fmt.Errorf("-source: want forward, services, pods or everything, got %q", r.source)
}

// ownTTL is the TTL of a node's own answers. Those of the replicas have a lower one.
const ownTTL = 30

// corefile returns the Corefile of a node, as in deploy/node, without reverse zones of forward.
// If the pods send no queries, forward has the address of a replica: lookups of one process
// wait for each other.
func (r *run) corefile(i int) (string, error) {
	options, err := r.options(i)
	var b strings.Builder
	b.WriteString(".:53 {\n")
	if r.source != "forward" {
		fmt.Fprintf(&b, "metadata\nkubernetes cluster.local in-addr.arpa ip6.arpa {\n kubeconfig %s\n ttl %d\n %s\n}\n", r.kubeconfig, ownTTL, options)
	}
	b.WriteString("cache {\n success 9984 30\n denial 9984 5\n prefetch 5 30s\n serve_stale 1h verify\n}\n")
	replicas := r.resolver()
	if r.names > 0 {
		replicas = fmt.Sprintf("%s.%s.svc.cluster.local:%d", replicasService, namespace, dnsPort)
	}
	fmt.Fprintf(&b, "forward cluster.local %s {\n resolver %s\n fallback %s\n prefer_tcp\n attempts 4\n}\n",
		replicas, r.resolver(), r.resolver())
	fmt.Fprintf(&b, "forward . %s\n}\n", r.outside())
	return b.String(), err
}

// start starts the server of a node.
func (r *run) start(ctx context.Context, i int) (*agent, error) {
	text, err := r.corefile(i)
	if err != nil {
		return nil, err
	}
	read := corefile.ReadText("Corefile", []byte(text))
	if read.Err != nil {
		return nil, read.Err
	}
	a := &agent{api: r.api}
	a.plan, err = server.NewPlan(read.Servers, server.Options{
		Directives: builtin.Directives(), Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
		Dial: a.dial, Readers: 1,
		Log: slog.New(slog.DiscardHandler), Metrics: &a.metrics,
	})
	if err != nil {
		return nil, err
	}
	if err := a.plan.Start(ctx, nil); err != nil {
		return nil, err
	}
	a.at = a.plan.Addresses()[0].String()
	return a, nil
}

// dial counts the bytes that a connection receives from the API server, encrypted.
func (a *agent) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil || address != a.api {
		return conn, err
	}
	return countedConn{conn, &a.bytes}, nil
}

type countedConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// requests returns the number of requests that the agent has sent to the API server.
func (a *agent) requests() int64 {
	var text strings.Builder
	_ = a.metrics.WriteText(&text) // a strings.Builder has no errors
	return sum(text.String(), "coredns_kubernetes_rest_client_requests_total")
}

// sum returns the sum of the series of a counter.
func sum(text, counter string) (n int64) {
	for _, value := range metrics.Parse(text, func(family string) bool { return family == counter }) {
		n += int64(value)
	}
	return n
}

// startAgents starts all agents at once.
func (r *run) startAgents(ctx context.Context) error {
	r.fleet = make([]*agent, r.agents)
	var starts errgroup.Group
	for i := range r.agents {
		starts.Go(func() (err error) {
			r.fleet[i], err = r.start(ctx, i)
			return err
		})
	}
	if err := starts.Wait(); err != nil {
		return err
	}
	return r.mark(ctx, 1)
}

// stopAgents stops the agents whose context has ended.
func (r *run) stopAgents() {
	for _, a := range r.fleet {
		if a != nil {
			a.queries.Wait()
			a.plan.Stop(context.Background())
		}
	}
}

// mark makes change n and waits until every agent answers with it.
func (r *run) mark(ctx context.Context, n int) error {
	deadline := time.Now().Add(patience)
	for err := r.setMarker(ctx, n); err != nil; err = r.setMarker(ctx, n) { // etcd may be slow at a restart
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Second)
	}

	names, ttl := []string{marker}, uint32(0)
	if r.source != "forward" {
		ttl = ownTTL
	}
	if r.source == "everything" {
		names = append(names, headlessMarker)
	}

	for missing := r.fleet; len(missing) > 0; time.Sleep(time.Second) {
		var left []*agent
		for _, a := range missing {
			if time.Now().After(deadline) {
				return fmt.Errorf("change %d has not reached all agents after %v", n, patience)
			}
			if slices.ContainsFunc(names, func(name string) bool { return portOf(a.at, name, ttl) != n }) {
				left = append(left, a)
			}
		}
		missing = left
	}
	return nil
}

// portOf returns the port of a Service that a DNS server answers, 0 if it answers none or with
// a lower TTL.
func portOf(at, service string, ttl uint32) int {
	q := new(dns.Msg).SetQuestion("_http._tcp."+name(service), dns.TypeSRV)
	reply, _, err := (&dns.Client{Timeout: time.Second}).Exchange(q, at)
	if err != nil || len(reply.Answer) == 0 {
		return 0
	}
	srv, ok := reply.Answer[0].(*dns.SRV)
	if !ok || srv.Hdr.Ttl < ttl {
		return 0
	}
	return int(srv.Port)
}

func name(service string) string { return service + "." + namespace + ".svc.cluster.local." }

// startQueries makes the pods of every node query, until ctx ends.
func (r *run) startQueries(ctx context.Context) error {
	for i, a := range r.fleet {
		if err := a.query(ctx, r.packets(i), r.every); err != nil {
			return err
		}
	}
	return nil
}

// packets returns the queries of a node for each of the names in use there: names of the
// cluster, every tenth of a headless Service, and names outside with the search path of a pod.
func (r *run) packets(i int) (all [][][]byte) {
	for k := range r.names {
		n := i*r.names + k
		inside := fmt.Sprintf("service-%d", n%max(1, r.services))
		if n%10 == 0 {
			inside = fmt.Sprintf("headless-%d", n/10%max(1, r.endpoints/perSlice))
		}
		outside := fmt.Sprintf("www.site-%d.example.", n)
		all = append(all, queries(name(inside)),
			queries(outside+name(""), outside+"svc.cluster.local.", outside+"cluster.local.", outside))
	}
	return all
}

// queries returns the packets that ask for both address families of names.
func queries(names ...string) (packets [][]byte) {
	for _, name := range names {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			packet, _ := new(dns.Msg).SetQuestion(strings.ReplaceAll(name, "..", "."),
				qtype).Pack() // the names are valid
			packets = append(packets, packet)
		}
	}
	return packets
}

// query sends all packets in the time every, again and again, until ctx ends.
func (a *agent) query(ctx context.Context, all [][][]byte, every time.Duration) error {
	if len(all) == 0 {
		return nil
	}

	conn, err := net.Dial("udp", a.at)
	if err != nil {
		return err
	}

	a.queries.Go(func() {
		defer conn.Close()
		pace := time.NewTicker(max(time.Microsecond, every/time.Duration(len(all))))
		defer pace.Stop()

		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
			}
			for _, packet := range all[i%len(all)] {
				_, _ = conn.Write(packet) // a query without a reply is not counted
			}
		}
	})

	a.queries.Go(func() {
		for buffer := make([]byte, 4096); ; {
			if _, err := conn.Read(buffer); err == nil {
				a.replies.Add(1)
			} else if ctx.Err() != nil {
				return
			}
		}
	})

	return nil
}
