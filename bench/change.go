//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"
)

// A changer writes EndpointSlices of the moving Services and records when each
// write was acknowledged. The writer also runs a bare watch, which reports the
// versions that it has seen.
type changer struct {
	command *command
	pop     population
	written int
	watch   net.Conn // queries the bare watch for the last version of a slice
	again   int      // number of times that the API server ended that watch
	repeats int      // number of answers with a change that are awaited after the first one

	acked map[int]time.Duration // by line number
}

func (b *bench) newChanger(ctx context.Context) (*changer, error) {
	cmd, err := newCommand(b.api.program, "change", b.api.kubeconfig)
	if err != nil {
		return nil, err
	}
	c := &changer{command: cmd, pop: b.pop, acked: map[int]time.Duration{}}
	for { // the watch starts with the existing objects
		text, err := cmd.line(ctx)
		if err != nil {
			cmd.stop()
			return nil, fmt.Errorf("starting the changes: %w", err)
		}
		if at, ok := strings.CutPrefix(text, "watching "); ok {
			if c.watch, err = net.Dial("udp4", at); err != nil {
				cmd.stop()
				return nil, fmt.Errorf("querying the bare watch: %w", err)
			}
			return c, nil
		}
	}
}

func (c *changer) close() {
	c.watch.Close()
	c.command.stop()
}

// newAddress returns the address of the n-th change, from a range of its own.
func newAddress(n int) netip.Addr { return address(10, 250, 0, n%(1<<16)+1) }

// moving returns the Service of the n-th change.
func (c *changer) moving(n int) service {
	return c.pop.service(c.pop.firstMoving() + n%c.pop.moving)
}

// write sends the n-th change: the first endpoint of a moving Service gets an
// address unique to the change. It returns the query whose answer contains it.
func (c *changer) write(n int) (*lookup, error) {
	s := c.moving(n)
	s.endpoints[0] = newAddress(n)
	return s.lookup(false), c.put(s)
}

// put writes the EndpointSlice of s.
func (c *changer) put(s service) error {
	var endpoints []any
	for _, ip := range s.endpoints {
		endpoints = append(endpoints, map[string]any{
			"addresses": []string{ip.String()}, "conditions": map[string]bool{"ready": true}})
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": map[string]any{"name": s.slice(), "namespace": s.namespace, "labels": map[string]string{
			"kubernetes.io/service-name": s.name, "endpointslice.kubernetes.io/managed-by": "bench"}},
		"ports":     []any{map[string]any{"name": "http", "protocol": "TCP", "port": 8080}},
		"endpoints": endpoints,
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.command.in, "/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices/%s %s\n",
		s.namespace, s.slice(), body)
	c.written++
	return err
}

// acknowledged reads the command's output until it has the time of a line.
func (c *changer) acknowledged(ctx context.Context, line int) (time.Duration, error) {
	for {
		if at, ok := c.acked[line]; ok {
			return at, nil
		}
		text, err := c.command.line(ctx)
		if err == nil {
			err = c.parse(text)
		}
		if err != nil {
			return 0, fmt.Errorf("waiting for a change to be acknowledged: %w", err)
		}
	}
}

// drain reads the command's output so far.
func (c *changer) drain() error {
	for len(c.command.lines) > 0 {
		if err := c.parse(<-c.command.lines); err != nil {
			return err
		}
	}
	return nil
}

func (c *changer) parse(text string) error {
	var line int
	var version string
	var at int64
	if strings.HasPrefix(text, "again ") {
		c.again++
		return nil
	}
	if _, err := fmt.Sscanf(text, "acked %d %s %d", &line, &version, &at); err != nil {
		return fmt.Errorf("unexpected output of api change: %q", text)
	}
	c.acked[line] = time.Duration(at)
	return nil
}

// delays are the times in milliseconds from the acknowledgements of changes to their answers, by our
// server and by the bare watch. unsure is the time since the previous query: our answer may have been
// available for that long. queries counts those of our server.
type delays struct {
	answered, watched, unsure []float64
	queries                   int
}

