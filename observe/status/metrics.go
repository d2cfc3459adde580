package status

import (
	"context"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/metrics"
)

const (
	textFormat  = "text/plain; version=0.0.4; charset=utf-8"
	openMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8"
)

// Metrics returns the page of a registry's metrics: in the text format of OpenMetrics 1.0.0
// if the client prefers it, else in the Prometheus text format 0.0.4. The page is compressed
// with gzip for a client that accepts it. It adds the metrics of the process to the registry.
// Clients that wait for the page at the same time share it.
func Metrics(r *metrics.Registry) http.Handler {
	r.RegisterProcess()
	r.RegisterGo()
	return metricsPage(newRenderer(r))
}

func metricsPage(pages *renderer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		f := form{open: prefersOpenMetrics(q.Header), gzip: acceptsGzip(q.Header)}
		p := pages.get(f)
		defer pages.release(p)

		h := w.Header()
		h.Set("Content-Type", textFormat)
		if f.open {
			h.Set("Content-Type", openMetrics)
		}
		if f.gzip {
			h.Set("Content-Encoding", "gzip")
		}
		h.Set("Vary", "Accept, Accept-Encoding")
		h.Set("Content-Length", strconv.Itoa(len(p.text)))

		control := http.NewResponseController(w)
		defer context.AfterFunc(p.ctx, func() { _ = control.SetWriteDeadline(time.Unix(1, 0)) })()
		_, _ = w.Write(p.text) // fails only if the client disconnects, or is too slow
	})
}

// prefersOpenMetrics reports whether the Accept header names OpenMetrics 1.0.0, with at least
// the weight of the other format (RFC 9110 §12.5.1).
func prefersOpenMetrics(h http.Header) bool {
	var open, text float64
	textRank := 0 // of the most specific range that matches the text format
	for _, value := range list(h, "Accept") {
		name, parameters, err := mime.ParseMediaType(value)
		if err != nil {
			continue
		}

		weight, version, rank := quality(parameters["q"]), parameters["version"], 0
		switch {
		case name == "application/openmetrics-text" && (version == "1.0.0" || version == ""):
			open = max(open, weight)
		case name == "text/plain" && version == "0.0.4":
			rank = 4
		case name == "text/plain" && version == "":
			rank = 3
		case name == "text/*":
			rank = 2
		case name == "*/*":
			rank = 1
		}
		if rank > textRank {
			textRank, text = rank, weight
		}
	}
	return open > 0 && open >= text
}

// acceptsGzip reports whether the Accept-Encoding header names gzip (RFC 9110 §12.5.3).
func acceptsGzip(h http.Header) bool {
	for _, value := range list(h, "Accept-Encoding") {
		// An encoding has the syntax of a media type without a slash.
		if name, parameters, err := mime.ParseMediaType(value); err == nil && name == "gzip" {
			return quality(parameters["q"]) > 0
		}
	}
	return false
}

// list returns the elements of a header that is a list.
func list(h http.Header, name string) []string {
	return strings.Split(strings.Join(h.Values(name), ","), ",")
}

// quality returns a weight: 1 if there is none, 0 if it is invalid.
func quality(text string) float64 {
	if text == "" {
		return 1
	}
	q, err := strconv.ParseFloat(text, 64)
	if err != nil || !(q >= 0 && q <= 1) {
		return 0
	}
	return q
}
