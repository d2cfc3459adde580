package shadow

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/operate/diff"
)

// An asker answers names that begin with nx with NXDOMAIN, those with silent not, and others with
// an address; answers are authoritative.
type asker struct{ wait time.Duration }

var errSilent = errors.New("no reply within 2s")

func (a asker) Ask(ctx context.Context, _ int, packet []byte, client netip.AddrPort, _ dns.Proto) (Answer, error) {
	if a.wait > 0 {
		select {
		case <-time.After(a.wait):
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
	var q mdns.Msg
	if err := q.Unpack(packet); err != nil {
		return Answer{}, err
	}
	m := answerTo(&q, "192.0.2.1")
	switch name := q.Question[0].Name; {
	case strings.HasPrefix(name, "silent"):
		return Answer{}, errSilent
	case strings.HasPrefix(name, "nx"):
		m.Rcode, m.Answer = mdns.RcodeNameError, nil
	case strings.HasPrefix(name, "unserved"):
		return Answer{Reply: m}, nil
	}
	return Answer{Reply: m, Size: 100, Elapsed: time.Microsecond, Directive: "kubernetes", Upstream: len(client.String()) % 2}, nil
}

func answerTo(q *mdns.Msg, address string) *mdns.Msg {
	m := new(mdns.Msg).SetReply(q)
	m.Authoritative = true
	record, err := mdns.NewRR(q.Question[0].Name + " 30 IN A " + address)
	if err != nil {
		panic(err)
	}
	m.Answer = []mdns.RR{record}
	return m
}

// exchanges is a source of one query and response for each text: NAME [RCODE|ADDRESS [OPCODE]].
type exchanges struct {
	texts []string
	gap   time.Duration // of the capture, between two queries
	block bool          // wait for the end of the context at the end
}

func (s exchanges) Messages(ctx context.Context, counts *Counts, yield func(*Message) bool) error {
	for i, text := range s.texts {
		words := append(strings.Fields(text), "", "")
		q := new(mdns.Msg).SetQuestion(mdns.Fqdn(words[0]), mdns.TypeA)
		q.Id = uint16(i)
		if words[2] != "" {
			q.Opcode = mdns.StringToOpcode[words[2]]
		}
		if words[1] == "AXFR" {
			q.Question[0].Qtype = mdns.TypeAXFR
		}
		r := answerTo(q, "192.0.2.1")
		if code, ok := mdns.StringToRcode[words[1]]; ok {
			r.Rcode, r.Answer = code, nil
		} else if words[1] != "" && words[1] != "AXFR" {
			r = answerTo(q, words[1])
		}
		query, err := q.Pack()
		if err != nil {
			return err
		}
		response, err := r.Pack()
		if err != nil {
			return err
		}
		counts.Packets += 2
		at := captured.Add(time.Duration(i) * s.gap)
		if !yield(&Message{Time: at, Client: clientAddr, Data: query}) ||
			!yield(&Message{Time: at.Add(time.Millisecond), Client: clientAddr, Response: true, Data: response}) {
			return nil
		}
	}
	if s.block {
		<-ctx.Done()
	}
	return ctx.Err()
}

func options(s Source) Options {
	return Options{Source: s, Asker: asker{}, ClusterDomain: "cluster.local", Rate: 1e6}
}

func TestRun(t *testing.T) {
	o := options(exchanges{texts: []string{
		"a.ns.svc.cluster.local", "b.ns.svc.cluster.local",
		"c.ns.svc.cluster.local 192.0.2.2", "d.ns.svc.cluster.local 192.0.2.3",
		"nxa.ns.svc.cluster.local", "nxb.ns.svc.cluster.local NXDOMAIN",
		"nxwww.example.ns.svc.cluster.local NXDOMAIN", "nxwww.example.svc.cluster.local NXDOMAIN", "nxwww.example.cluster.local NXDOMAIN",
		"nxother.example.svc.cluster.local NXDOMAIN",
		"_tcp.a.ns.svc.cluster.local 192.0.2.1", "silent.ns.svc.cluster.local",
		"unserved.example", "zone.example AXFR", "zone.example NOERROR NOTIFY",
	}})
	o.Unserved = true
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Answered != 15 || r.Compared != 12 || r.Same != 8 || r.Different != 4 || r.SearchPath != 3 || r.RCodes["NXDOMAIN"] != 5 || r.SeamarkRCodes["NXDOMAIN"] != 6 {
		t.Errorf("got %+v", r)
	}
	if r.Skipped[SkippedOpcode] != 1 || r.Skipped[SkippedTransfer] != 1 || r.Skipped[SkippedUnserved] != 1 || len(r.Skipped) != 3 {
		t.Errorf("got skipped %v, want one opcode, one transfer and one without a zone", r.Skipped)
	}
	if r.Directives["kubernetes"] != 11 || r.SeamarkBytes != 1100 || r.Latency.Median < 900*time.Microsecond || r.Latency.Median > 1100*time.Microsecond || r.SeamarkLatency.Median < 900*time.Nanosecond {
		t.Errorf("got directives %v, %d bytes, latencies %+v and %+v", r.Directives, r.SeamarkBytes, r.Latency, r.SeamarkLatency)
	}
	var groups []string
	for _, g := range r.Groups {
		groups = append(groups, fmt.Sprintf("%s: %s, %d (%s) %s", g.Subject, g.Cause, g.Count, g.Type, g.Client))
	}
	want := []string{
		"Service: other records, 2 (A) 10.1.2.3", "Service: records instead of NXDOMAIN, 1 (A) 10.1.2.3",
		"Service: records instead of no reply, 1 (A) 10.1.2.3",
	}
	if strings.Join(groups, "\n") != strings.Join(want, "\n") {
		t.Errorf("got the groups\n%s\nwant\n%s", strings.Join(groups, "\n"), strings.Join(want, "\n"))
	}
}

func TestRunErrors(t *testing.T) {
	many := make([]string, 2*maxSilent)
	for i := range many {
		many[i] = fmt.Sprintf("silent%d.ns.svc.cluster.local", i)
	}
	for _, c := range []struct {
		name  string
		texts []string
		want  string
	}{
		{"no query", nil, "no query was captured"},
		{"silent", many, "no answer to 200 queries in a row, the last one: no reply within 2s"},
	} {
		r, err := Run(t.Context(), options(exchanges{texts: c.texts}))
		if err == nil || err.Error() != c.want || r == nil {
			t.Errorf("%s: got %v and error %v, want %q", c.name, r, err, c.want)
		}
	}
	unanswered := newCapture()
	unanswered.packet(captured, udp(clientAddr, serverAddr, request(1, "a")), 0)
	r, err := Run(t.Context(), options(Pcap{Reader: unanswered, Port: 53}))
	if err == nil || err.Error() != "no query with a response was captured" || r.Unanswered != 1 {
		t.Errorf("without responses: got %+v and error %v", r, err)
	}
	malformed := newCapture()
	malformed.packet(captured, udp(clientAddr, serverAddr, request(1, "a.ns.svc.cluster.local")), 0)
	reply := append(request(1, "a.ns.svc.cluster.local"), 1, 2)
	reply[2], reply[7] = reply[2]|0x80, 1 // a response with a record that is cut
	malformed.packet(captured.Add(time.Millisecond), udp(serverAddr, clientAddr, reply), 0)
	r, err = Run(t.Context(), options(Pcap{Reader: malformed, Port: 53}))
	if err == nil || !strings.HasPrefix(err.Error(), "no response could be compared") || r.Answered != 1 || r.Compared != 0 {
		t.Errorf("malformed responses: got %+v and error %v, want an error", r, err)
	}
}

func TestRunEnd(t *testing.T) {
	texts := make([]string, 100)
	for i := range texts {
		texts[i] = fmt.Sprintf("a%d.ns.svc.cluster.local", i)
	}
	synctest.Test(t, func(t *testing.T) {
		o := options(exchanges{texts: texts, gap: time.Second})
		o.Limit = 10
		if r, err := Run(t.Context(), o); err != nil || r.Answered != 10 || r.Compared != 10 {
			t.Errorf("--limit: got %+v and error %v, want 10 queries", r, err)
		}
		o.Limit, o.Duration = 0, 20*time.Second
		if r, err := Run(t.Context(), o); err != nil || r.Answered != 20 || r.Captured != 19*time.Second+time.Millisecond {
			t.Errorf("--duration: got %+v and error %v, want 20 queries", r, err)
		}
		// A stream that stops ends after the duration.
		o.Source, o.Endless, o.Live, o.Duration = exchanges{texts: texts, block: true}, true, true, time.Minute
		start := time.Now()
		if r, err := Run(t.Context(), o); err != nil || r.Compared != 100 || time.Since(start) != time.Minute {
			t.Errorf("live: got %+v after %v and error %v, want 100 queries after a minute", r, time.Since(start), err)
		}
		// The end of the context is an error for a file only.
		for _, live := range []bool{true, false} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			o.Endless, o.Live, o.Duration, o.Asker = live, live, 0, asker{wait: time.Hour}
			r, err := Run(ctx, o)
			cancel()
			if live != (err == nil) || r.Compared != 0 || r.Skipped[SkippedInterrupted] != 100 {
				t.Errorf("interrupted, live %t: got %+v and error %v", live, r, err)
			}
		}
	})
}

// An interrupt after the end of the source bounds the time for the queries that wait. A run that is complete by
// then was not interrupted.
func TestRunInterruptedAfterEndOfSource(t *testing.T) {
	texts := make([]string, 100)
	for i := range texts {
		texts[i] = fmt.Sprintf("a%d.ns.svc.cluster.local", i)
	}
	for _, c := range []struct {
		wait     time.Duration // of each of two rounds
		compared int
		err      error
	}{{3 * time.Second, 100, nil}, {4 * time.Second, 64, errInterrupted}, {time.Hour, 0, errInterrupted}} {
		t.Run(c.wait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				o := options(exchanges{texts: texts})
				o.Asker = asker{wait: c.wait}
				r, err := Run(ctx, o)
				if err != c.err || r.Compared != c.compared || r.Compared+r.Skipped[SkippedInterrupted] != 100 {
					t.Errorf("got %+v and error %v, want %d of 100 compared and error %v", r, err, c.compared, c.err)
				}
			})
		})
	}
}

