package diff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/operate/query"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/sys/order"
)

const (
	workers = 128 // queries at a time
	// maxRepeated bounds the number of queries that are repeated, and with it the memory of
	// a comparison in which every answer differs.
	maxRepeated = 10_000
	// maxSilent is the number of queries in a row without a valid reply that ends the
	// comparison.
	maxSilent = 200
)

// A run is a comparison.
type run struct {
	Options
	want   *expected
	client *query.Client
	pace   *query.Pace

	done   atomic.Int64 // queries, without repeated ones
	silent atomic.Int64 // queries without a valid reply, in a row

	mu       sync.Mutex
	report   Report
	ttls     map[uint32]*lowTTL // by the expected TTL
	groups   map[groupKey]*Group
	types    map[groupKey]map[uint16]bool
	examples map[groupKey]question
	repeated []question // with a difference that is not documented
}

type groupKey struct{ cause, subject, reason string }

// A result is the comparison of the answers to a query.
type result struct {
	cause     string // "" if they are the same
	reason    string
	want, got answer
}

// compareAll compares the answers to all queries, and repeats the ones with a difference.
func (r *run) compareAll(ctx context.Context) (*Report, error) {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	total, last := 0, ""
	for q := range r.want.questions() {
		total++
		if q.name != last {
			r.report.Names++
			last = q.name
		}
	}

	stopProgress := r.reportProgress(total)
	r.compareEach(ctx, cancel, r.want.questions(), func(q question, found result) {
		r.report.Queries++
		switch {
		case found.cause == "":
			r.report.Same++
			r.addTTL(q, found)
		case found.reason == "" && len(r.repeated) < maxRepeated:
			r.repeated = append(r.repeated, q)
		default:
			if found.reason == "" {
				r.report.Unrepeated++
			}
			r.add(q, found)
		}
	})
	stopProgress()

	// The cluster may have changed between the answer of the server and ours.
	if len(r.repeated) > 0 && ctx.Err() == nil {
		clock.Sleep(ctx, r.RetryAfter)
		r.compareEach(ctx, cancel, slices.Values(r.repeated), func(q question, found result) {
			if found.cause == "" {
				r.report.Same++
				r.report.Changed++
			} else {
				r.add(q, found)
			}
		})
	}

	// A server that has ended meanwhile, as a pod does, has no answers that could differ.
	if r.silent.Load() > 0 && ctx.Err() == nil {
		if _, err := r.client.Probe(ctx, r.want.zones[0], r.Transport == "tcp"); err != nil {
			cancel(fmt.Errorf("the server does not answer any more: %w", err))
		}
	}

	r.finish()
	r.report.Server, r.report.Time = r.Address, time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return &r.report, fmt.Errorf("stopped after %d of %d queries: %w", r.report.Queries, total, err)
	}
	return &r.report, nil
}

// compareEach compares the answers to queries, and calls each with every result. r.mu is held
// during the call.
func (r *run) compareEach(
	ctx context.Context, cancel context.CancelCauseFunc, questions iter.Seq[question], each func(question, result),
) {
	queue := make(chan question, workers)
	var running sync.WaitGroup
	for n := range workers {
		running.Go(func() {
			for q := range queue {
				found, err := r.compare(ctx, n, q)
				if ctx.Err() != nil {
					continue
				}
				if err != nil {
					cancel(err)
					continue
				}
				r.done.Add(1)
				r.mu.Lock()
				each(q, found)
				r.mu.Unlock()
			}
		})
	}

	for q := range questions {
		if r.pace.Wait(ctx) != nil {
			break
		}
		queue <- q
	}
	close(queue)
	running.Wait()
}

// compare queries both servers. It returns an error if the comparison has to end.
func (r *run) compare(ctx context.Context, n int, q question) (result, error) {
	m := new(dns.Msg).SetQuestion(q.name, q.qtype)
	m.SetEdns0(1232, false)
	reply, err := r.client.Exchange(ctx, n, m, r.Transport == "tcp")
	packet, packErr := m.Pack()
	if packErr != nil {
		return result{}, fmt.Errorf("packing the query %s: %w", q.name, packErr)
	}

	// The objects may change meanwhile: the answer is computed after the reply arrived.
	expected, wantErr := r.want.answer(ctx, packet)
	if wantErr != nil {
		return result{}, fmt.Errorf("%s %s: %w", q.name, dns.Type(q.qtype), wantErr)
	}
	want := newAnswer(expected)

	if err != nil {
		if r.silent.Add(1) >= maxSilent {
			return result{}, fmt.Errorf("no valid reply to %d queries in a row, the last one: %w", maxSilent, err)
		}
		return result{cause: failure(err), want: want, got: answer{rcode: err.Error()}}, nil
	}
	r.silent.Store(0)
	want, got := r.want.all.withoutTarget(want, newAnswer(reply))
	cause := r.want.all.relevant(q, want, got)
	return result{cause, documented(q, want, got, cause), want, got}, nil
}

