// Package status serves status pages over HTTP: probes, metrics and profiles. It limits how
// long each request may take, and the connections of each client and of all (connections.go), so
// that a probe is answered whatever other clients do. Package web uses its server for the pages
// of directives; the commands sidecar, exec-healthz, kube2sky and node, whose pages are not in
// a Corefile, call Run.
package status

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/seamark/seamark/transport"
)

// The limits of a request. Probes and scrapers are on the same network.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = time.Second // no page reads a body; the server discards it
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 32 << 10 // of the request line and the header
	headerSlack   = 4 << 10  // net/http reads this much beyond its limit
)

// NewServer returns a server of pages with limits for each request. Its listener comes from
// Limit of a Connections.
func NewServer(pages http.Handler) *http.Server {
	return &http.Server{
		Handler:           limited(pages),
		ConnState:         func(c net.Conn, state http.ConnState) { transport.SetBusy(c, state == http.StateActive) },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader - headerSlack,
		ErrorLog:          log.New(io.Discard, "", 0), // only of clients that disconnect
	}
}

// limited sets the deadlines per request and not for the server: some pages, such
// as profiles, take longer and replace them.
func limited(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if r.Body != http.NoBody { // without a body, the server reads to detect a disconnect
			_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		pages.ServeHTTP(w, r)
	})
}

// Run serves pages at address, HOST:PORT, and runs tasks until ctx ends. It then
// closes all connections, waits for the tasks, and returns nil. hint ends the error
// about an address that is not available.
func Run(
	ctx context.Context, address, hint string, log *slog.Logger, pages http.Handler, tasks ...func(context.Context),
) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serving status pages: %w: %s", err, hint)
	}
	log.Info("Serving status pages", "address", listener.Addr())

	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, task := range tasks {
		running.Go(func() { task(ctx) })
	}

	conns := NewConnections(nil, nil)
	defer conns.Stop()
	server := NewServer(pages)
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	err = server.Serve(conns.Limit(listener))
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving status pages: %w", err)
}
