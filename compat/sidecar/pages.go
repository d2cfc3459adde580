package sidecar

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	healthzPath     = "/healthz"
	healthcheckPath = "/healthcheck/"
)

// pages serves the metrics, /healthz, and /healthcheck/LABEL for each probe.
type pages struct {
	path    string // of the metrics
	metrics http.Handler
	probers map[string]*prober
}

// A health is the page of one probe. Clients depend on the names of its fields.
type health struct {
	IsOk           bool
	LatencySeconds float64 // of the last probe; 0 if it failed
	Err            string  // "" if it succeeded
}

func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case p.path:
		p.metrics.ServeHTTP(w, r)
		return
	case healthzPath:
		fmt.Fprintf(w, "ok (%v)\n", time.Now())
		return
	}

	label, ok := strings.CutPrefix(r.URL.Path, healthcheckPath)
	prober := p.probers[label]
	if !ok || prober == nil {
		http.NotFound(w, r)
		return
	}

	result := prober.health()
	text, err := json.Marshal(result)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !result.IsOk {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(text)
}
