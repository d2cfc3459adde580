package kubetest

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/test/bound"

	"github.com/miekg/dns"
)

const (
	// replyTime is the time after which a query counts as lost; no query of these
	// tests waits for another server.
	replyTime = 20 * time.Second
	// soon bounds the time until a change is answered, which takes milliseconds on an idle
	// machine. Polls and retries take longer.
	soon = 4 * time.Second
)

// A lookup is a query and its only right answer: the response code and the data
// of the answer section, sorted.
type lookup struct {
	name  string // without the final dot
	qtype uint16
	want  string
}

func lookupA(name, want string) lookup    { return lookup{name, dns.TypeA, want} }
func lookupAAAA(name, want string) lookup { return lookup{name, dns.TypeAAAA, want} }
func lookupSRV(name, want string) lookup  { return lookup{name, dns.TypeSRV, want} }
func lookupPTR(name, want string) lookup  { return lookup{name, dns.TypePTR, want} }

func (q lookup) String() string { return q.name + " " + dns.TypeToString[q.qtype] }

// answer formats a reply as lookup.want, or returns the error.
func answer(reply *dns.Msg, err error) string {
	if err != nil {
		return err.Error()
	}
	var data []string
	for _, rr := range reply.Answer {
		data = append(data, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	slices.Sort(data)
	words := append([]string{dns.RcodeToString[reply.Rcode]}, data...)
	if reply.Truncated {
		words = append(words, "(truncated)")
	}
	return strings.Join(words, " ")
}

// message returns the query's packet.
func (q lookup) message() *dns.Msg { return new(dns.Msg).SetQuestion(q.name+".", q.qtype) }

// exchangeUDP sends a message over UDP and returns the reply.
func exchangeUDP(m *dns.Msg, at string) (*dns.Msg, error) {
	reply, _, err := (&dns.Client{Timeout: replyTime}).Exchange(m, at)
	return reply, err
}

// ask sends a query once, by udp or tcp.
func (d *daemon) ask(network string, q lookup) string {
	reply, _, err := (&dns.Client{Net: network, Timeout: replyTime}).Exchange(q.message(), d.at)
	return answer(reply, err)
}

// check checks the present answers, by UDP and TCP.
func (d *daemon) check(lookups ...lookup) {
	d.Helper()
	for _, q := range lookups {
		for _, network := range []string{"udp", "tcp"} {
			if got := d.ask(network, q); got != q.want {
				d.Errorf("%s by %s: got %s, want %s", q, network, got, q.want)
			}
		}
	}
}

// await queries until the answers are right, by UDP and TCP, and returns the time that
// it took.
func (d *daemon) await(lookups ...lookup) time.Duration {
	d.Helper()
	began := time.Now()
	for _, q := range lookups {
		for got := d.ask("udp", q); got != q.want; got = d.ask("udp", q) {
			if time.Since(began) > patience {
				d.Fatalf("%s: got %s, want %s", q, got, q.want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	took := time.Since(began)
	d.check(lookups...)
	return took
}

// awaitChange is await for one change: until the right answer all answers must be
// the old one, and the change must be answered soon.
func (d *daemon) awaitChange(what string, q lookup) time.Duration {
	d.Helper()
	began := time.Now()
	old := ""
	for {
		got := d.ask("udp", q)
		took := time.Since(began)
		if got == q.want {
			d.check(q)
			bound.AtMost(d, what, took, soon)
			return took
		}
		if old == "" {
			old = got
		}
		if got != old {
			d.Errorf("%s: %s: got %s between %s and %s", what, q, got, old, q.want)
		}
		if took > patience {
			d.Fatalf("%s: %s: got %s, want %s", what, q, got, q.want)
		}
		time.Sleep(time.Millisecond)
	}
}

// A queryLoad sends the same queries all the time. Each has one right answer until the
// load is stopped.
type queryLoad struct {
	d     *daemon
	sent  atomic.Int64
	wrong atomic.Int64
	done  chan struct{}
	tasks sync.WaitGroup
	once  sync.Once
}

// startLoad starts the queries, by UDP and TCP. They end with the test at the latest.
func (d *daemon) startLoad(lookups ...lookup) *queryLoad {
	l := &queryLoad{d: d, done: make(chan struct{})}
	for i := range 4 {
		network := []string{"udp", "tcp"}[i%2]
		l.tasks.Go(func() { l.send(network, lookups, i) })
	}
	d.Cleanup(l.stop)
	return l
}

// send sends one query after the other over one socket.
func (l *queryLoad) send(network string, lookups []lookup, from int) {
	client := &dns.Client{Net: network, Timeout: replyTime}
	conn, err := client.Dial(l.d.at)
	if err != nil {
		l.d.Errorf("load by %s: %v", network, err)
		return
	}
	defer conn.Close()
	for i := from; ; i++ {
		select {
		case <-l.done:
			return
		case <-time.After(2 * time.Millisecond): // a load, not a flood
		}
		q := lookups[i%len(lookups)]
		reply, _, err := client.ExchangeWithConn(q.message(), conn)
		l.sent.Add(1)
		if got := answer(reply, err); got != q.want && l.wrong.Add(1) <= 10 {
			l.d.Errorf("load: %s by %s: got %s, want %s", q, network, got, q.want)
		}
	}
}

// stop ends the load and logs the number of its queries.
func (l *queryLoad) stop() {
	l.once.Do(func() {
		close(l.done)
		l.tasks.Wait()
		if l.sent.Load() < 20 {
			l.d.Errorf("load: got %d queries, want at least 20", l.sent.Load())
		}
		l.d.Logf("load: %d queries, %d wrong answers", l.sent.Load(), l.wrong.Load())
	})
}

// page returns a page of the directives ready, health and prometheus.
func page(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// latencies are the times until changes were answered.
type latencies []time.Duration

func (l latencies) String() string {
	sorted := slices.Sorted(slices.Values(l))
	at := func(percent int) time.Duration {
		return sorted[(len(sorted)-1)*percent/100].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%d changes: median %v, 90%% within %v, 99%% within %v, all within %v", len(l), at(50), at(90), at(99), at(100))
}
