package cmd_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/memorygroup"
)

// attackers is the number of addresses from which a server is attacked over all transports at once.
const attackers = 200

// attackerAddress returns the address of an attacker.
func attackerAddress(n int) net.IP { return net.IPv4(127, 0, 20+byte(n>>8), byte(n)) }

// An attacker attacks all transports of a server from one address, in a way of its own, until ctx ends.
type attacker struct {
	*fill
	n    int
	ctx  context.Context
	done attacks
}

// attacks counts what all attackers have begun, by scheme: connections, and over UDP series of queries.
type attacks map[string]*atomic.Int64

func newAttacks() attacks {
	counts := attacks{"udp": new(atomic.Int64)}
	for _, scheme := range schemes {
		counts[scheme] = new(atomic.Int64)
	}
	return counts
}

// fewest returns the number for the transport that was attacked least.
func (a attacks) fewest() int64 {
	least := int64(math.MaxInt64)
	for _, n := range a {
		least = min(least, n.Load())
	}
	return least
}

func (a attacks) String() string {
	text := ""
	for _, scheme := range append([]string{"udp"}, schemes...) {
		text += fmt.Sprintf(" %s %d", scheme, a[scheme].Load())
	}
	return text
}

// query returns a query in wire form: for names that are never answered, or with large answers.
func (a attacker) query(i int) []byte {
	zone := "silent"
	if a.n%2 == 0 {
		zone = "large"
	}
	m := new(dns.Msg).SetQuestion(fmt.Sprintf("a%d-%d.%s.example.", a.n, i, zone), dns.TypeTXT)
	m.Id = uint16(i)
	packet, _ := m.Pack()
	return packet
}

func framed(packet []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
}

// repeat calls one until ctx ends, each time with some seconds to use what it opens. The processor time of
// handshakes is also the attackers', who share the machine with the server.
func (a attacker) repeat(tasks *sync.WaitGroup, scheme string, one func(ctx context.Context, i int)) {
	tasks.Go(func() {
		for i := 0; a.ctx.Err() == nil; i++ {
			a.done[scheme].Add(1)
			ctx, cancel := context.WithTimeout(a.ctx, time.Duration(5+(a.n+i)%10)*time.Second)
			one(ctx, i)
			cancel()
			sleep(a.ctx, time.Second)
		}
	})
}

