package status

import (
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/seamark/seamark/metrics"
)

const (
	textFormat  = "text/plain; version=0.0.4; charset=utf-8"
	openMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8"
)

// Metrics returns the page of a registry's metrics: in the text format of OpenMetrics 1.0.0
// if the client prefers it, else in the Prometheus text format 0.0.4. The page is compressed
// with gzip for a client that accepts it. It adds the metrics of the process to the registry.
func Metrics(r *metrics.Registry) http.Handler {
	r.RegisterProcess()
	r.RegisterGo()

	// A compressor has most of a megabyte: while one is in use, other clients get the page
	// as it is.
	compressing := new(sync.Mutex)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		format, write := textFormat, r.WriteText
		if prefersOpenMetrics(q.Header) {
			format, write = openMetrics, r.WriteOpenMetrics
		}
		w.Header().Set("Content-Type", format)
		w.Header().Set("Vary", "Accept, Accept-Encoding")

		var out io.Writer = w
		if acceptsGzip(q.Header) && compressing.TryLock() {
			defer compressing.Unlock()
			w.Header().Set("Content-Encoding", "gzip")
			compressor := gzip.NewWriter(w)
			defer compressor.Close() // fails only if the client disconnects
			out = compressor
		}
		_ = write(out) // fails only if the client disconnects
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