// After an interrupt, each captured pair counts as compared or as skipped.
func TestRunInterruptedCountsEachPair(t *testing.T) {
	texts := make([]string, 3*queued)
	for i := range texts {
		texts[i] = fmt.Sprintf("a%d.ns.svc.cluster.local", i)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o := options(exchanges{texts: texts})
		o.Asker = asker{wait: 4 * time.Second}
		r, err := Run(ctx, o)
		if err == nil || r.Compared == 0 || r.Compared+r.Skipped[SkippedInterrupted] != len(texts) {
			t.Errorf("got %+v and error %v, want some of %d pairs compared and the others skipped", r, err, len(texts))
		}
	})
}

// At the pace of the capture each query is asked when its response was captured, and the report
// says by how much one was late. An interrupt does not wait.
func TestRunCapturedPace(t *testing.T) {
	texts := make([]string, 101)
	for i := range texts {
		texts[i] = fmt.Sprintf("a%d.ns.svc.cluster.local", i)
	}
	synctest.Test(t, func(t *testing.T) {
		o := options(exchanges{texts: texts, gap: 3 * time.Second})
		o.Captured = true
		start := time.Now()
		if r, err := Run(t.Context(), o); err != nil || r.Compared != len(texts) || r.Time != 300*time.Second || r.Late != 0 {
			t.Errorf("got %+v after %v and error %v, want 101 queries in 300s", r, time.Since(start), err)
		}
		o.Rate = 1
		o.Source = exchanges{texts: texts, gap: 500 * time.Millisecond}
		if r, err := Run(t.Context(), o); err != nil || r.Compared != len(texts) || r.Time < 99*time.Second || r.Late < 45*time.Second || r.Late > 50*time.Second {
			t.Errorf("over the rate: got %+v and error %v, want 101 queries, the last one 50s late", r, err)
		}
		o.Rate = 1e6
		o.Source = exchanges{texts: texts, gap: time.Hour}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Minute)
		defer cancel()
		if r, err := Run(ctx, o); err == nil || r.Compared != 2 || r.Skipped[SkippedInterrupted] != len(texts)-2 || r.Time != 90*time.Minute {
			t.Errorf("interrupted: got %+v and error %v, want two queries after 90m", r, err)
		}
	})
}

