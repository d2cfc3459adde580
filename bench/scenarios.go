//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/miekg/dns"
)

// A scenario is a part of a run, selected by name.
type scenario struct {
	name  string
	quick bool // part of a quick run
	api   bool // needs an API server
	run   func(*bench, context.Context) error
	what  string
}

func scenarios() []scenario {
	return []scenario{
		{"udp", true, false, (*bench).udp, "CPU per answer of each kind of cluster name, one reader, beside the peers"},
		{"two", false, false, among(2, true, comparison{name: "two", title: "ClusterIP, A, two readers", workload: "A",
			sockets: 64}), // distributed over the readers by hash
			"the same for A with two readers"},
		{"paths", true, false, (*bench).ways,
			"cached names and TCP beside our own UDP; a TCP connection for each query beside Knot"},
		{"encrypted", true, false, (*bench).encrypted,
			"DoT and DoH on persistent connections beside Unbound and NSD, and DoQ"},
		{"abuse", false, false, (*bench).abuse, "memory and the answers to another client while one abuses HTTP/2"},
		{"transfer", false, false, (*bench).transfer, "CPU and bytes of a change that secondaries transfer by IXFR"},
		{"follow", false, true, (*bench).follow,
			"a thousand nodes that follow the cluster's zone through three relays, at 100 changes a second"},
		{"admin", false, false, (*bench).admin, "CPU and memory without and with the directive admin"},

		{"policy", true, false, (*bench).policy,
			"CPU and allocations of an answer without and with 100,000 rules of the directive policy"},
		{"objects", false, true, (*bench).objects,
			"memory of the records of 10,000 objects, and the time from a change of one to its answer"},

		{"node", false, false, (*bench).node,
			"CPU per answer to a pod and memory of the cache of a node, in network namespaces"},
		{"idle", true, false, among(1, false, comparison{name: "idle", title: "ClusterIP, A, 1,000 queries a second",
			workload: "A", rate: 1000, longer: 3}),
			"CPU per query at 1,000 queries a second"},

		{"binary", true, false, (*bench).binarySize, "size of the stripped binary"},
		{"start", true, false, (*bench).starts, "start to first right answer"},
		{"memory", true, false, (*bench).memory, "resident memory, and bytes for an endpoint"},
		{"restart", false, true, (*bench).restart, "peak memory when the API server comes back with its history gone"},
		{"change", false, true, (*bench).change, "change acknowledged to change answered, over a bare watch"},
		{"node-change", false, true, (*bench).nodeChange,
			"change acknowledged to an answer that the kernel of a node repeats, beside the same without repetition"},
		{"latency", false, true, (*bench).latency, "latency at half load while the cluster changes"},
	}
}

// source returns the origin of the cluster for the servers of a comparison.
func (b *bench) source() string {
	origins := b.origins()
	return origins[len(origins)-1].source
}

// An origin is a source of the cluster's objects for a server.
type origin struct{ name, source string }

func (b *bench) origins() []origin {
	origins := []origin{{"folder", fromFolder(b.folder())}}
	if b.api != nil {
		origins = append(origins, origin{"api", fromAPI(b.api.kubeconfig)})
	}
	return origins
}

// last returns a query about the last Service of a population, which a server is
// not likely to answer before it has read the whole cluster. It is about the last
// endpoint, since the first one changes.
func (p population) last() *lookup {
	s := p.service(p.services() - 1)
	ip := s.endpoints[len(s.endpoints)-1]
	return newLookup(s.endpoint(ip), dns.TypeA, false, dns.RcodeSuccess, "A "+ip.String())
}

