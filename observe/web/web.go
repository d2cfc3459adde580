// Package web serves the HTTP pages for operators, probes and scrapers. The
// directives health, ready, prometheus, pprof and others add pages to a Site
// while a plan starts, and show it when the plan begins to serve. All
// directives that use the same address share one listener, which stays open
// over reloads. DNS queries do not pass through this package.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/observe/status"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/health"
)

// ParseAddress checks the text of an address: HOST:PORT, or :PORT for every
// address of the machine. PORT is a number or the name of a service.
func ParseAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("want an address and a port such as :8080, got %q", text)
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return fmt.Errorf("want a port of 0..65535, got %q", port)
	}
	return nil
}

// A Site is the set of pages of one plan at one address.
type Site struct {
	listener *listener
	tls      *tlsFiles // nil for plain HTTP
	mu       sync.Mutex
	pages    map[string]http.Handler
}

// Open returns the site at addr of the plan that is starting: HOST:PORT or unix:PATH. The
// listener is open when Open returns, but serves the old plan's pages, if there are any,
// until Show. If files is not zero the site is served with HTTPS only; all
// callers with the same addr must pass the same files.
func Open(s *config.Start, addr string, files TLS) (*Site, error) {
	return open(s, addr, files, reports{log: slog.New(slog.DiscardHandler)})
}

// reports is where problems of a site are told.
type reports struct {
	log    *slog.Logger
	health *health.Board
	late   bool // an address that cannot be opened is reported, and opened later
}

// open is Open.
func open(s *config.Start, addr string, files TLS, to reports) (*Site, error) {
	// A plan that keeps a listener must keep these as well, so that they do not stop with the old plan.
	conns, _ := config.Keep(s, nil, func() (*status.Connections, error) {
		return status.NewConnections(s.Descriptors, s.Metrics), nil
	})
	l, err := config.Keep(s, addr, func() (*listener, error) { return listen(s, addr, conns, to) })
	if err != nil {
		return nil, err
	}
	site, err := config.Keep(s, config.InPlan{Plan: s, Key: addr}, func() (site *Site, err error) {
		site = &Site{listener: l, pages: map[string]http.Handler{}}
		if files != (TLS{}) {
			site.tls, err = newTLSFiles(files, s.Crypto, to)
		}
		return site, err
	})
	if err != nil || site.files() == files {
		return site, err
	}

	mode := "without TLS"
	if site.tls != nil {
		mode = "with TLS of its own"
	}
	return site, fmt.Errorf("another directive of this Corefile serves %s %s: set another address for one of them",
		addr, mode)
}

func (s *Site) files() TLS {
	if s.tls == nil {
		return TLS{}
	}
	return s.tls.names
}

// Handle sets the page for path, replacing an earlier one. A path that ends in
// a slash also matches all paths below it that have no page of their own.
func (s *Site) Handle(path string, page http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[path] = page
}

// Show makes the listener serve s.
func (s *Site) Show() {
	s.listener.site.Store(s)
	s.listener.serve()
}

// ShowFirst is Show if the listener serves no site yet, for pages that are
// valid while the process's first plan starts. While another process serves the
// address, it does nothing.
func (s *Site) ShowFirst() {
	if !s.listener.taken {
		s.listener.site.CompareAndSwap(nil, s)
	}
}

// Stop implements config.Stopper. The listener stops by itself.
func (s *Site) Stop() {
	if s.tls != nil {
		s.tls.end()
	}
}

func (s *Site) page(path string) http.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if page := s.pages[path]; page != nil {
			return page
		}
		i := strings.LastIndexByte(strings.TrimSuffix(path, "/"), '/')
		if i < 0 {
			return nil
		}
		path = path[:i+1]
	}
}

// Addr returns the listener's address, with the actual port if port 0 was
// requested. It is the text of an address that cannot be opened yet.
func (s *Site) Addr() string {
	if socket := s.listener.opened(); socket != nil {
		return socket.Addr().String()
	}
	return s.listener.addr
}

