// Package shadow replays captured queries of another DNS server, and compares its responses with
// the answers of Seamark: the command shadow calls Run.
//
// A Source passes the messages of a packet capture (capture.go, frame.go, stream.go) or of
// dnstap (tap.go). A matcher makes pairs of queries and responses (match.go). An Asker, a server in
// the process or one that runs elsewhere, answers each query (ask.go); package diff compares the answers.
// No client is answered. Captures are input of strangers: whatever they contain, memory is
// bounded, and what cannot be used is counted.
package shadow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/operate/diff"
	"github.com/seamark/seamark/operate/query"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/order"
)

const (
	workers = 64 // queries at a time
	// queued is the number of queries that wait for a worker.
	queued = 4096
	// drainTime is the time for the queries that wait when a run is interrupted.
	drainTime = 5 * time.Second
	// maxGroups bounds the groups of a report: TTLs are part of causes.
	maxGroups = 500
	// maxSilent is the number of queries in a row without an answer that ends a run.
	maxSilent = 200
	// progressInterval is the time between two reports of the progress.
	progressInterval = time.Second
)

// Options are the inputs of Run.
type Options struct {
	Source Source
	Asker  Asker
	// Endless is set if the source waits for messages: then the end of ctx is the end of the
	// source, and Duration is also a time on the clock.
	Endless bool
	// Live is set if the source must not wait: then queries that cannot be asked in time
	// are counted and not compared.
	Live bool
	// ClusterDomain is the zone of the cluster, such as cluster.local.
	ClusterDomain string
	// Unserved is set if names that no directive answers are not compared.
	Unserved bool
	// Rate is the largest number of queries a second.
	Rate int
	// Captured is set if the queries are asked at the pace of the capture.
	Captured bool
	// Limit is the number of queries with a response after which the run ends; zero is no
	// limit. So is Duration: a time of the capture.
	Limit    int
	Duration time.Duration
	// Progress receives the number of queries with a response so far, and of those that were
	// compared, once a second from one goroutine; it may be nil.
	Progress func(read, compared int)
}

// A Report is the result of Run.
type Report struct {
	Counts
	Captured time.Duration `json:"captured_ns"` // from the first message to the last
	Time     time.Duration `json:"time_ns"`     // that the comparison took
	// Late is the longest time by which a query was asked behind the pace of the capture.
	Late       time.Duration `json:"late_ns,omitempty"`
	Compared   int           `json:"compared"`
	Same       int           `json:"same"`
	Documented int           `json:"documented"` // intended differences
	Different  int           `json:"different"`  // other differences
	Groups     []Group       `json:"groups"`     // the differences, undocumented ones first

	RCodes        map[string]int `json:"rcodes"`         // of the captured responses
	SeamarkRCodes map[string]int `json:"seamark_rcodes"` // of the answers for the same queries
	SearchPath    int            `json:"search_path"`    // captured NXDOMAIN responses for names with a search domain
	// Directives has the number of queries that each directive answered, and Upstream the
	// number of queries to upstreams. They are not known of a running server.
	Directives     map[string]int `json:"directives,omitempty"`
	Upstream       int            `json:"upstream_queries"`
	WithUpstream   int            `json:"with_upstream"`   // compared queries that needed upstreams
	Latency        Quantiles      `json:"latency"`         // of the captured responses
	SeamarkLatency Quantiles      `json:"seamark_latency"` // for the same queries
	SeamarkBytes   uint64         `json:"seamark_bytes"`   // of the answers
	ComparedBytes  uint64         `json:"compared_bytes"`  // of the captured responses to the same queries
}

// A Group is a set of differences with the same cause.
type Group struct {
	diff.Group
	Client string    `json:"client"` // of the example
	Time   time.Time `json:"time"`   // of the example
}

// Run compares the responses of a source with the answers of an Asker. It returns a report
// of what was compared, and an error if the source cannot be read, or if the Asker does not
// answer.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &run{
		Options: o, comparer: diff.NewComparer(o.ClusterDomain),
		groups: map[groupKey]*Group{}, types: map[groupKey]map[string]bool{}, searches: searches{},
	}
	r.report.Skipped = map[Skipped]int{}
	r.report.RCodes, r.report.SeamarkRCodes, r.report.Directives = map[string]int{}, map[string]int{}, map[string]int{}
	start := time.Now()
	err := r.all(ctx)
	r.finish()
	r.report.Time = time.Since(start)
	switch {
	case err != nil:
	case r.report.Queries == 0:
		err = errors.New("no query was captured")
	case r.report.Answered == 0:
		err = errors.New("no query with a response was captured")
	case r.report.Compared == 0 && r.report.Skipped[SkippedInterrupted] == 0:
		err = errors.New("no response could be compared: the report counts them by reason")
	}
	return &r.report, err
}

