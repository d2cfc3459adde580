//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// transferServices is the size of the cluster, which 100 secondaries can hold.
	transferServices = 200
	// changesPerRound is the number of changes in a round, and changeInterval the time from one
	// to the next: long enough for 100 secondaries to transfer each change by itself.
	changesPerRound = 10
	changeInterval  = 500 * time.Millisecond
)

// transfer measures what a change of a cluster costs the primary and its secondaries, which
// follow by NOTIFY and IXFR.
func (b *bench) transfer(ctx context.Context) error {
	for _, n := range []int{0, 1, 10, 100} {
		if err := b.transferTo(ctx, n); err != nil {
			return fmt.Errorf("%d secondaries: %w", n, err)
		}
	}
	return nil
}

// transferTo measures it with n secondaries.
func (b *bench) transferTo(ctx context.Context, n int) error {
	defer b.stopServers()
	c, err := b.newChangedFolder()
	if err != nil {
		return err
	}

	servers, between, err := b.startTransfers(ctx, c, n) // the first is the primary
	if err != nil {
		return err
	}
	defer between.close()

	var atPrimary, atSecondaries, sizes, transfers []float64
	for range b.rounds {
		idle, err := cpuTimes(servers, func() error { return pause(ctx, changesPerRound*changeInterval) })
		if err != nil {
			return err
		}

		bytes, connections := between.bytes.Load(), between.connections.Load()
		busy, err := cpuTimes(servers, func() error { return c.changeAll(ctx, servers) })
		if err != nil {
			return err
		}

		each := make([]float64, len(servers)) // what a change costs a server, in ms
		for i := range each {
			each[i] = (busy[i] - idle[i]).Seconds() * 1e3 / changesPerRound
		}
		atPrimary = append(atPrimary, each[0])
		if n > 0 {
			atSecondaries = append(atSecondaries, mean(each[1:]))
			sizes = append(sizes, float64(between.bytes.Load()-bytes)/changesPerRound)
			transfers = append(transfers, float64(between.connections.Load()-connections)/changesPerRound)
		}
	}

	with := fmt.Sprintf(" for a change, %d secondaries", n)
	key := fmt.Sprintf("transfer/%d/", n)
	b.number(key+"primary", "CPU of the primary"+with, "ms", atPrimary...)
	if n > 0 {
		b.number(key+"secondary", "CPU of each secondary"+with, "ms", atSecondaries...)
		b.number(key+"bytes", "TCP payload of one secondary, both directions,"+with, "bytes", sizes...)
		b.number(key+"connections", "transfers of one secondary"+with, "", transfers...)
	}

	return nil
}

// startTransfers starts a primary and n secondaries, the first of which reaches the primary by
// a relay, and waits until they answer.
func (b *bench) startTransfers(ctx context.Context, c *changedFolder, n int) (servers []*server, between *relay,
	err error) {
	addresses := make([]netip.AddrPort, 1+n) // the first is the primary's
	for i := range addresses {
		if addresses[i], err = b.freeAddress(); err != nil {
			return nil, nil, err
		}
	}
	if between, err = newRelay("127.0.0.1:0", addresses[0].String()); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			between.close()
		}
	}()

	for i, addr := range addresses {
		p := b.seamark("primary.Corefile", map[string]any{"dir": c.dir, "to": addresses[1:]})
		switch i {
		case 0:
		case 1:
			p = b.seamark("secondary.Corefile", map[string]any{"from": between.addr})
		default:
			p = b.seamark("secondary.Corefile", map[string]any{"from": addresses[0]})
		}
		p.at = map[string]netip.AddrPort{"plain": addr}

		s, err := b.start(ctx, p, c.service.lookup(false))
		if err != nil {
			return nil, between, err
		}
		servers = append(servers, s)
	}
	return servers, between, pause(ctx, b.settle())
}

// A changedFolder is a folder of manifests with a small cluster and a file of its own for the
// Service that changes, so that a change costs little to read.
type changedFolder struct {
	dir     string
	service service
	changes int
}

func (b *bench) newChangedFolder() (*changedFolder, error) {
	b.spawned++
	c := &changedFolder{dir: b.file(fmt.Sprintf("transfer-%d", b.spawned))}
	c.service = service{name: "changing", namespace: "ns-0"}
	for i := range perMoving {
		c.service.endpoints = append(c.service.endpoints, address(10, 251, 0, i+1))
	}
	if err := populate(transferServices).writeManifests(c.dir); err != nil {
		return nil, err
	}
	return c, c.write()
}

// write replaces the file of the changing Service.
func (c *changedFolder) write() error {
	var text bytes.Buffer
	c.service.writeService(&text)
	c.service.writeSlice(&text)
	name := filepath.Join(c.dir, "changing.yaml")
	if err := os.WriteFile(c.dir+".new", text.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(c.dir+".new", name)
}

// change gives the first endpoint another address.
func (c *changedFolder) change() error {
	c.changes++
	c.service.endpoints[0] = newAddress(c.changes)
	return c.write()
}

// changeAll makes the changes of a round and waits until all servers answer the last one.
func (c *changedFolder) changeAll(ctx context.Context, servers []*server) error {
	for range changesPerRound {
		if err := c.change(); err != nil {
			return err
		}
		if err := pause(ctx, changeInterval); err != nil {
			return err
		}
	}
	for _, s := range slices.Backward(servers) {
		if err := s.await(ctx, c.service.lookup(false)); err != nil {
			return err
		}
	}
	return nil
}

// A relay passes TCP connections on to an address, and counts them and their bytes.
type relay struct {
	addr               netip.AddrPort
	listener           net.Listener
	bytes, connections atomic.Int64
}

// newRelay listens at an address.
func newRelay(at, to string) (*relay, error) {
	l, err := net.Listen("tcp4", at)
	if err != nil {
		return nil, err
	}
	r := &relay{addr: l.Addr().(*net.TCPAddr).AddrPort(), listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.connections.Add(1)
			go r.pass(c, to)
		}
	}()
	return r, nil
}

func (r *relay) close() { r.listener.Close() }

// pass passes one connection on until both sides have closed it.
func (r *relay) pass(c net.Conn, to string) {
	defer c.Close()
	s, err := net.Dial("tcp4", to)
	if err != nil {
		return
	}
	defer s.Close()
	copied := func(to, from net.Conn) {
		n, _ := io.Copy(to, from) // an error ends the connection
		r.bytes.Add(n)
		_ = to.(*net.TCPConn).CloseWrite()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		copied(s, c)
	}()
	copied(c, s)
	<-done
}