// Queries that cannot be asked in time are not kept from a stream, and delay no sender.
func TestRunOverload(t *testing.T) {
	texts := make([]string, 3*queued)
	for i := range texts {
		texts[i] = fmt.Sprintf("a%d.ns.svc.cluster.local", i)
	}
	synctest.Test(t, func(t *testing.T) {
		o := options(exchanges{texts: texts})
		o.Live, o.Rate = true, 1000
		start := time.Now()
		r, err := Run(t.Context(), o)
		if err != nil || r.Skipped[SkippedOverload] == 0 || r.Skipped[SkippedOverload]+r.Compared != len(texts) {
			t.Errorf("got %+v and error %v, want queries over the rate", r, err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 6*time.Second {
			t.Errorf("%d queries took %v, want 1000 a second", r.Compared, took)
		}
	})
}

// Each TTL is a cause of its own: a stranger can make many.
func TestRunGroups(t *testing.T) {
	r := &run{groups: map[groupKey]*Group{}, types: map[groupKey]map[string]bool{}}
	r.report.RCodes, r.report.SeamarkRCodes, r.report.Directives = map[string]int{}, map[string]int{}, map[string]int{}
	for i := range 3 * maxGroups {
		d := diff.Difference{Cause: fmt.Sprintf("TTL %d instead of 30", i), Subject: "Service"}
		r.add(&pair{}, mdns.Question{Qtype: uint16(i)}, Answer{}, d)
	}
	r.finish()
	if n := len(r.report.Groups); n > maxGroups+1 || r.report.Different != 3*maxGroups {
		t.Errorf("got %d groups of %d differences, want at most %d groups", n, r.report.Different, maxGroups+1)
	}
}