// A run is a comparison.
type run struct {
	Options
	comparer *diff.Comparer
	searches searches // of the reader
	first    time.Time
	last     time.Time
	late     time.Duration // of dispatch

	read, done, silent atomic.Int64

	mu            sync.Mutex // of what the workers change
	report        Report
	skipped       map[Skipped]int
	captured, own latency
	groups        map[groupKey]*Group
	types         map[groupKey]map[string]bool
}

type groupKey struct{ cause, subject, reason string }

// all reads, asks and compares.
func (r *run) all(ctx context.Context) error {
	defer r.reportProgress()()
	r.skipped = map[Skipped]int{}

	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	if r.Endless && r.Duration > 0 {
		reading, stopReading = context.WithTimeout(reading, r.Duration)
		defer stopReading()
	}

	// Queries that were read are answered although ctx has ended, for a limited time.
	asking, stopAsking := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopAsking(nil)
	defer context.AfterFunc(asking, stopReading)()
	defer context.AfterFunc(ctx, func() {
		sleep(asking, asking, drainTime)
		stopAsking(errInterrupted)
	})()

	pairs, queue := make(chan *pair, queued), make(chan *pair)
	var tasks sync.WaitGroup
	tasks.Go(func() { r.dispatch(ctx, asking, pairs, queue) })
	for n := range workers {
		tasks.Go(func() {
			for p := range queue {
				if err := r.compare(asking, n, p); err != nil {
					stopAsking(err)
				}
			}
		})
	}

	err := r.readAll(reading, pairs)
	close(pairs)
	cut := ctx.Err() != nil
	tasks.Wait()
	for reason, n := range r.skipped {
		r.report.Skipped[reason] += n
	}

	switch cause := context.Cause(asking); {
	case cause != nil && !errors.Is(cause, errInterrupted):
		return cause
	case r.Endless && reading.Err() != nil:
		return nil // the end of a stream
	case err != nil:
		return err
	case cut || r.report.Skipped[SkippedInterrupted] > 0:
		return errInterrupted
	}
	return nil
}

var errInterrupted = errors.New("stopped before the end of the capture")

// readAll reads the source, and passes on the pairs.
func (r *run) readAll(ctx context.Context, pairs chan<- *pair) error {
	m := newMatcher(&r.report.Counts)
	return r.Source.Messages(ctx, &r.report.Counts, func(message *Message) bool {
		if r.first.IsZero() {
			r.first = message.Time
		}
		if r.Duration > 0 && message.Time.Sub(r.first) >= r.Duration {
			return false
		}
		if message.Time.After(r.last) {
			r.last = message.Time
		}

		p := m.add(message)
		if p == nil {
			return true
		}
		r.count(p)

		// Live messages do not wait, so they are lost if there are too many.
		if r.Live {
			select {
			case pairs <- p:
			default:
				r.report.Skipped[SkippedOverload]++
			}
		} else {
			select {
			case pairs <- p:
			case <-ctx.Done():
				r.report.Skipped[SkippedInterrupted]++
			}
		}
		return r.Limit == 0 || r.report.Answered < r.Limit
	})
}

// count counts the properties of a captured pair.
func (r *run) count(p *pair) {
	r.read.Add(1)
	r.captured.add(p.latency)
	const nxdomain = 3
	if p.response[3]&15 == nxdomain && r.searches.made(r.comparer, p) {
		r.report.SearchPath++
	}
}

// dispatch passes pairs to the workers at the rate, until asking ends. With Captured it also
// waits for the time at which a response was captured, until ctx ends.
func (r *run) dispatch(ctx, asking context.Context, pairs <-chan *pair, queue chan<- *pair) {
	defer close(queue)
	pace := query.NewPace(r.Rate)
	var begun, first time.Time
	for p := range pairs {
		if r.Captured {
			now, captured := time.Now(), p.time.Add(p.latency)
			if first.IsZero() {
				begun, first = now, captured
			}
			wait := captured.Sub(first) - now.Sub(begun)
			r.late = max(r.late, -wait)
			if !sleep(ctx, asking, wait) {
				r.skip(SkippedInterrupted)
				continue
			}
		}
		if pace.Wait(asking) != nil {
			r.skip(SkippedInterrupted)
			continue
		}
		queue <- p
	}
}

// sleep blocks for d. It returns false if one of the contexts ends meanwhile.
func sleep(ctx, asking context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
	case <-asking.Done():
	}
	return false
}

