package kube2sky

import (
	"fmt"
	"net/http"
)

// pages serves /metrics and /readiness.
type pages struct {
	ready   func() bool
	metrics http.Handler
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/metrics":
		p.metrics.ServeHTTP(w, r)
	case "/readiness":
		if !p.ready() {
			http.Error(w, "not all keys are written yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	default:
		http.NotFound(w, r)
	}
}
