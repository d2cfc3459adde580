package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/wire"
)

const (
	tailBatch    = 256                    // events that are read at a time
	tailPause    = 100 * time.Millisecond // between two reads
	tailSilence  = 15 * time.Second       // after which an empty line is sent
	tailDeadline = 10 * time.Second       // of one write
)

// A filter selects events. Fields that are empty select all.
type filter struct {
	name, namespace, rcode, source string
	client                         netip.Prefix
	slower                         time.Duration
}

func newFilter(r *http.Request) (f filter, err error) {
	f = filter{
		name: strings.ToLower(r.FormValue("name")), namespace: r.FormValue("namespace"), source: r.FormValue("source"),
	}

	if text := r.FormValue("rcode"); text != "" {
		code, ok := wire.ParseRCode(text)
		if !ok {
			return f, fmt.Errorf("rcode: want a response code such as NXDOMAIN, got %q", text)
		}
		f.rcode = code.String()
	}

	if text := r.FormValue("client"); text != "" {
		if f.client, err = config.ParseSource(text); err != nil {
			return f, fmt.Errorf("client: want an IP address or a network, got %q", text)
		}
	}

	if text := r.FormValue("slower"); text != "" {
		if f.slower, err = time.ParseDuration(text); err != nil || f.slower < 0 {
			return f, fmt.Errorf("slower: want a duration such as 100ms, got %q", text)
		}
	}
	return f, nil
}

// selects reports whether an event is to be shown. name is part of the event's name.
func (f *filter) selects(e *traffic.Event) bool {
	return strings.Contains(e.Name, f.name) && (f.namespace == "" || f.namespace == e.Namespace) &&
		(f.rcode == "" || f.rcode == e.RCode) && (f.source == "" || f.source == e.Source) &&
		(!f.client.IsValid() || f.client.Contains(e.Client)) && e.Duration >= f.slower
}

// tail writes events as they come, a JSON object a line, until the client disconnects. An
// object with the member lost reports events that the client was too slow for. An empty line
// shows that the connection is open.
func (s *service) tail(w http.ResponseWriter, r *http.Request) {
	f, err := newFilter(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}

	defer s.recorder.Watch()()
	_, next := s.recorder.Since(math.MaxUint64, 0) // before the client knows that the tail has begun
	w.Header().Set("Content-Type", "application/x-ndjson")
	control, out := http.NewResponseController(w), json.NewEncoder(w)
	flush := func() error {
		if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		return nil
	}
	_ = control.SetWriteDeadline(time.Now().Add(tailDeadline))
	if flush() != nil || r.Method == http.MethodHead {
		return
	}

	poll := time.NewTicker(tailPause)
	defer poll.Stop()
	for written := time.Now(); ; {
		select {
		case <-r.Context().Done():
			return
		case <-poll.C:
		}

		var lines []any
		lines, next = s.tailLines(&f, next)
		if len(lines) == 0 && time.Since(written) < tailSilence {
			continue
		}

		written = time.Now()
		_ = control.SetWriteDeadline(written.Add(tailDeadline))
		for _, line := range lines {
			if out.Encode(line) != nil {
				return
			}
		}
		if len(lines) == 0 {
			_, _ = w.Write([]byte("\n")) // flush has the error
		}
		if flush() != nil {
			return
		}
	}
}

// tailLines returns what tail writes of the events from a sequence number on, as far as they
// are selected, and the next sequence number.
func (s *service) tailLines(f *filter, from uint64) (lines []any, next uint64) {
	events, next := s.recorder.Since(from, tailBatch)
	if len(events) > 0 && events[0].Sequence > from {
		lines = append(lines, map[string]uint64{"lost": events[0].Sequence - from})
	}
	for i := range events {
		if f.selects(&events[i]) {
			lines = append(lines, &events[i])
		}
	}
	return lines, next
}