// relevant returns the cause of a difference that a client can notice.
func (z zoneList) relevant(q question, want, got answer) string {
	if isReverse(q.name) && len(want.records) == 0 {
		// Servers usually pass such a name on to another server, which decides the answer.
		for r := range got.records {
			if z.contain(r.data) {
				return difference(want, got)
			}
		}
		return ""
	}
	return difference(want, got)
}

// failure returns the cause of a query without a valid reply.
func failure(err error) string {
	late, ok := errors.AsType[*query.NoReply](err)
	switch {
	case !ok:
		return "query failed"
	case late.Stray != nil:
		return "invalid reply"
	}
	return "no reply"
}

// add counts a difference. r.mu is held.
func (r *run) add(q question, found result) {
	key := groupKey{found.cause, q.subject, found.reason}
	g := r.groups[key]
	if g == nil {
		g = &Group{Cause: found.cause, Subject: q.subject, Reason: found.reason}
		r.groups[key], r.types[key] = g, map[uint16]bool{}
	}
	if first, ok := r.examples[key]; !ok || q.before(first) {
		r.examples[key] = q
		g.Example = newExample(q, found)
	}
	g.Count++
	r.types[key][q.qtype] = true
	if found.reason != "" {
		r.report.Documented++
	} else {
		r.report.Different++
	}
}

// before reports whether q is the better example of a group than o, so that the examples do not
// depend on the order of the replies.
func (q question) before(o question) bool {
	return cmp.Or(cmp.Compare(q.qtype, o.qtype), strings.Compare(q.name, o.name)) < 0
}

func newExample(q question, found result) Example {
	missing, extra := found.want.without(found.got), found.got.without(found.want)
	if len(missing)+len(extra) == 0 {
		missing, extra = found.want.without(answer{}), found.got.without(answer{})
	}
	return Example{
		Name: q.name, Type: dns.Type(q.qtype).String(),
		Expected: found.want.show(missing), Received: found.got.show(extra),
	}
}

// A lowTTL counts the answers with the expected records and one expected TTL: count have a
// lower TTL, equal the expected one.
type lowTTL struct {
	count, equal int
	highest      uint32
	question     question
	result       result
}

// manyLow is the number of answers with a lower TTL than expected, and none with the expected
// TTL, that excludes a cache as the cause: an answer has the expected TTL when it enters a
// cache.
const manyLow = 20

// addTTL notes the TTL of an answer with the expected records. r.mu is held.
func (r *run) addTTL(q question, found result) {
	for record, want := range found.want.records {
		got, ok := found.got.records[record]
		if !ok {
			continue
		}
		low := r.ttls[want]
		if low == nil {
			low = new(lowTTL)
			r.ttls[want] = low
		}
		if got < want {
			low.count++
			low.highest, low.question, low.result = max(low.highest, got), q, found
		} else {
			low.equal++
		}
		return // the records of an answer have the same TTL
	}
}

// finish adds a group for each TTL that is always lower than expected, and sorts the groups.
func (r *run) finish() {
	for want, low := range r.ttls {
		if low.equal == 0 && low.count >= manyLow {
			low.result.cause = fmt.Sprintf("TTL %d instead of %d", low.highest, want)
			low.question.subject = "all names"
			r.add(low.question, low.result)
			g := r.groups[groupKey{low.result.cause, low.question.subject, ""}]
			g.Count = low.count
			r.report.Different += low.count - 1
			r.report.Same -= low.count
		}
	}
	r.report.Groups = []Group{}
	for key, g := range r.groups {
		var types []string
		for _, t := range slices.Sorted(maps.Keys(r.types[key])) {
			types = append(types, dns.Type(t).String())
		}
		g.Type = strings.Join(types, ",")
		r.report.Groups = append(r.report.Groups, *g)
	}
	order.Slice(r.report.Groups, func(a, b Group) int { return Order(&a, &b) })
}

// Order compares groups for a report: undocumented ones are first, then those with the most
// differences.
func Order(a, b *Group) int {
	return cmp.Or(
		cmp.Compare(a.Reason, b.Reason), cmp.Compare(b.Count, a.Count),
		cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Subject, b.Subject),
	)
}

// reportProgress calls Progress once a second until the returned function is called.
func (r *run) reportProgress(total int) (stop func()) {
	if r.Progress == nil {
		return func() {}
	}
	return follow.Go(func(ctx context.Context) {
		for range clock.Ticks(ctx, time.Second) {
			r.Progress(int(r.done.Load()), total)
		}
		r.Progress(int(r.done.Load()), total)
	}).Stop
}