// attack begins the attack. Each function keeps a few connections at a time.
func (a attacker) attack(tasks *sync.WaitGroup) {
	ip := attackerAddress(a.n)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}, Timeout: 5 * time.Second}
	config := func(protocol string) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}
	}

	// Queries whose replies are not read, half a message, or none.
	stream := func(ctx context.Context, conn net.Conn, err error) {
		if err != nil {
			sleep(ctx, time.Second)
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		switch a.n % 5 {
		case 0, 1, 2:
			for i := range 20 {
				if _, err := conn.Write(framed(a.query(i))); err != nil {
					return
				}
			}
		case 3:
			_, _ = conn.Write(framed(a.query(0))[:10])
		}
		<-ctx.Done()
	}
	a.repeat(tasks, "dns", func(ctx context.Context, _ int) {
		conn, err := dialer.DialContext(ctx, "tcp", a.at("dns"))
		stream(ctx, conn, err)
	})
	a.repeat(tasks, "tls", func(ctx context.Context, i int) {
		if i%4 == 3 { // half a handshake
			conn, err := dialer.DialContext(ctx, "tcp", a.at("tls"))
			if err == nil {
				_, _ = io.WriteString(conn, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
				<-ctx.Done()
				conn.Close()
			}
			return
		}
		conn, err := (&tls.Dialer{NetDialer: dialer, Config: config("dot")}).DialContext(ctx, "tcp", a.at("tls"))
		stream(ctx, conn, err)
	})

	post := func(ctx context.Context, client http.RoundTripper, scheme string) {
		var requests sync.WaitGroup
		for i := range 10 {
			requests.Go(func() {
				body := io.Reader(bytes.NewReader(a.query(i)))
				if a.n%5 == 3 { // its end never comes
					r, w := io.Pipe()
					defer context.AfterFunc(ctx, func() { w.Close() })()
					body = r
				}
				r, err := http.NewRequestWithContext(ctx, "POST", "https://"+a.at(scheme)+"/dns-query", body)
				if err != nil {
					return
				}
				r.Header.Set("Content-Type", "application/dns-message")
				if reply, err := client.RoundTrip(r); err == nil {
					<-ctx.Done()
					reply.Body.Close()
				}
			})
		}
		requests.Wait()
	}
	a.repeat(tasks, "https", func(ctx context.Context, _ int) {
		client := &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
		}
		defer client.CloseIdleConnections()
		post(ctx, client, "https")
	})

	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip})
	if err != nil {
		a.Error(err)
		return
	}
	transport := &quic.Transport{Conn: socket}
	context.AfterFunc(a.ctx, func() { transport.Close(); socket.Close() })
	dial := func(ctx context.Context, scheme string, config *tls.Config) (*quic.Conn, error) {
		to, err := net.ResolveUDPAddr("udp", a.at(scheme))
		if err != nil {
			return nil, err
		}
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return transport.Dial(short, to, config, nil)
	}
	a.repeat(tasks, "quic", func(ctx context.Context, _ int) {
		conn, err := dial(ctx, "quic", config("doq"))
		if err != nil {
			return
		}
		defer conn.CloseWithError(0, "")
		for i := range 20 {
			s, err := conn.OpenStreamSync(ctx)
			if err != nil {
				return
			}
			_, _ = s.Write(framed(a.query(i)))
			if a.n%5 != 3 {
				_ = s.Close()
			}
		}
		<-ctx.Done()
	})
	a.repeat(tasks, "https3", func(ctx context.Context, _ int) {
		client := &http3.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			Dial: func(ctx context.Context, _ string, c *tls.Config, _ *quic.Config) (*quic.Conn, error) {
				return dial(ctx, "https3", c)
			},
		}
		defer client.Close()
		post(ctx, client, "https3")
	})

	a.repeat(tasks, "udp", func(ctx context.Context, i int) { // UDP, at ten queries a second
		conn, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: ip}}).DialContext(ctx, "udp", a.at("dns"))
		if err != nil {
			return
		}
		defer conn.Close()
		for j := 0; ctx.Err() == nil; j++ {
			_, _ = conn.Write(a.query(1000*i + j))
			sleep(ctx, 100*time.Millisecond)
		}
	})
}

// Clients at 200 addresses attack all transports at once, beside a cluster of 10,000 Services with 150,000
// endpoints: the kernel kills no process, own names are answered, and afterwards each transport has places
// again. How many new clients have answers meanwhile is in the log.
func TestMemoryTransportsAttacked(t *testing.T) {
	long(t)
	bound.Only(t) // the attacks need processors, and some minutes
	binary := buildServer(t)
	for _, limit := range []int{64 << 20, 170 << 20} {
		t.Run(fmt.Sprint(limit>>20), func(t *testing.T) {
			f, g := newFill(t), memorygroup.New(t, limit)
			c := exec.CommandContext(t.Context(), binary, "-conf", "Corefile")
			c.Dir = f.dir
			g.Add(c)
			p := start(t, c, os.Stderr, "")
			t.Logf("with the cluster alone: %s", g)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var tasks sync.WaitGroup
			done := newAttacks()
			for n := range attackers {
				attacker{f, n + 1, ctx, done}.attack(&tasks)
			}
			sleep(ctx, 10*time.Second)
			for done.fewest() < 2*attackers && g.Kills() == 0 { // slow attackers show nothing
				sleep(ctx, 100*time.Millisecond)
			}

			measuring, measured := context.WithTimeout(ctx, 15*time.Second)
			asked, answered := f.newcomers(measuring, &tasks)
			took, lost := f.own(measuring)
			measured()
			cancel()
			tasks.Wait()

			if n := g.Kills(); n > 0 { // there is no page of metrics to read
				t.Fatalf("the kernel killed %d processes: %s", n, g)
			}
			detail := fmt.Sprint("attacks:", done, "; refused ", f.refused(), "; answers to new clients:")
			for i, scheme := range schemes {
				detail += fmt.Sprintf(" %s %d of %d", scheme, answered[i].Load(), asked[i].Load())
			}
			survived(t, g, took, lost, detail)

			// What the attackers held is free again.
			for _, scheme := range schemes {
				chaintest.Eventually(t, "an answer over "+scheme, func() bool { return f.newcomer(scheme, net.IPv4(127, 0, 40, 1)) })
			}
			p.stop()
			<-p.done
			t.Logf("processor time of the server in about 25s: %v", p.ProcessState.UserTime()+p.ProcessState.SystemTime())
		})
	}
}

