package admin

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/audit"
	"github.com/seamark/seamark/observe/inventory"
	"github.com/seamark/seamark/observe/status"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/wire"
)

type (
	// A cacheReader lists and removes cached answers, and knows which directive gave an
	// answer (cache).
	cacheReader interface {
		Scope() any // of the answers: caches with the same one have the same answers
		Answers(yield func(config.CachedAnswer) bool)
		Flush(name wire.Name) int
		Answered(q *dns.Query) (step int, stored bool)
	}
)

// A Record is a record that the server serves.
type Record = inventory.Record

func newRecordFilter(r *http.Request) (inventory.Filter, error) {
	return inventory.NewFilter(r.FormValue("zone"), r.FormValue("directive"), r.FormValue("name"), r.FormValue("type"))
}

// listRecords writes the records that a request selects as JSON, an object a line.
func (s *service) listRecords(w http.ResponseWriter, r *http.Request) {
	f, err := newRecordFilter(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}

	w.Header().Set("Content-Type", "application/x-ndjson")
	if r.Method == http.MethodHead {
		return
	}

	turn, err := s.turns.Begin(r.Context(), web.Client(r))
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	defer turn.End()
	out := bufio.NewWriterSize(turnWriter{w, turn}, downloadBuffer)
	e := json.NewEncoder(out)
	for record := range s.all {
		if turn.Continue() != nil || f.Selects(&record) && e.Encode(record) != nil {
			panic(http.ErrAbortHandler) // the list would look complete
		}
	}
	finish(w, out)
}

// finish writes the end of a list, of which nothing may have been selected for long.
func finish(w http.ResponseWriter, out *bufio.Writer) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(tailDeadline))
	_ = out.Flush() // fails only if the client disconnects, or is too slow
}

// downloadBuffer is what is written at once of a list.
const downloadBuffer = 16 << 10

// A turnWriter writes to a client between two turns, in tailDeadline at most.
type turnWriter struct {
	http.ResponseWriter
	turn *status.Turn
}

func (w turnWriter) Write(p []byte) (n int, err error) {
	err = w.turn.Outside(func() error {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(tailDeadline))
		n, err = w.ResponseWriter.Write(p)
		return err
	})
	return n, err
}

// all yields the records of all zones.
func (s *service) all(yield func(Record) bool) { inventory.Records(s.listers)(yield) }

// listers yields the handlers with records.
func (s *service) listers(yield func(inventory.Named) bool) {
	for _, a := range s.blocks {
		for _, h := range a.records {
			if !yield(h) {
				return
			}
		}
	}
}

// A CachedAnswer is an answer that a cache keeps.
type CachedAnswer struct {
	Name    string        `json:"name"`
	Type    string        `json:"type"`
	RCode   string        `json:"rcode"`
	Records int           `json:"records"`
	Size    int           `json:"size"`
	Age     time.Duration `json:"age"`
	Left    time.Duration `json:"left"` // negative if it has expired and may be served stale
	Zone    string        `json:"zone"` // of the server block
}

// listCache writes cached answers.
func (s *service) listCache(w http.ResponseWriter, r *http.Request) {
	limit, err := number(r, "limit", 100, 100_000)
	turn, canceled := s.turns.Begin(r.Context(), web.Client(r))
	if canceled != nil {
		return
	}
	defer turn.End()
	selected, wrong := s.cachedAnswers(r, turn, limit)
	if err = cmp.Or(err, wrong); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodHead {
		return
	}

	out, separator := bufio.NewWriterSize(turnWriter{w, turn}, downloadBuffer), "[\n  "
	for e := range selected {
		text, _ := json.MarshalIndent(e, "  ", "  ") // cannot fail: it has only text and numbers
		_, _ = out.WriteString(separator)
		if _, err := out.Write(text); err != nil {
			return // without an end: the client sees that the list is not complete
		}
		separator = ",\n  "
	}
	if r.Context().Err() != nil {
		return
	}

	end := "\n]\n"
	if separator[0] == '[' {
		end = "[]\n"
	}
	_, _ = out.WriteString(end)
	finish(w, out)
}

// cachedAnswers returns at most limit cached answers that a request selects, by a part of the
// name and a type. They are made in the request's turns, and are not complete once it is canceled.
func (s *service) cachedAnswers(r *http.Request, turn *status.Turn, limit int) (iter.Seq[CachedAnswer], error) {
	name, kind := strings.ToLower(r.FormValue("name")), r.FormValue("type")
	if kind != "" {
		t, ok := wire.ParseType(kind)
		if !ok {
			return nil, fmt.Errorf("type: want a record type such as SRV or TYPE65, got %q", kind)
		}
		kind = t.String()
	}

	return func(yield func(CachedAnswer) bool) {
		count, seen := 0, map[any]bool{}
		for _, a := range s.blocks {
			for _, c := range a.caches {
				if seen[c.Scope()] {
					continue
				}
				seen[c.Scope()] = true

				for e := range c.Answers {
					if turn.Continue() != nil {
						return
					}
					answer := CachedAnswer{
						e.Name.String(), e.Type.String(), e.RCode.String(), e.Records, e.Size, e.Age, e.Left,
						a.block.Zones[0].String(),
					}
					if !strings.Contains(answer.Name, name) || kind != "" && kind != answer.Type {
						continue
					}
					if count++; !yield(answer) || count == limit {
						return
					}
				}
			}
		}
	}, nil
}

// audits writes what groups of the directive policy would have denied.
func (s *service) audits(w http.ResponseWriter, _ *http.Request) {
	if s.options.redact {
		fail(w, http.StatusForbidden, errors.New("the option redact hides the names of clients, which an audit needs"))
		return
	}
	reports := []audit.Report{}
	for _, a := range s.blocks {
		for _, p := range a.policies {
			if report, ok := p.Audit(); ok {
				reports = append(reports, report)
			}
		}
	}
	write(w, reports)
}

// flush removes the cached answers for a name and all names below it.
func (s *service) flush(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Seamark") == "" { // a page of another site cannot set it
		fail(w, http.StatusForbidden, fmt.Errorf("the header X-Seamark is needed, with any value"))
		return
	}

	text := r.URL.Query().Get("name")
	name, err := wire.ParseName(strings.ToLower(text))
	if err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("name: want a domain name, . for all, got %q", text))
		return
	}

	n := 0
	for _, a := range s.blocks {
		for _, c := range a.caches {
			n += c.Flush(name)
		}
	}

	s.log.Info("admin: Removed cached answers", "qname", name, "count", n, "client", r.RemoteAddr)
	write(w, map[string]int{"removed": n})
}