// change makes the n-th change and queries until the server and the bare watch
// answer it.
func (c *changer) change(ctx context.Context, s *server, n int, within time.Duration, d *delays) error {
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()

	slice := c.moving(n).slice()
	before, err := c.seen(slice)
	if err != nil {
		return err
	}

	line := c.written
	q, err := c.write(n)
	if err != nil {
		return err
	}

	p := poll{conn: conn, q: q, c: c, slice: slice, version: before, room: make([]byte, 4096)}
	if err := p.run(ctx, within); err != nil {
		return errors.Join(err, c.drain()) // it may report that its watch failed
	}

	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ack, err := c.acknowledged(ctx, line)
	if err != nil {
		return err
	}

	d.answered = append(d.answered, (p.answered-ack).Seconds()*1e3)
	d.watched = append(d.watched, (p.watched-ack).Seconds()*1e3)
	d.unsure = append(d.unsure, p.unsure.Seconds()*1e3)
	d.queries += p.queries
	return nil
}

// seen queries the bare watch for the last version of a slice.
func (c *changer) seen(slice string) (string, error) {
	room := make([]byte, 64)
	for range 100 {
		if err := c.watch.SetDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return "", err
		}
		if _, err := c.watch.Write([]byte(slice)); err != nil {
			return "", err
		}
		if n, err := c.watch.Read(room); err == nil {
			return string(room[:n]), nil
		}
	}
	return "", errors.New("no reply from the bare watch")
}

// A poll queries our server and the bare watch alternately, with a pause of 100
// µs, until both have answered a change. Both compete for the same processors, so
// the difference is our server's work.
type poll struct {
	conn           net.Conn
	q              *lookup
	c              *changer
	slice, version string // the version before the change
	room           []byte

	answered, watched, unsure time.Duration
	queries                   int
}

func (p *poll) run(ctx context.Context, within time.Duration) error {
	why, answers := "no answer", 0
	before := clock()
	for end := before + within; clock() < end; time.Sleep(100 * time.Microsecond) {
		if err := ctx.Err(); err != nil {
			return err
		}

		if p.answered == 0 {
			asked := clock()
			p.queries++
			if n, err := exchange(p.conn, p.q, p.room, 100*time.Millisecond); err == nil {
				why = p.q.wrong(p.room[:n], true)
				switch {
				case why != "" && answers > 0:
					return fmt.Errorf("%s, after an answer with the change", why)
				case why != "":
				case answers < p.c.repeats:
					answers++
				default:
					p.answered = clock()
					p.unsure = p.answered - before
				}
				before = asked
			}
		}

		if p.watched == 0 {
			version, err := p.c.seen(p.slice)
			if err != nil {
				return err
			}
			if version != p.version {
				p.watched = clock()
			}
		}

		if p.answered > 0 && p.watched > 0 {
			return nil
		}
	}

	if why == "" {
		why = "the bare watch has not seen it"
	}
	return fmt.Errorf("a change was not answered in %v: %s", within, why)
}

// change measures the age of answers at 100 changes a second.
func (b *bench) change(ctx context.Context) error {
	defer b.stopServers()
	s, err := b.start(ctx, b.stock(b.source(), 1), b.pop.last())
	if err != nil {
		return err
	}

	c, err := b.newChanger(ctx)
	if err != nil {
		return err
	}
	defer c.close()

	const warm, rate = 50, 100
	if err := c.delays(ctx, s, warm, rate, new(delays)); err != nil {
		return err
	}

	var medians, tails, watch, rates, unsure []float64
	for range b.rounds {
		start, before := clock(), c.written
		var d delays
		if err := c.delays(ctx, s, int(rate*b.time.Seconds()*3), rate, &d); err != nil {
			return err
		}

		rates = append(rates, float64(c.written-before)/(clock()-start).Seconds())
		medians = append(medians, quantile(d.answered, 0.5))
		tails = append(tails, quantile(d.answered, 0.99))
		watch = append(watch, quantile(d.watched, 0.99))
		unsure = append(unsure, quantile(d.unsure, 0.99))
	}

	b.number("change/rate", "changes per second", "", rates...)
	b.number("change/median", "acknowledged to answered, median", "ms", medians...)
	b.number("change/tail", "acknowledged to answered, p99", "ms", tails...)
	b.number("change/watch", "acknowledged to answered by a bare watch, p99", "ms", watch...)
	b.number("change/unsure", "time since the previous query, which may be part of it, p99", "ms", unsure...)
	b.number("change/p99", "p99 above the bare watch's", "ms", differences(tails, watch)...)
	return b.burst(ctx, s, c, rate)
}

