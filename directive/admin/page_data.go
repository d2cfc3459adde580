package admin

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/sys/order"
)

// explainPage returns an explanation, or nil without a name.
func (s *service) explainPage(r *http.Request) (any, int, error) {
	if r.FormValue("name") == "" {
		return nil, http.StatusOK, nil
	}
	result, code, err := s.explanation(r)
	if err != nil {
		return nil, code, err
	}
	return result, http.StatusOK, nil
}

// pageRows is the number of rows of a table.
const pageRows = 500

// A recordsPage is one page of the records.
type recordsPage struct {
	Records []Record // sorted
	After   string   // the position of the last one if there are more, else ""
	Zones   []string
	Seconds float64 // that the search took
}

// recordsPage returns the records after a position, as far as the parameters select them.
// The order in which records are listed is arbitrary, so each page takes one pass over all
// of them; maxLists bounds concurrent passes.
func (s *service) recordsPage(r *http.Request) (any, int, error) {
	f, err := newRecordFilter(r)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}

	client := web.Client(r)
	if !s.lists.TryAcquire(client) {
		return nil, http.StatusServiceUnavailable, fmt.Errorf(
			"a page of records is being read by the client, or %d by all: try again", maxLists)
	}
	defer s.lists.Release(client)

	began := time.Now()
	turn, err := s.turns.Begin(r.Context(), client)
	if err != nil {
		return nil, http.StatusServiceUnavailable, err
	}
	defer turn.End()
	p := recordsPage{Zones: s.recordZones()}
	after, more := r.FormValue("after"), false
	for record := range s.all {
		if err := turn.Continue(); err != nil {
			return nil, http.StatusServiceUnavailable, err
		}
		if !f.Selects(&record) || position(&record) <= after {
			continue
		}
		if p.Records = append(p.Records, record); len(p.Records) == 4*pageRows {
			p.Records, more = firstRecords(p.Records), true
		}
	}

	more = more || len(p.Records) > pageRows
	if p.Records = firstRecords(p.Records); more {
		p.After = position(&p.Records[len(p.Records)-1])
	}
	p.Seconds = time.Since(began).Seconds()
	return p, http.StatusOK, nil
}

// position returns a text that orders records by name.
func position(r *Record) string {
	return strings.Join([]string{r.Name, r.Type, r.Data, r.Zone, r.Directive}, "\t")
}

// firstRecords sorts records and returns those of one page.
func firstRecords(list []Record) []Record {
	order.Slice(list, func(a, b Record) int { return cmp.Compare(position(&a), position(&b)) })
	return list[:min(len(list), pageRows)]
}

// recordZones returns the zones whose records can be listed.
func (s *service) recordZones() (zones []string) {
	for _, a := range s.blocks {
		for _, h := range a.records {
			for _, origin := range h.AuthoritativeZones() {
				zones = append(zones, origin.String())
			}
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// A cachePage is the cached answers that a request selects.
type cachePage struct {
	Answers []CachedAnswer
	Limit   int // the number of answers if there are more, else 0
}

func (s *service) cachePage(r *http.Request) (any, int, error) {
	turn, err := s.turns.Begin(r.Context(), web.Client(r))
	if err != nil {
		return nil, http.StatusServiceUnavailable, err
	}
	defer turn.End()
	answers, err := s.cachedAnswers(r, turn, pageRows)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	p := cachePage{Answers: slices.Collect(answers)}
	if len(p.Answers) == pageRows {
		p.Limit = pageRows
	}
	return p, http.StatusOK, nil
}

// A queriesPage is the last queries that a request selects, the last one first.
type queriesPage struct {
	Events  []traffic.Event
	Sampled float64
	// Clients are those of all recorded queries that a filter selects, the most frequent first.
	Clients  []traffic.Entry
	Count    float64 // of these queries
	PodError error   // why some pods are missing
}

// lastEvents is the number of queries that the page shows at first.
const lastEvents = 100

func (s *service) queriesPage(r *http.Request) (any, int, error) {
	f, err := newFilter(r)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}

	p := queriesPage{Sampled: s.recorder.Sampled(time.Now())}
	events, _ := s.recorder.Since(0, math.MaxInt)
	clients := map[netip.Addr]*traffic.Entry{}
	for _, e := range slices.Backward(events) {
		if !f.selects(&e) {
			continue
		}
		if len(p.Events) < lastEvents {
			p.Events = append(p.Events, e)
		}

		c := clients[e.Client]
		if c == nil {
			c = &traffic.Entry{Key: e.Client.String(), Namespace: e.Namespace, Example: e.Name}
			clients[e.Client] = c
		}
		c.Count += e.Weight
		p.Count += e.Weight
	}

	if r.FormValue("name") != "" || r.FormValue("rcode") != "" || r.FormValue("namespace") != "" {
		p.Clients, p.PodError = s.mostFrequent(r.Context(), clients, p.Count)
	}
	return p, http.StatusOK, nil
}

// mostFrequent returns the first clients, with their shares of all queries and with their pods.
func (s *service) mostFrequent(
	ctx context.Context, clients map[netip.Addr]*traffic.Entry, all float64,
) (list []traffic.Entry, err error) {
	for _, c := range clients {
		c.Share = c.Count / all
		list = append(list, *c)
	}
	order.Slice(list, func(a, b traffic.Entry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	if list = list[:min(len(list), maxPodsShown)]; s.pods != nil {
		err = s.pods.add(ctx, list)
	}
	return list, err
}
