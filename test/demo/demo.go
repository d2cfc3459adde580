package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/sys/clock"
)

// A demo serves manifests and sends queries to the server.
type demo struct {
	command              func(args ...string) *exec.Cmd // of the server
	manifests, dns, page string
	out                  io.Writer
	scenes               []scene
	dying                atomic.Bool // whether the second upstream is silent
	tasks                sync.WaitGroup
}

// A scene is a part of the demo. Its play, if any, ends with its context.
type scene struct {
	lasts time.Duration
	text  string
	play  func(d *demo, ctx context.Context)
}

// corefile is the server's: its arguments are the page, the manifests and the two upstreams.
const corefile = `. {
    admin %s
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        manifests %q
        fallthrough in-addr.arpa ip6.arpa
    }
    forward . %s %s {
        policy round_robin
    }
    cache 30
}
`

// free returns an error unless a server can listen on an address.
func free(network, address string) error {
	var listening io.Closer
	var err error
	if network == "udp" {
		listening, err = net.ListenPacket(network, address)
	} else {
		listening, err = net.Listen(network, address)
	}
	if err != nil {
		return fmt.Errorf("%w: end make run, or the program that has the address", err)
	}
	return listening.Close()
}

// run serves and sends queries until ctx ends, or until the server does.
func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer d.tasks.Wait()
	defer cancel()

	// The server would say so, too, but after the demo has described itself.
	if err := errors.Join(free("tcp", d.page), free("tcp", d.dns), free("udp", d.dns)); err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "seamark-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	manifests, err := filepath.Abs(d.manifests)
	if err != nil {
		return err
	}

	healthy, err := d.upstream(ctx, new(atomic.Bool))
	if err != nil {
		return err
	}
	mortal, err := d.upstream(ctx, &d.dying)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "Corefile")
	text := fmt.Sprintf(corefile, d.page, manifests, healthy, mortal)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}

	var log bytes.Buffer // shown if the server ends by itself
	server := d.command("serve", "--conf", file, "--listen", d.dns)
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()

	d.describe()
	d.tasks.Go(func() { d.play(ctx) })
	d.pods(ctx)

	select {
	case err := <-ended:
		return fmt.Errorf("the server ended: %v\n%s", err, log.String())
	case <-ctx.Done():
	}
	_ = server.Process.Signal(syscall.SIGTERM) // it may have had the terminal's interrupt, too
	<-ended
	return nil
}

func (d *demo) describe() {
	host, port, _ := net.SplitHostPort(d.dns)
	fmt.Fprintf(d.out, `The shop of the folder %s is served, and its pods ask for names.

  the page     http://%s/
  a query      dig @%s -p %s web.shop.svc.cluster.local
  what is up   bin/seamark status --admin %[2]s
  a reason     bin/seamark explain wbe.shop.svc.cluster.local --admin %[2]s

Ctrl-C ends everything.

`, d.manifests, d.page, host, port)
}

// play plays the scenes, again and again.
func (d *demo) play(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i = (i + 1) % len(d.scenes) {
		s := d.scenes[i]
		fmt.Fprintf(d.out, "%s  %s\n", time.Now().Format(time.TimeOnly), s.text)
		scene, end := context.WithTimeout(ctx, s.lasts)
		if s.play != nil {
			s.play(d, scene)
		}
		<-scene.Done()
		end()
	}
}

// pods starts the clients of all scenes.
func (d *demo) pods(ctx context.Context) {
	for _, p := range []struct {
		address string
		rate    int // queries a second
		name    func() string
	}{
		{"127.0.0.11", 40, anyOf("cart.shop.svc.cluster.local.", "redis.payments.svc.cluster.local.", "web.shop.svc.cluster.local.")},
		{"127.0.0.12", 25, anyOf("checkout.shop.svc.cluster.local.", "reviews.shop.svc.cluster.local.", "search.shop.svc.cluster.local.")},
		{"127.0.0.13", 2, anyOf("wbe.shop.svc.cluster.local.")},
		{"127.0.0.14", 20, searched()},
		{"127.0.0.15", 8, func() string { return fmt.Sprintf("host-%d.example.net.", rand.IntN(300)) }},
	} {
		d.tasks.Go(func() { d.send(ctx, p.address, p.rate, p.name) })
	}
}

func anyOf(names ...string) func() string {
	return func() string { return names[rand.IntN(len(names))] }
}

func randomName() string { return fmt.Sprintf("%08x.shop.svc.cluster.local.", rand.Uint32()) }

// searched returns the queries of a pod with ndots:5 that looks up a name outside of the cluster.
func searched() func() string {
	i := -1
	return func() string {
		i = (i + 1) % 4
		return "api.example.org." + [...]string{"shop.svc.cluster.local.", "svc.cluster.local.", "cluster.local.", ""}[i]
	}
}

// send sends queries from an address of the loopback interface, at a rate, until ctx ends.
func (d *demo) send(ctx context.Context, from string, rate int, name func() string) {
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(ctx, "udp", d.dns)
	if err != nil { // macOS has 127.0.0.1 only
		if conn, err = net.Dial("udp", d.dns); err != nil {
			return
		}
	}
	defer func() { _ = conn.Close() }()
	d.tasks.Go(func() { // the replies, so that the server finds the port open
		for packet := make([]byte, 4096); ctx.Err() == nil; {
			if _, err := conn.Read(packet); err != nil && ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond) // the server has not begun to listen
			}
		}
	})

	for range clock.Ticks(ctx, time.Second/time.Duration(rate)) {
		if packet, err := new(dns.Msg).SetQuestion(name(), dns.TypeA).Pack(); err == nil {
			_, _ = conn.Write(packet)
		}
	}
}

// upstream starts a DNS server that has an address for each name, and is silent while it is dying.
func (d *demo) upstream(ctx context.Context, dying *atomic.Bool) (address string, err error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		if dying.Load() {
			return
		}
		reply := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			header := dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 10}
			reply.Answer = append(reply.Answer, &dns.A{Hdr: header, A: net.IPv4(192, 0, 2, 80)})
		}
		_ = w.WriteMsg(reply)
	})

	server := &dns.Server{PacketConn: conn, Handler: answer}
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	d.tasks.Go(func() { _ = server.ActivateAndServe() })
	<-started
	context.AfterFunc(ctx, func() { _ = server.Shutdown() })
	return conn.LocalAddr().String(), nil
}
