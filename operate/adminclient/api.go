package adminclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/seamark/seamark/observe/audit"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/observe/inventory"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/health"
)

// A Status is the state of a server. A pointer is nil if the server does not report the
// member.
type Status struct {
	Host           string     `json:"host,omitempty"`
	Node           string     `json:"node,omitempty"`
	Version        string     `json:"version,omitempty"`
	ProcessStarted *time.Time `json:"process_started,omitempty"`

	Started *time.Time `json:"started,omitempty"`
	Ready   *bool      `json:"ready,omitempty"`
	Summary string     `json:"summary,omitempty"`
	Unready []string   `json:"unready,omitempty"`

	Conditions []health.Condition `json:"conditions,omitempty"`
	Failures   []health.Failure   `json:"failures,omitempty"`

	Servers []string           `json:"servers,omitempty"`
	Sampled *float64           `json:"sampled,omitempty"`
	Queries *float64           `json:"queries,omitempty"`
	RCodes  map[string]float64 `json:"rcodes,omitempty"`
	Sources map[string]float64 `json:"sources,omitempty"`
	P50     *time.Duration     `json:"p50,omitempty"`
	P99     *time.Duration     `json:"p99,omitempty"`
	Waste   *float64           `json:"waste,omitempty"`
	Clients *float64           `json:"clients,omitempty"`
	Names   *float64           `json:"names,omitempty"`
	Kernel  *traffic.Kernel    `json:"kernel,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Status returns the state of the server.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.get(ctx, http.MethodGet, "v1/status", nil, &s)
	return s, err
}

// Top returns the most frequent keys of a list.
func (c *Client) Top(ctx context.Context, by string, limit int) (t traffic.Top, err error) {
	err = c.get(ctx, http.MethodGet, "v1/top", url.Values{"by": {by}, "limit": {strconv.Itoa(limit)}}, &t)
	return t, err
}

// Audits returns what groups of the directive policy would have denied.
func (c *Client) Audits(ctx context.Context) (reports []audit.Report, err error) {
	err = c.get(ctx, http.MethodGet, "v1/audits", nil, &reports)
	return reports, err
}

// Explain explains a query to one of the server's addresses.
func (c *Client) Explain(ctx context.Context, q explain.Query) (r explain.Result, err error) {
	parameters := url.Values{"name": {q.Name}, "type": {q.Type}, "server": {q.Server}}
	if q.Client.IsValid() {
		parameters.Set("client", q.Client.String())
	}
	err = c.get(ctx, http.MethodGet, "v1/explain", parameters, &r)
	return r, err
}

// A CachedAnswer is an answer that a cache keeps.
type CachedAnswer struct {
	Name    string        `json:"name"`
	Type    string        `json:"type"`
	RCode   string        `json:"rcode"`
	Records int           `json:"records"`
	Size    int           `json:"size"` // bytes
	Age     time.Duration `json:"age"`
	Left    time.Duration `json:"left"` // negative if it has expired and may be served stale
	Zone    string        `json:"zone"` // of the server block
}

// Cache returns at most limit cached answers. name is a part of their names; name and
// qtype may be empty.
func (c *Client) Cache(ctx context.Context, name, qtype string, limit int) (found []CachedAnswer, err error) {
	parameters := url.Values{"name": {name}, "type": {qtype}, "limit": {strconv.Itoa(limit)}}
	err = c.get(ctx, http.MethodGet, "v1/cache", parameters, &found)
	return found, err
}

// Flush removes the cached answers for a name and all names below it, and returns how many
// they were.
func (c *Client) Flush(ctx context.Context, name string) (removed int, err error) {
	var reply struct{ Removed int }
	err = c.get(ctx, http.MethodPost, "v1/cache/flush", url.Values{"name": {name}}, &reply)
	return reply.Removed, err
}

// Records passes the records that the parameters zone, name and type select to yield.
func (c *Client) Records(ctx context.Context, parameters url.Values, yield func(inventory.Record) error) error {
	return c.lines(ctx, "v1/records", parameters, c.timeout, func() {}, func(line []byte) error {
		var r inventory.Record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("reading the records of %s: %w", c.Address(), err)
		}
		return yield(r)
	})
}

// A TailEvent is a query that the server has answered, or the number of queries that the
// client was too slow for.
type TailEvent struct {
	traffic.Event
	Lost uint64 `json:"lost,omitempty"`
}

// Tail passes the queries that the parameters of the API select to yield, until ctx ends.
// It calls begun whenever the server has begun to report: a reload ends the request, a
// hand-over the connection, and Tail repeats the request.
func (c *Client) Tail(ctx context.Context, parameters url.Values, begun func(), yield func(TailEvent)) error {
	for short := 0; short <= maxShort; short++ {
		start := time.Now()
		err := c.lines(ctx, "v1/tail", parameters, tailSilence+c.timeout, begun, func(line []byte) error {
			var e TailEvent
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf("reading the queries of %s: %w", c.Address(), err)
			}
			yield(e)
			return nil
		})

		// A connection that breaks is opened again, as when another process replaces the server.
		again := err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !again:
			return err
		}

		if time.Since(start) > time.Second {
			short = 0
		}
		if !clock.Sleep(ctx, tailPause) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s has ended the connection", c.Address())
}

const (
	// maxShort is how often in a row a tail that lasts less than a second is repeated.
	maxShort = 3
	// tailPause is the time before a tail is repeated.
	tailPause = 200 * time.Millisecond
)
