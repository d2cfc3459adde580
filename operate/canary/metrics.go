package canary

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/operate/table"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
)

// A Rule is the condition under which a canary stops.
type Rule struct {
	MinQueries  int           // of Seamark, between two samples
	MaxServfail float64       // by which Seamark's share of SERVFAIL may exceed the old server's, from 0 to 1
	MaxErrors   float64       // the same for other response codes than NOERROR and NXDOMAIN
	MaxSlowdown float64       // largest ratio of Seamark's p99 to the old server's
	MinP99      time.Duration // a p99 that is always acceptable
}

// Status is the state of a canary.
type Status struct {
	Stage       int      `json:"stage"`
	Description string   `json:"description"`
	Complete    bool     `json:"complete"`
	Sides       []Side   `json:"sides"`
	Interval    float64  `json:"intervalSeconds,omitempty"`
	Stop        []string `json:"stop"` // the reasons of the stop rule
	Warnings    []string `json:"warnings"`
	columns     int      // of the terminal, or 0
}

// A Side is one of the two servers.
type Side struct {
	Name        string  `json:"name"`
	Image       string  `json:"image"`
	Pods        int     `json:"pods"`
	Ready       int     `json:"ready"`
	Serving     int     `json:"serving"` // endpoints of the cluster's DNS Service
	Restarts    int     `json:"restarts"`
	Queries     float64 `json:"queries"` // between the samples, like the next three
	Servfail    float64 `json:"servfail"`
	OtherErrors float64 `json:"otherErrors"`
	P99         float64 `json:"p99Seconds"`
}

// ReadStatus reads the objects, and the metrics of both servers twice.
func ReadStatus(ctx context.Context, o Options) (*Status, error) {
	c := command{Options: o}
	done := c.progress("reading the objects of the cluster's DNS")
	s, err := c.readState(ctx)
	done()
	if err != nil {
		return nil, err
	}
	return c.sample(ctx, s)
}

// Print writes the status as text.
func (r *Status) Print(w io.Writer) {
	complete := ""
	if !r.Complete {
		complete = " (not complete: run seamark canary promote or rollback)"
	}
	fmt.Fprintf(w, "Stage %s%s\n", r.Description, complete)
	r.print(w)
	for _, warning := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", warning)
	}
}

func (r *Status) print(w io.Writer) {
	t := table.New(w, r.columns)
	t.Row("SERVER", "READY", "SERVING", "QUERIES", "SERVFAIL", "ERRORS", "P99", "RESTARTS", "IMAGE")
	for _, side := range r.Sides {
		share := func(n float64) string {
			if side.Queries == 0 {
				return "-"
			}
			return strconv.FormatFloat(100*n/side.Queries, 'f', 2, 64) + "%"
		}

		p99 := "-"
		if side.P99 > 0 {
			p99 = time.Duration(side.P99 * float64(time.Second)).Round(10 * time.Microsecond).String()
		}
		t.Row(side.Name, fmt.Sprintf("%d/%d", side.Ready, side.Pods), side.Serving, fmt.Sprintf("%.0f", side.Queries),
			share(side.Servfail), share(side.OtherErrors), p99, side.Restarts, side.Image)
	}
	t.Flush()

	for _, why := range r.Stop {
		fmt.Fprintf(w, "stop: %s\n", why)
	}
	if len(r.Stop) == 0 && r.Interval > 0 {
		interval := time.Duration(r.Interval * float64(time.Second)).Round(time.Millisecond)
		fmt.Fprintf(w, "The stop rule does not apply (%v).\n", interval)
	}
}

// sample reads the metrics of all pods twice and applies the rule to the difference. It
// waits only if pods of Seamark get queries.
func (c *command) sample(ctx context.Context, s *state) (*Status, error) {
	now := s.stage()
	r := &Status{columns: c.Columns,
		Stage: int(now), Description: now.String(), Complete: len(c.steps(s, now)) == 0,
		Stop: []string{}, Warnings: append([]string{}, s.managed(now)...),
	}
	old := c.side(s, s.old.Metadata.Name, s.old.image(), oldSide)
	seamark := c.side(s, c.Name, cmp.Or(s.seamark.image(), s.one.image()), seamarkSide, oneSide)

	page, err := c.metrics(s.old)
	if now > Beside && err != nil {
		r.Stop = append(r.Stop, err.Error())
	}
	if now > Beside && err == nil {
		first, err := c.scrape(ctx, s, page)
		if err != nil {
			return nil, err
		}

		begin := time.Now()
		done := c.progress(fmt.Sprintf("comparing the metrics of %v", c.Interval))
		clock.Sleep(ctx, c.Interval)
		done()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}

		second, err := c.scrape(ctx, s, page)
		if err != nil {
			return nil, err
		}

		r.Interval = time.Since(begin).Seconds()
		old.count(s, first, second, oldSide)
		seamark.count(s, first, second, seamarkSide, oneSide)
		r.Stop = c.Rule.apply(old, seamark, time.Since(begin))
	}

	r.Sides = append(r.Sides, old)
	if now > None {
		r.Sides = append(r.Sides, seamark)
	}
	return r, nil
}

