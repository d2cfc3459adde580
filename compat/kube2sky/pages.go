package kube2sky

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/seamark/seamark/metrics"
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
	ready   func() bool
	metrics *metrics.Registry
}

func (p *pages) server() *http.Server {
	return &http.Server{
		Handler:           p,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          log.New(io.Discard, "", 0), // of clients that go away
	}
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if r.Body != http.NoBody { // without one, reading goes on to see whether the client is still there
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	switch r.URL.Path {
	case "/metrics":
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = p.metrics.WriteText(w) // a scraper that goes away is no matter
	case "/readiness":
		if !p.ready() {
			http.Error(w, "not everything is written yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	default:
		http.NotFound(w, r)
	}
}