// lateRetry is the time between two attempts to open an address.
const lateRetry = 5 * time.Second

// A listener is one address and the goroutine that serves it.
type listener struct {
	addr    string
	open    func() (net.Listener, error)
	log     *slog.Logger
	conns   *status.Connections
	taken   bool // from the process that this one replaces
	server  *http.Server
	site    atomic.Pointer[Site]
	serving sync.Once
	running sync.WaitGroup
	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc

	mu     sync.Mutex
	socket net.Listener // nil while the address cannot be opened
}

func listen(
	s *config.Start, addr string, conns *status.Connections, to reports,
) (*listener, error) {
	socket, taken, err := s.Listen(addr)
	switch {
	case err != nil && !to.late:
		return nil, listenError(addr, err)
	case err != nil:
		to.log.Warn("Pages are not served, trying again", "interval", lateRetry, "error", listenError(addr, err))
	}

	l := &listener{addr: addr, open: s.Opener(addr), log: to.log, conns: conns, taken: taken, socket: socket}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.server = status.NewServer(l)
	if !taken {
		l.serve()
	}
	return l, nil
}

// serve starts to accept connections.
func (l *listener) serve() {
	l.serving.Do(func() {
		l.running.Go(func() {
			if socket := l.await(); socket != nil {
				_ = l.server.Serve(tlsListener{l.conns.Limit(socket), l}) // returns after Stop
			}
		})
	})
}

// await returns the socket as soon as the address can be opened: an earlier process, as in a rolling
// restart on one node, may use it for a while. It returns nil after Stop.
func (l *listener) await() net.Listener {
	for l.opened() == nil && clock.Sleep(l.ctx, lateRetry) {
		l.tryOpen()
	}
	return l.opened()
}

func (l *listener) tryOpen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return
	}
	if socket, err := l.open(); err == nil {
		l.socket = socket
		l.log.Info("Pages are served", "address", l.addr)
	}
}

// opened returns the socket, or nil.
func (l *listener) opened() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket
}

// Socket implements config.Socket.
func (l *listener) Socket() (string, *os.File, error) {
	socket := l.opened()
	if socket == nil {
		return l.addr, nil, nil
	}
	f, err := socket.(interface{ File() (*os.File, error) }).File()
	return l.addr, f, err
}

func listenError(addr string, err error) error {
	_, unix := config.SocketPath(addr)
	switch {
	case unix: // the error has the path
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listening on %s: address already in use: "+
			"stop the process that uses it or choose another address", addr)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("listening on %s: permission denied: "+
			"choose a port above 1023 or add the capability NET_BIND_SERVICE", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("listening on %s: this machine does not have the address", addr)
	}
	return fmt.Errorf("listening on %s: %w", addr, err)
}

// Stop closes the address and its connections.
func (l *listener) Stop() {
	_ = l.server.Close()
	l.cancel()
	if socket := l.opened(); socket != nil {
		_ = socket.Close() // server does not know it before serve
	}
	l.running.Wait()
	config.RemoveSocket(l.addr)
}

func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	site := l.site.Load()
	switch {
	case site == nil:
		http.NotFound(w, r)
	case !site.tls.allows(r.TLS):
		// The connection was opened before this plan was served.
		w.Header().Set("Connection", "close")
		http.Error(w, "connect again, with TLS and a client certificate if the server requires it",
			http.StatusForbidden)
	default:
		if page := site.page(r.URL.Path); page != nil {
			page.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	}
}

// A tlsListener accepts TLS connections if the current site has TLS.
type tlsListener struct {
	net.Listener
	l *listener
}

func (c tlsListener) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if site := c.l.site.Load(); err == nil && site != nil && site.tls != nil {
		conn = tls.Server(conn, site.tls.config)
	}
	return conn, err
}