// progress calls Progress with text after a second, unless the returned function is called
// before.
func (c *command) progress(text string) (done func()) {
	if c.Progress == nil {
		return func() {}
	}
	return follow.Go(func(ctx context.Context) {
		if clock.Sleep(ctx, time.Second) {
			c.Progress(text)
		}
	}).Stop
}

func (c *command) side(s *state, name, image string, sides ...side) Side {
	r := Side{Name: name, Image: image}
	for _, which := range sides {
		r.Pods += len(s.pods[which])
		r.Ready += len(s.ready(which))
		r.Serving += c.inService(s, which)
		for _, p := range s.pods[which] {
			r.Restarts += p.restarts()
		}
	}
	return r
}

// apply returns the reasons for which the rule stops the canary.
func (r Rule) apply(old, seamark Side, interval time.Duration) (stop []string) {
	stop = []string{}
	if seamark.Queries < float64(max(r.MinQueries, 1)) {
		return append(stop, fmt.Sprintf("Seamark had %.0f queries in %v, the rule needs %d:"+
			" wait, or set --interval or --min-queries",
			seamark.Queries, interval.Round(time.Millisecond), max(r.MinQueries, 1)))
	}

	share := func(n, total float64) float64 {
		if total == 0 {
			return 0
		}
		return n / total
	}
	compare := func(what string, own, other, more float64) {
		if own > other+more {
			stop = append(stop, fmt.Sprintf("%s: %.2f%% of Seamark's queries, %.2f%% of the old server's",
				what, 100*own, 100*other))
		}
	}

	compare("SERVFAIL", share(seamark.Servfail, seamark.Queries), share(old.Servfail, old.Queries), r.MaxServfail)
	compare("other errors",
		share(seamark.OtherErrors, seamark.Queries), share(old.OtherErrors, old.Queries), r.MaxErrors)
	if limit := old.P99 * r.MaxSlowdown; old.Queries > 0 && seamark.P99 > max(limit, r.MinP99.Seconds()) {
		stop = append(stop, fmt.Sprintf("p99: Seamark %.1f ms, the old server %.1f ms", 1000*seamark.P99, 1000*old.P99))
	}
	return stop
}

// counters are the values of one pod: queries, responses by code, and durations by the upper
// bound of their bucket, cumulative.
type counters struct {
	queries   float64
	responses map[string]float64
	durations map[float64]float64
}

// scrape reads the metrics of the ready pods that the Service selects, by the pod's name.
// Seamark's other pods receive queries of comparisons only.
func (c *command) scrape(ctx context.Context, s *state, from metricsPage) (map[string]counters, error) {
	defer c.progress("reading the metrics of the pods")()
	pods := map[string]counters{}
	for _, which := range []side{oldSide, seamarkSide, oneSide} {
		for _, p := range s.selected(which) {
			if !p.Status.Conditions.Ready() {
				continue
			}
			page, err := c.API.Get(ctx, c.path("pods", p.Metadata.Name)+":"+from.port+"/proxy"+from.path)
			if apiserver.IsNotFound(err) {
				continue // deleted since s was read
			}
			if err != nil {
				return nil, err
			}
			pods[p.Metadata.Name] = parseMetrics(page, from.names)
		}
	}
	return pods, nil
}

// count adds the queries that the pods of the sides answered between two samples.
func (r *Side) count(s *state, first, second map[string]counters, sides ...side) {
	buckets := map[float64]float64{}
	for _, which := range sides {
		for _, p := range s.selected(which) {
			before, after := first[p.Metadata.Name], second[p.Metadata.Name]
			r.Queries += increase(before.queries, after.queries)
			for code, n := range after.responses {
				switch n = increase(before.responses[code], n); code {
				case "NOERROR", "NXDOMAIN":
				case "SERVFAIL":
					r.Servfail += n
				default:
					r.OtherErrors += n
				}
			}

			for bound, n := range after.durations {
				buckets[bound] += increase(before.durations[bound], n)
			}
		}
	}

	r.P99 = metrics.Quantile(0.99, buckets)
}

// increase returns how much a counter has increased between two samples. A lower value is that of a server that has
// restarted.
func increase(before, after float64) float64 {
	if after < before {
		return after
	}
	return after - before
}

// parseMetrics reads queries, responses and durations from a page in the Prometheus text format. names is that of a
// metricsPage.
func parseMetrics(page []byte, names string) counters {
	requests, responses, label := "", "coredns_dns_responses_total", "rcode"
	durations := "coredns_dns_request_duration_seconds_bucket"
	if names != "" {
		requests, responses, label = names+"request_count_total", names+"error_count_total", "cause"
		durations = names + "request_duration_seconds_bucket"
	}

	c := counters{responses: map[string]float64{}, durations: map[float64]float64{}}
	isUsed := func(family string) bool { return family == requests || family == responses || family == durations }
	for series, value := range metrics.Parse(string(page), isUsed) {
		family, labels := metrics.ParseSeries(series)
		code, ok := labels[label]
		switch bound, err := strconv.ParseFloat(labels["le"], 64); {
		case math.IsNaN(value):
		case family == requests:
			c.queries += value
		case family == responses && ok && names == "":
			c.queries += value
			c.responses[code] += value
		case family == responses && (code == "servfail" || code == "refused"): // other causes are no errors
			c.responses[strings.ToUpper(code)] += value
		case err == nil:
			c.durations[bound] += value
		}
	}
	return c
}