// record queries a server for some workloads, so that the bare loop can return
// the same answers.
func (b *bench) record(s *server, names ...string) (table, error) {
	conn, err := net.Dial("udp4", s.addr().String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	t := table{}
	room := make([]byte, 1<<16)
	for _, name := range names {
		for _, q := range b.work[name].lookups {
			if t[string(q.packet[12:])] != nil {
				continue
			}

			n, err := exchange(conn, q, room, 5*patience)
			if err != nil {
				return nil, fmt.Errorf("recording the answers of the loop: %w", err)
			}
			if why := q.wrong(room[:n], true); why != "" {
				return nil, fmt.Errorf("%s: our own answer is wrong: %s", name, why)
			}

			t[string(q.packet[12:])] = append([]byte(nil), room[:n]...)
		}
	}
	return t, nil
}

// A peer is a server to compare with, and the workloads that it can serve.
type peer struct {
	label  string
	server *server
	only   []string // nil is all
}

// peers starts our server, the loop and the other peers, each with that many
// readers, and waits until they answer.
func (b *bench) peers(ctx context.Context, readers int, all bool, names ...string) ([]peer, error) {
	ours, err := b.start(ctx, b.stock(b.source(), readers), b.pop.last())
	if err != nil {
		return nil, err
	}

	answers, err := b.record(ours, names...)
	if err != nil {
		return nil, err
	}

	floor, err := b.startLoop(ctx, "loop", answers, b.work[names[0]].lookups[0], "-readers", fmt.Sprint(readers))
	if err != nil {
		return nil, err
	}

	peers := []peer{{"seamark", ours, nil}, {"loop", floor, nil}}
	if peers, err = b.addPeer(ctx, peers, b.base(b.stock(b.source(), readers))); err != nil {
		return peers, err
	}
	values := map[string]any{"readers": readers}
	for _, other := range []struct {
		name     string
		only     []string
		selected bool
		values   map[string]any
	}{
		{"knot", nil, true, values},
		{"unbound", []string{"A", "nxdomain", "mix"}, all, values},
		{"dnsmasq", []string{"A", "nxdomain"}, all && readers == 1, nil},
		{"coredns", nil, all && readers == 1 && b.api != nil, map[string]any{"source": b.source()}},
	} {
		if other.selected {
			peers, err = b.addPeer(ctx, peers, b.peer(other.name, other.values), other.only...)
		}
		if err != nil {
			return peers, err
		}
	}
	return peers, nil
}

// startLoop starts the bare loop and waits until it answers q.
func (b *bench) startLoop(ctx context.Context, name string, t table, q *lookup, more ...string) (*server, error) {
	addr, err := b.freeAddress()
	if err != nil {
		return nil, err
	}
	file, err := b.tableFile(t)
	if err != nil {
		return nil, err
	}
	return b.start(ctx, b.loop(name, addr, file, more...), q)
}

// addPeer starts a peer if it is installed. The run continues without one that does not start.
func (b *bench) addPeer(ctx context.Context, peers []peer, p program, only ...string) ([]peer, error) {
	if b.paths[p.name] == "" {
		return peers, nil
	}
	s, err := b.start(ctx, p, b.pop.last())
	switch {
	case err == nil:
		return append(peers, peer{p.name, s, only}), nil
	case s == nil || ctx.Err() != nil:
		return peers, err
	}
	b.miss("%v", err)
	return peers, nil
}

// among returns a scenario that compares the peers.
func among(readers int, all bool, rows ...comparison) func(*bench, context.Context) error {
	return func(b *bench, ctx context.Context) error {
		defer b.stopServers()
		var workloads []string
		for _, c := range rows {
			workloads = append(workloads, c.workload)
		}
		peers, err := b.peers(ctx, readers, all, workloads...)
		if err != nil {
			return err
		}
		return b.compareAll(ctx, peers, rows...)
	}
}

// udp is the main comparison.
func (b *bench) udp(ctx context.Context) error {
	kinds := []string{"A", "nxdomain", "nodata", "headless3", "headless60", "endpoint", "srv", "ptr"}
	if !b.quick {
		kinds = append(kinds, "mix")
	}
	var rows []comparison
	for _, kind := range kinds {
		rows = append(rows, comparison{name: kind, title: b.work[kind].title, workload: kind})
	}
	return among(1, true, rows...)(b, ctx)
}

// ways compares transports and forwarding with plain UDP.
func (b *bench) ways(ctx context.Context) error {
	defer b.stopServers()
	peers, err := b.peers(ctx, 1, false, "A")
	if err != nil {
		return err
	}

	loop := peers[1].server
	peers = slices.Delete(peers, 1, 2) // the loop has no TCP
	contenders := []contender{{"loop", loop, b.load(loop, comparison{workload: "A"})}}
	for _, c := range []comparison{
		{name: "A", workload: "A"},
		{name: "cached", workload: "cached"},
		{name: "tcp 1x100", workload: "A", transport: overTCP, sockets: 1, window: 100},
		{name: "tcp 16x6", workload: "A", transport: overTCP, sockets: 16, window: 16 * 6},
	} {
		for _, p := range peers {
			switch p.label {
			case "seamark":
				contenders = append(contenders, contender{c.name, p.server, b.load(p.server, c)})
			case "base":
				contenders = append(contenders, contender{"base " + c.name, p.server, b.load(p.server, c)})
			}
		}
	}
	if err = b.compare(ctx, "paths", "ways to our server", contenders); err != nil {
		return err
	}

	return b.compareAll(ctx, peers, comparison{name: "new", title: "ClusterIP, A, a TCP connection for each query",
		workload: "A", transport: perTCP, sockets: 8}) // Knot's listen backlog is ten connections
}

// encrypted compares encrypted transports on persistent connections. Unbound has
// DoT and DoH, NSD has DoT; DoQ is compared with our DoH.
func (b *bench) encrypted(ctx context.Context) error {
	defer b.stopServers()
	if err := b.writeCertificate(); err != nil {
		return err
	}

	encrypted := b.seamark("encrypted.Corefile", map[string]any{"source": b.source()})
	ours, err := b.start(ctx, encrypted, b.pop.last())
	if err != nil {
		return err
	}
	peers := []peer{{"seamark", ours, nil}}
	unbound := b.peer("unbound", map[string]any{"readers": 1, "encrypted": true})
	for _, p := range []program{b.base(encrypted), unbound, b.peer("nsd", nil)} {
		if peers, err = b.addPeer(ctx, peers, p); err != nil {
			return err
		}
	}

	var rows []comparison
	for _, c := range []comparison{
		{name: "dot 16x1", transport: overTLS, sockets: 16, window: 16},
		{name: "dot 16x6", transport: overTLS, sockets: 16, window: 16 * 6},
		{name: "dot 1x100", transport: overTLS, sockets: 1, window: 100},
		{name: "doh 16x1", transport: overHTTPS, sockets: 16, window: 16},
		{name: "doh 16x6", transport: overHTTPS, sockets: 16, window: 16 * 6},
		{name: "doh 1x100", transport: overHTTPS, sockets: 1, window: 100},
		{name: "doq 16x1", transport: overQUIC, sockets: 16, window: 16},
		{name: "doq 16x6", transport: overQUIC, sockets: 16, window: 16 * 6},
		{name: "doq 1x100", transport: overQUIC, sockets: 1, window: 100},
	} {
		c.title, c.workload = "ClusterIP, A, "+c.name, "A"
		rows = append(rows, c)
	}
	return b.compareAll(ctx, peers, rows...)
}

// admin measures the cost of the directive admin: CPU under load and at 1,000 queries a
// second, where every query is recorded, and memory after that.
func (b *bench) admin(ctx context.Context) error {
	defer b.stopServers()
	without, with := b.stock(b.source(), 1), b.stock(b.source(), 1)
	with.values["admin"] = true
	peers, err := b.offAndOn(ctx, without, with)
	if err != nil {
		return err
	}

	err = b.compareAll(ctx, peers,
		comparison{name: "admin", title: "ClusterIP, A, without and with the directive admin", workload: "A"},
		comparison{name: "admin idle", title: "the same, 1,000 queries a second", workload: "A", rate: 1000, longer: 2})
	if err != nil {
		return err
	}

	for _, p := range peers {
		f, err := memory(p.server.pid())
		if err != nil {
			return err
		}
		b.megabytes("admin memory/"+p.label, "resident after load, admin "+p.label, f.resident)
	}
	return nil
}

// offAndOn starts our server twice, without and with what a scenario measures.
func (b *bench) offAndOn(ctx context.Context, without, with program) (peers []peer, err error) {
	for i, p := range []program{without, with} {
		s, err := b.start(ctx, p, b.pop.last())
		if err != nil {
			return nil, err
		}
		peers = append(peers, peer{[]string{"off", "on"}[i], s, nil})
	}
	return peers, nil
}

func (b *bench) binarySize(context.Context) error {
	info, err := os.Stat(b.binary)
	if err != nil {
		return err
	}
	b.number("binary/size", "stripped binary", "MB", float64(info.Size())/1e6)
	return nil
}

// starts measures the time from start to the first right answer, several times.
func (b *bench) starts(ctx context.Context) error {
	for _, from := range b.origins() {
		var seconds []float64
		for range b.rounds + 1 {
			start := clock()
			s, err := b.start(ctx, b.stock(from.source, 1), b.pop.last())
			if err != nil {
				return err
			}
			seconds = append(seconds, (clock() - start).Seconds())
			s.stop()
		}
		// The first start reads the binary from disk.
		b.number("start/"+from.name, "start to first right answer, "+from.name, "s", seconds[1:]...)
		b.stopServers()
	}
	return nil
}
