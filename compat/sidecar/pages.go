package sidecar

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/seamark/seamark/metrics"
)

const (
	healthzPath     = "/healthz"
	healthcheckPath = "/healthcheck/"
)

// What a client of a probe or a scrape may take: the limits of package web, whose
// sites belong to the plans of a Corefile, which there is none of here.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
)

// pages is what is served over HTTP.
type pages struct {
	metrics *metrics.Registry
	path    string // of metrics
	probes  map[string]*prober
}

func (p pages) server() *http.Server {
	return &http.Server{
		Handler:           p,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          log.New(io.Discard, "", 0), // of clients that go away
	}
}

// A health is the page of one probe. Its fields' names are the contract.
type health struct {
	IsOk           bool
	LatencySeconds float64 // of the last probe; 0 if it failed
	Err            string  // empty if it did not
}

func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if r.Body != http.NoBody { // without one, reading goes on to see whether the client is still there
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	switch r.URL.Path {
	case p.path:
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = p.metrics.WriteText(w) // a scraper that goes away is no matter
		return
	case healthzPath:
		fmt.Fprintf(w, "ok (%v)\n", time.Now())
		return
	}
	label, ok := strings.CutPrefix(r.URL.Path, healthcheckPath)
	probe := p.probes[label]
	if !ok || probe == nil {
		http.NotFound(w, r)
		return
	}
	now := probe.health()
	text, err := json.Marshal(now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !now.IsOk {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(text)
}
