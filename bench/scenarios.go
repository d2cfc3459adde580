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
		{"two", false, false, (*bench).two, "the same for A with two readers"},
		{"paths", true, false, (*bench).ways,
			"cached names and TCP beside our own UDP; a TCP connection for each query beside Knot"},
		{"encrypted", true, false, (*bench).encrypted,
			"DoT and DoH on persistent connections beside Unbound and NSD, and DoQ"},
		{"abuse", false, false, (*bench).abuse, "memory and the answers to another client while one abuses HTTP/2"},
		{"transfer", false, false, (*bench).transfer, "CPU and bytes of a change that secondaries transfer by IXFR"},
		{"admin", false, false, (*bench).admin, "CPU and memory without and with the directive admin"},
		{"node", false, false, (*bench).node,
			"CPU per answer to a pod and memory of the cache of a node, in network namespaces"},
		{"idle", true, false, (*bench).idle, "CPU per query at 1,000 queries a second"},
		{"binary", true, false, (*bench).binarySize, "size of the stripped binary"},
		{"start", true, false, (*bench).starts, "start to first right answer"},
		{"memory", true, false, (*bench).memory, "resident memory, and bytes for an endpoint"},
		{"restart", false, true, (*bench).restart, "peak memory when the API server comes back with its history gone"},
		{"change", false, true, (*bench).change, "change acknowledged to change answered, over a bare watch"},
		{"latency", false, true, (*bench).latency, "latency at half load while the cluster changes"},
	}
}

// source returns the origin of the cluster for the servers of a comparison.
func (b *bench) source() string {
	if b.api != nil {
		return fromAPI(b.api.kubeconfig)
	}
	return fromFolder(b.folder())
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
	conn, err := net.Dial("udp4", s.addr.String())
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
	ours, err := b.seamark(ctx, b.source(), readers, b.pop.last())
	if err != nil {
		return nil, err
	}

	answers, err := b.record(ours, names...)
	if err != nil {
		return nil, err
	}

	floor, err := b.loop("loop", answers, readers)
	if err != nil {
		return nil, err
	}
	if err := floor.await(ctx, b.work[names[0]].lookups[0]); err != nil {
		return nil, err
	}

	peers := []peer{{"seamark", ours, nil}, {"loop", floor, nil}}
	for _, other := range []struct {
		name     string
		only     []string
		selected bool
		start    func() (*server, error)
	}{
		{"knot", nil, true, func() (*server, error) { return b.knot(readers) }},
		{"unbound", []string{"A", "nxdomain", "mix"}, all, func() (*server, error) { return b.unbound(readers) }},
		{"dnsmasq", []string{"A", "nxdomain"}, all && readers == 1, b.dnsmasq},
		{"coredns", nil, all && readers == 1 && b.api != nil, b.coredns},
	} {
		if !other.selected || b.paths[other.name] == "" {
			continue
		}

		s, err := other.start()
		if err != nil {
			return peers, err
		}

		if err := s.await(ctx, b.pop.last()); err != nil {
			if ctx.Err() != nil {
				return peers, err
			}
			b.miss("%v", err) // the run continues without a peer that does not start
			continue
		}

		peers = append(peers, peer{other.name, s, other.only})
	}

	return peers, nil
}

// contenders returns the peers that serve a workload, with the usual load for it,
// changed by edit.
func (b *bench) contenders(peers []peer, workload string, edit func(*load)) (contenders []contender) {
	for _, p := range peers {
		if p.only == nil || slices.Contains(p.only, workload) {
			l := b.load(p.server, workload)
			edit(&l)
			contenders = append(contenders, contender{p.label, p.server, l})
		}
	}
	return contenders
}

// udp is the main comparison.
func (b *bench) udp(ctx context.Context) error {
	defer b.stopServers()
	kinds := []string{"A", "nxdomain", "nodata", "headless3", "headless60", "endpoint", "srv", "ptr"}
	if !b.quick {
		kinds = append(kinds, "mix")
	}
	peers, err := b.peers(ctx, 1, true, kinds...)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := b.compare(ctx, kind, b.work[kind].title, b.contenders(peers, kind, func(*load) {})); err != nil {
			return err
		}
	}
	return nil
}

// two compares A queries with two readers each.
func (b *bench) two(ctx context.Context) error {
	return b.compareA(ctx, "two", "ClusterIP, A, two readers", 2, true,
		func(l *load) { l.sockets = 64 }) // distributed over the readers by hash
}

// idle measures the cost of waiting, at low load.
func (b *bench) idle(ctx context.Context) error {
	return b.compareA(ctx, "idle", "ClusterIP, A, 1,000 queries a second", 1, false,
		func(l *load) { l.rate, l.time = 1000, 3*b.time })
}

// compareA compares the peers with A queries under a changed load.
func (b *bench) compareA(
	ctx context.Context, scenario, title string, readers int, all bool, edit func(*load),
) error {
	defer b.stopServers()
	peers, err := b.peers(ctx, readers, all, "A")
	if err != nil {
		return err
	}
	return b.compare(ctx, scenario, title, b.contenders(peers, "A", edit))
}

// ways compares transports and forwarding with plain UDP.
func (b *bench) ways(ctx context.Context) error {
	defer b.stopServers()
	peers, err := b.peers(ctx, 1, false, "A")
	if err != nil {
		return err
	}

	ours := peers[0].server
	udp := b.load(ours, "A")
	one, many := udp, udp
	one.transport, one.sockets, one.window, one.rate = overTCP, 1, 100, 0
	many.transport, many.sockets, many.window, many.rate = overTCP, 16, 16*6, 0
	err = b.compare(ctx, "paths", "ways to our server", []contender{
		{"A", ours, udp},
		{"loop", peers[1].server, b.load(peers[1].server, "A")},
		{"cached", ours, b.load(ours, "cached")},
		{"tcp 1x100", ours, one},
		{"tcp 16x6", ours, many},
	})
	if err != nil {
		return err
	}

	peers = slices.DeleteFunc(peers, func(p peer) bool { return p.label == "loop" }) // it has no TCP
	contenders := b.contenders(peers, "A", func(l *load) {
		l.transport, l.rate, l.sockets = perTCP, 0, 8 // Knot's listen backlog is ten connections
	})
	return b.compare(ctx, "new", "ClusterIP, A, a TCP connection for each query", contenders)
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
			s, err := b.seamark(ctx, from.source, 1, b.pop.last())
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

// An origin is a source of the cluster's objects for a server.
type origin struct{ name, source string }

func (b *bench) origins() []origin {
	origins := []origin{{"folder", fromFolder(b.folder())}}
	if b.api != nil {
		origins = append(origins, origin{"api", fromAPI(b.api.kubeconfig)})
	}
	return origins
}