// newcomers asks over each transport, from an address of its own each time, until ctx ends.
func (f *fill) newcomers(ctx context.Context, tasks *sync.WaitGroup) (asked, answered *[5]atomic.Int64) {
	asked, answered = new([5]atomic.Int64), new([5]atomic.Int64)
	for i, scheme := range schemes {
		tasks.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				asked[i].Add(1)
				if f.newcomer(scheme, net.IPv4(127, 0, 30+byte(i), byte(n%250+1))) {
					answered[i].Add(1)
				}
				sleep(ctx, 200*time.Millisecond)
			}
		})
	}
	return asked, answered
}

// newcomer reports whether a client at an address gets an answer over a new connection within five seconds.
func (f *fill) newcomer(scheme string, ip net.IP) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	m := new(dns.Msg).SetQuestion("svc1.ns1.svc.cluster.local.", dns.TypeA)
	m.Id = 0
	packet, err := m.Pack()
	if err != nil {
		f.Error(err)
	}

	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}
	secure := &tls.Config{InsecureSkipVerify: true}
	var reply []byte
	switch scheme {
	case "dns", "tls":
		client := &dns.Client{Net: "tcp", Dialer: dialer, Timeout: 5 * time.Second, TLSConfig: secure}
		if scheme == "tls" {
			client.Net = "tcp-tls"
		}
		if answer, _, err := client.Exchange(m, f.at(scheme)); err == nil {
			reply, _ = answer.Pack()
		}
	case "https":
		client := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: secure, ForceAttemptHTTP2: true}
		defer client.CloseIdleConnections()
		reply = posted(ctx, client, "https://"+f.at(scheme)+"/dns-query", packet)
	case "quic", "https3":
		socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip})
		if err != nil {
			f.Error(err)
			return false
		}
		defer socket.Close()
		transport := &quic.Transport{Conn: socket}
		defer transport.Close()
		to, _ := net.ResolveUDPAddr("udp", f.at(scheme))
		dial := func(ctx context.Context, _ string, c *tls.Config, _ *quic.Config) (*quic.Conn, error) {
			return transport.Dial(ctx, to, c, nil)
		}
		if scheme == "https3" {
			client := &http3.Transport{TLSClientConfig: secure, Dial: dial}
			defer client.Close()
			reply = posted(ctx, client, "https://"+f.at(scheme)+"/dns-query", packet)
			break
		}
		secure.NextProtos = []string{"doq"}
		reply = overQUIC(ctx, dial, secure, packet)
	}

	answer := new(dns.Msg)
	return answer.Unpack(reply) == nil && len(answer.Answer) == 1
}

// posted returns the body of the response to a query over HTTPS, nil if there is none.
func posted(ctx context.Context, client http.RoundTripper, url string, packet []byte) []byte {
	r, err := http.NewRequestWithContext(ctx, "POST", url, bytes.NewReader(packet))
	if err != nil {
		return nil
	}
	r.Header.Set("Content-Type", "application/dns-message")
	reply, err := client.RoundTrip(r)
	if err != nil {
		return nil
	}
	defer reply.Body.Close()
	body, _ := io.ReadAll(reply.Body)
	return body
}

// overQUIC returns the reply to a query over QUIC, nil if there is none.
func overQUIC(
	ctx context.Context, dial func(context.Context, string, *tls.Config, *quic.Config) (*quic.Conn, error),
	secure *tls.Config, packet []byte,
) []byte {
	conn, err := dial(ctx, "", secure, nil)
	if err != nil {
		return nil
	}
	defer conn.CloseWithError(0, "")
	s, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { s.CancelRead(0) })()
	_, _ = s.Write(framed(packet))
	_ = s.Close()
	reply, err := io.ReadAll(s)
	if err != nil || len(reply) < 2 {
		return nil
	}
	return reply[2:]
}