// inBurst is the number of EndpointSlices that change at once.
const inBurst = 5000

// burst measures the same while inBurst other EndpointSlices, or all of a smaller
// cluster, change as fast as they can be written. Their endpoints are reordered,
// so no answer changes.
func (b *bench) burst(ctx context.Context, s *server, c *changer, rate int) error {
	var answered, watched, rates []float64
	for range b.rounds {
		others, err := b.newChanger(ctx)
		if err != nil {
			return err
		}

		fed := make(chan error, 1)
		go func() {
			for i := range inBurst {
				s := b.pop.service(i % b.pop.plain)
				rand.Shuffle(len(s.endpoints), func(i, j int) {
					s.endpoints[i], s.endpoints[j] = s.endpoints[j], s.endpoints[i]
				})
				if err := others.put(s); err != nil {
					fed <- err
					return
				}
			}
			fed <- nil
		}()

		start := clock()
		var d delays
		for len(others.acked) < inBurst && err == nil {
			if err = c.delays(ctx, s, 1, rate, &d); err == nil {
				err = others.drain()
			}
		}

		took := (clock() - start).Seconds()
		others.close()
		if feeding := <-fed; err == nil {
			err = feeding
		}
		if err != nil {
			return err
		}

		answered = append(answered, quantile(d.answered, 0.99))
		watched = append(watched, quantile(d.watched, 0.99))
		rates = append(rates, inBurst/took)
	}

	b.number("burst/rate", "EndpointSlices changed per second in a burst", "", rates...)
	b.number("burst/tail", "acknowledged to answered during a burst, p99", "ms", answered...)
	b.number("burst/watch", "acknowledged to answered by a bare watch during a burst, p99", "ms", watched...)
	b.number("burst/again", "times that the API server ended the bare watch in all bursts", "", float64(c.again))
	b.number("burst/p99", "during a burst, p99 above the bare watch's", "ms", differences(answered, watched)...)
	return nil
}

// delays makes count changes, one after the other.
func (c *changer) delays(ctx context.Context, s *server, count, rate int, d *delays) error {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for range count {
		<-tick.C
		if err := c.change(ctx, s, c.written, 10*time.Second, d); err != nil {
			return err
		}
	}
	return nil
}

// latency compares our server with the bare loop at half of our server's maximum
// rate, while the cluster changes 200 times a second.
func (b *bench) latency(ctx context.Context) error {
	defer b.stopServers()
	peers, err := b.peers(ctx, 1, false, "A")
	if err != nil {
		return err
	}

	c, err := b.newChanger(ctx)
	if err != nil {
		return err
	}
	defer c.close()

	changes, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.keepChanging(changes, 200) }()
	before := len(b.report.Results)
	err = b.compareAtHalf(ctx, peers)
	stop()
	if failed := <-ended; err == nil {
		err = failed
	}

	for _, r := range b.report.Results[before:] {
		b.series["latency/"+r.Label] = r.values(func(s sample) float64 { return s.P99 })
	}
	return err
}

// compareAtHalf compares the peers at half of our server's maximum rate.
func (b *bench) compareAtHalf(ctx context.Context, peers []peer) error {
	full := b.load(peers[0].server, comparison{workload: "A"})
	full.rate = 0
	t, err := full.run(ctx)
	if err != nil {
		return err
	}
	return b.compareAll(ctx, peers, comparison{name: "latency", title: "ClusterIP, A, half load, 200 changes a second",
		workload: "A", rate: float64(t.answered) / t.elapsed.Seconds() / 2})
}

// keepChanging writes changes until ctx ends.
func (c *changer) keepChanging(ctx context.Context, rate int) error {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := c.write(n); err != nil {
			return err
		}
		if err := c.drain(); err != nil {
			return err
		}
	}
}