func (r *run) skip(reason Skipped) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped[reason]++
}

// compare asks the query of a pair, and compares the answers. It returns an error if the
// run has to end.
func (r *run) compare(ctx context.Context, n int, p *pair) error {
	defer r.done.Add(1)
	reason, err := r.comparePair(ctx, n, p)
	if reason != "" {
		r.skip(reason)
	}
	return err
}

// comparePair returns the reason if a pair cannot be compared.
func (r *run) comparePair(ctx context.Context, n int, p *pair) (skipped Skipped, err error) {
	var captured, asked mdns.Msg
	if err := captured.Unpack(p.response); err != nil && !captured.Truncated {
		return SkippedResponse, nil
	}
	rcode := query.RCode(&captured)
	r.mu.Lock()
	r.report.RCodes[rcode]++
	r.mu.Unlock()

	if err := asked.Unpack(p.query); err != nil || len(asked.Question) != 1 {
		return SkippedQuery, nil
	}
	q := asked.Question[0]
	switch {
	case asked.Opcode != mdns.OpcodeQuery:
		return SkippedOpcode, nil
	case q.Qtype == mdns.TypeAXFR || q.Qtype == mdns.TypeIXFR:
		return SkippedTransfer, nil
	}

	a, err := r.Asker.Ask(ctx, n, p.query, p.client, p.proto)
	switch {
	case ctx.Err() != nil:
		return SkippedInterrupted, nil
	case errors.Is(err, errNoAnswer):
		return SkippedQuery, nil
	case err != nil && r.silent.Add(1) >= maxSilent:
		return "", fmt.Errorf("no answer to %d queries in a row, the last one: %w", maxSilent, err)
	case err == nil:
		r.silent.Store(0)
	}
	if r.Unserved && a.Reply != nil && a.Directive == "" {
		return SkippedUnserved, nil
	}

	r.add(p, q, a, r.comparer.Compare(diff.Pair{Name: q.Name, Type: q.Qtype, Want: a.Reply, Got: &captured}))
	return "", nil
}

// add adds the result of a comparison to the report.
func (r *run) add(p *pair, q mdns.Question, a Answer, d diff.Difference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.report
	s.Compared++
	s.ComparedBytes += uint64(len(p.response))
	if a.Reply != nil {
		r.own.add(a.Elapsed)
		s.SeamarkRCodes[query.RCode(a.Reply)]++
		s.SeamarkBytes += uint64(a.Size)
	}
	if a.Directive != "" {
		s.Directives[a.Directive]++
	}
	s.Upstream += a.Upstream
	if a.Upstream > 0 {
		s.WithUpstream++
	}

	switch {
	case d.Cause == "":
		s.Same++
		return
	case d.Reason != "":
		s.Documented++
	default:
		s.Different++
	}

	// Of too many causes only the first have a group of their own.
	key := groupKey{d.Cause, d.Subject, d.Reason}
	if r.groups[key] == nil && len(r.groups) >= maxGroups {
		key = groupKey{"other causes", "all names", d.Reason}
	}
	g := r.groups[key]
	if g == nil {
		g = &Group{
			Group:  diff.Group{Cause: key.cause, Subject: key.subject, Reason: key.reason, Example: d.Example},
			Client: p.client.Addr().String(), Time: p.time,
		}
		r.groups[key], r.types[key] = g, map[string]bool{}
	}
	g.Count++
	if len(r.types[key]) < maxTypes {
		r.types[key][mdns.Type(q.Qtype).String()] = true
	}
}

// maxTypes bounds the types that a group lists.
const maxTypes = 20

// finish completes the report.
func (r *run) finish() {
	s := &r.report
	s.Captured, s.Late = max(0, r.last.Sub(r.first)), r.late
	s.Latency, s.SeamarkLatency = r.captured.quantiles(), r.own.quantiles()
	s.Groups = []Group{}
	for key, g := range r.groups {
		g.Type = strings.Join(slices.Sorted(maps.Keys(r.types[key])), ",")
		s.Groups = append(s.Groups, *g)
	}
	order.Slice(s.Groups, func(a, b Group) int { return diff.Order(&a.Group, &b.Group) })
}

// reportProgress calls Progress at intervals until the returned function is called.
func (r *run) reportProgress() (stop func()) {
	if r.Progress == nil {
		return func() {}
	}
	return follow.Go(func(ctx context.Context) {
		for range clock.Ticks(ctx, progressInterval) {
			r.Progress(int(r.read.Load()), int(r.done.Load()))
		}
	}).Stop
}
