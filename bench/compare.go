//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// A contender is a server with a load in a comparison.
type contender struct {
	label  string
	server *server
	load   load
}

// A sample is one run of one contender.
type sample struct {
	CPU       float64 `json:"cpu_us"`     // user and system time of the server for each answer, in µs
	User      float64 `json:"user_us"`    // the part of CPU outside the kernel
	Machine   float64 `json:"machine_us"` // busy time of all CPUs for each answer, the generator included, in µs
	Busy      float64 `json:"busy"`       // share of all CPUs of the machine that was busy, the generator included
	Rate      float64 `json:"answers_s"`  // answers per second
	Bytes     float64 `json:"bytes"`      // size of an answer
	P50       float64 `json:"p50_ms"`     // 0 over TCP; a lost query counts as a second
	P99       float64 `json:"p99_ms"`     // as P50
	Trip50    float64 `json:"trip50_ms"`  // as P50, from the time when the query was sent, late or not
	Trip99    float64 `json:"trip99_ms"`
	Answered  int     `json:"answered"`   // correct answers
	Lost      int     `json:"lost"`       // queries without an answer within a second
	Wrong     int     `json:"wrong"`      // wrong answers
	WrongText string  `json:"wrong_text"` // the difference in one of the wrong answers
}

// A result has the samples of a contender in a comparison.
type result struct {
	Scenario string   `json:"scenario"`
	Title    string   `json:"title"`
	Label    string   `json:"label"`
	Load     string   `json:"load"`
	Samples  []sample `json:"samples"`
	CPU      spread   `json:"cpu_us"`
}

// values returns one number of each sample.
func (r *result) values(field func(sample) float64) []float64 {
	var out []float64
	for _, s := range r.Samples {
		out = append(out, field(s))
	}
	return out
}

func cpuOf(s sample) float64 { return s.CPU }

// right returns the reason why the contender cannot be compared, "" if it can:
// the speed of wrong answers does not count.
func (r *result) right() string {
	for _, s := range r.Samples {
		switch {
		case s.Wrong > 0:
			return fmt.Sprintf("%d wrong answers: %s", s.Wrong, s.WrongText)
		case s.Answered == 0:
			return "no answers"
		case s.Lost*100 > s.Answered:
			return fmt.Sprintf("%d queries of %d lost", s.Lost, s.Answered+s.Lost)
		}
	}
	return ""
}

// A comparison is a row of a scenario: the load that each contender gets in turn. Fields without a
// value have the usual one.
type comparison struct {
	name, title     string
	workload        string
	transport       string
	sockets, window int
	rate            float64 // also 0 if there is a transport
	longer          int     // how many times as long a run is
	expires         bool    // what the load before the first run has made is gone at the next one
}

// load returns the load of a comparison for a server.
func (b *bench) load(s *server, c comparison) load {
	l := load{to: s.addr(), lookups: b.work[c.workload].lookups, transport: overUDP, sockets: cmp.Or(c.sockets, 16),
		window: cmp.Or(c.window, 100), rate: c.rate, time: b.time * time.Duration(max(1, c.longer)), cpu: b.cpu(1),
		namespaces: s.pods, expires: c.expires}
	switch {
	case c.transport != "":
		l.transport = c.transport
	case b.dnsperf:
		l.transport = dnsperf
	}
	if c.transport == "" {
		l.rate = cmp.Or(c.rate, b.rate)
	}
	if at, ok := s.at[c.transport]; ok {
		l.to = at
	}
	return l
}

// listens reports whether the server has an address of its own for the transport of a comparison, if
// that needs one.
func (s *server) listens(c comparison) bool {
	_, ok := s.at[c.transport]
	return ok || c.transport != overTLS && c.transport != overHTTPS && c.transport != overQUIC
}

// compareAll makes the comparisons with those of the peers that can serve them.
func (b *bench) compareAll(ctx context.Context, peers []peer, rows ...comparison) error {
	for _, c := range rows {
		var contenders []contender
		for _, p := range peers {
			if (p.only == nil || slices.Contains(p.only, c.workload)) && p.server.listens(c) {
				contenders = append(contenders, contender{p.label, p.server, b.load(p.server, c)})
			}
		}
		if err := b.compare(ctx, c.name, c.title, contenders); err != nil {
			return err
		}
	}
	return nil
}

func (l load) String() string {
	switch {
	case l.rate > 0:
		return fmt.Sprintf("%s, %d sockets, open loop, %.0f q/s", l.transport, l.sockets, l.rate)
	case l.transport == perTCP:
		return fmt.Sprintf("%s, %d at once", l.transport, l.sockets)
	}
	return fmt.Sprintf("%s, %d sockets, %d outstanding", l.transport, l.sockets, l.window)
}

// compare runs the contenders in turns and keeps their results.
func (b *bench) compare(ctx context.Context, scenario, title string, contenders []contender) error {
	results := make([]*result, len(contenders))
	var able []int
	for i, c := range contenders {
		results[i] = &result{Scenario: scenario, Title: title, Label: c.label, Load: c.load.String()}
		t, err := c.load.before().run(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			b.miss("%s, %s: %v", title, c.label, err)
		case t.wrong > 0:
			b.miss("%s, %s: %d of %d answers are wrong: %s", title, c.label, t.wrong, t.answered, t.example)
		default:
			able = append(able, i)
		}
	}

	for _, order := range turns(len(able), b.rounds) {
		for _, k := range order {
			if c := contenders[able[k]]; c.load.expires {
				if _, err := c.load.before().run(ctx); err != nil {
					return fmt.Errorf("%s, %s: %w", title, c.label, err)
				}
			}
			s, err := measure(ctx, contenders[able[k]])
			if err != nil {
				return fmt.Errorf("%s, %s: %w", title, contenders[able[k]].label, err)
			}
			results[able[k]].Samples = append(results[able[k]].Samples, s)
		}
	}

	for _, i := range able {
		b.keep(results[i])
	}
	return nil
}

// before returns the load before a measurement.
func (l load) before() load {
	l.time = min(l.time/2+50*time.Millisecond, 500*time.Millisecond)
	if l.rate > 0 {
		l.rate = min(l.rate, 20000)
	}
	return l
}

// keep adds a result to the report, and its CPU time, if the answers were right,
// to the series by which goals are judged.
func (b *bench) keep(r *result) {
	r.CPU = spreadOf(r.values(cpuOf))
	b.report.Results = append(b.report.Results, r)
	if why := r.right(); why != "" {
		b.miss("%s, %s: not compared: %s", r.Title, r.Label, why)
	} else {
		b.series[r.Scenario+"/"+r.Label] = r.values(cpuOf)
		b.series[r.Scenario+" machine/"+r.Label] = r.values(func(s sample) float64 { return s.Machine })
		b.series[r.Scenario+" p50/"+r.Label] = r.values(func(s sample) float64 { return s.Trip50 })
		b.series[r.Scenario+" p99/"+r.Label] = r.values(func(s sample) float64 { return s.Trip99 })
	}
	fmt.Fprintf(b.out, "%-12s %-22s %7.2f µs/answer (%.2f to %.2f)  %8.0f answers/s  %5.0f bytes\n", r.Scenario,
		r.Label,
		r.CPU.Median, r.CPU.Min, r.CPU.Max,
		spreadOf(r.values(func(s sample) float64 { return s.Rate })).Median,
		spreadOf(r.values(func(s sample) float64 { return s.Bytes })).Median)
}

// A usage is the time that a process and the machine have used.
type usage struct{ cpu, user, busy time.Duration }

// usageOf returns the usage of a process and its descendants, with that of their BPF programs,
// which run in other processes.
func usageOf(pid int) (u usage, err error) {
	for _, p := range processes(pid) {
		cpu, err := cpuTime(p)
		if err != nil {
			return u, err
		}
		user, err := userTime(p)
		if err != nil {
			return u, err
		}
		u.cpu += cpu + programTime(p)
		u.user += user
	}
	u.busy, err = busyTime()
	return u, err
}

// measure runs one contender once.
func measure(ctx context.Context, c contender) (sample, error) {
	before, err := usageOf(c.server.pid())
	if err != nil {
		return sample{}, err
	}
	start := clock()
	t, err := c.load.run(ctx)
	if err != nil {
		return sample{}, err
	}
	elapsed := clock() - start
	after, err := usageOf(c.server.pid())
	if err != nil {
		return sample{}, err
	}
	return newSample(t, before, after, elapsed), nil
}

func newSample(t *tally, before, after usage, elapsed time.Duration) sample {
	slices.Sort(t.latencies)
	n := max(1, float64(t.answered))
	s := sample{
		CPU:      float64(after.cpu-before.cpu) / float64(time.Microsecond) / n,
		User:     float64(after.user-before.user) / float64(time.Microsecond) / n,
		Machine:  float64(after.busy-before.busy) / float64(time.Microsecond) / n,
		Busy:     float64(after.busy-before.busy) / float64(elapsed) / float64(cpus()),
		Rate:     float64(t.answered) / t.elapsed.Seconds(),
		Bytes:    float64(t.bytes) / n,
		Answered: t.answered - t.wrong, Lost: t.lost, Wrong: t.wrong, WrongText: t.example,
	}
	if len(t.latencies) > 0 {
		slices.Sort(t.trips)
		s.Trip50, s.Trip99 = percentile(t.trips, 0.50)*1e3, percentile(t.trips, 0.99)*1e3
		s.P50 = percentile(t.latencies, 0.50) * 1e3
		s.P99 = percentile(t.latencies, 0.99) * 1e3
	}
	return s
}
