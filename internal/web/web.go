// Package web is the HTTP side of the server: the addresses on which operators
// and probes look at it. Directives (health, ready, prometheus, pprof) put pages on a
// Site while a plan starts, and show it when the plan begins to serve. An
// address is bound once, whatever asks for it, and stays bound over reloads.
// No query ever comes here.
package web

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seamark/seamark/config"
)

// What a client of a probe or a scrape may take: they are on the same network.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = time.Second      // pages read none, but what comes is taken off the connection
	writeTimeout  = 30 * time.Second // of a whole page, to a reader as slow as that
	idleTimeout   = 2 * time.Minute
)

// ParseAddress checks the text of an address: HOST:PORT or :PORT, which is
// every address of the machine.
func ParseAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("want an address and a port such as :8080, got %q", text)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("want a port of 0..65535, got %q", port)
	}
	return nil
}

// A Site is the pages of one plan at one address.
type Site struct {
	listener *listener
	secure   *secure // nil: plain HTTP
	mu       sync.Mutex
	pages    map[string]http.Handler
}

type siteKey struct {
	plan *config.Start
	addr string
}

// At gives the site at addr of the plan that is being started. The address is
// bound when At returns, but the old plan's pages, if there are any, go on
// being served until Show. The error is a sentence for the operator.
func At(s *config.Start, addr string) (*Site, error) { return at(s, addr, TLS{}) }

// AtTLS is At for a site that is served with HTTPS and nothing else. All pages
// of an address are served in one way.
func AtTLS(s *config.Start, addr string, files TLS) (*Site, error) { return at(s, addr, files) }

func at(s *config.Start, addr string, files TLS) (*Site, error) {
	l, err := config.Keep(s, listenerKey{addr}, func() (*listener, error) { return listen(addr) })
	if err != nil {
		return nil, err
	}
	site, err := config.Keep(s, siteKey{s, addr}, func() (site *Site, err error) {
		site = &Site{listener: l, pages: map[string]http.Handler{}}
		if files != (TLS{}) {
			site.secure, err = newSecure(files)
		}
		return site, err
	})
	if err == nil && site.files() != files {
		err = fmt.Errorf("another directive of this Corefile serves %s %s: give one of them another address", addr, site.way())
	}
	return site, err
}

func (s *Site) files() TLS {
	if s.secure == nil {
		return TLS{}
	}
	return s.secure.files
}

func (s *Site) way() string {
	if s.secure == nil {
		return "without TLS"
	}
	return "with TLS of its own"
}

// Handle puts a page at path, in place of whatever was there. A path that ends
// in a slash also has everything below it that has no page of its own.
func (s *Site) Handle(path string, page http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[path] = page
}

// Show makes the site the one that its address serves.
func (s *Site) Show() { s.listener.site.Store(s) }

// ShowFirst is Show if the address serves nothing yet: what is true of the
// process while its first plan starts.
func (s *Site) ShowFirst() { s.listener.site.CompareAndSwap(nil, s) }

// Stop is for config.Keep: a site has nothing to end, its listener has.
func (s *Site) Stop() {}

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

// Addr is what was bound: with port 0, the port that was found.
func (s *Site) Addr() net.Addr { return s.listener.tcp.Addr() }

type listenerKey struct{ addr string }

// A listener is one bound address and the goroutine that serves it.
type listener struct {
	tcp    net.Listener
	server http.Server
	site   atomic.Pointer[Site]
	served chan struct{} // closed when the goroutine has ended
}

func listen(addr string) (*listener, error) {
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, refused(addr, err)
	}
	l := &listener{tcp: tcp, served: make(chan struct{})}
	l.server = http.Server{
		Handler:           l,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          log.New(io.Discard, "", 0), // of clients that go away
	}
	go func() {
		defer close(l.served)
		_ = l.server.Serve(connections{tcp, l}) // ends with Stop
	}()
	return l, nil
}

func refused(addr string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("cannot listen on %s: the port is taken: stop what uses it or give another address here", addr)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("cannot listen on %s: no permission: give a port above 1023 or the capability NET_BIND_SERVICE", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("cannot listen on %s: this machine does not have the address", addr)
	}
	return fmt.Errorf("cannot listen on %s: %w", addr, err)
}

// Stop closes the address and its connections.
func (l *listener) Stop() {
	_ = l.server.Close()
	<-l.served
}

func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Of this page, and not of the server: some take longer and say so.
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if r.Body != http.NoBody { // without one, reading goes on to see whether the client is still there
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	site := l.site.Load()
	switch {
	case site == nil:
		http.NotFound(w, r)
	case !site.secure.allows(r.TLS):
		// The connection is older than this plan.
		w.Header().Set("Connection", "close")
		http.Error(w, "connect again, with TLS and a certificate if that is asked for", http.StatusForbidden)
	default:
		if page := site.page(r.URL.Path); page != nil {
			page.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	}
}

// connections are those of a listener, in the way of the site that it shows.
type connections struct {
	net.Listener
	l *listener
}

func (c connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if site := c.l.site.Load(); err == nil && site != nil && site.secure != nil {
		conn = tls.Server(conn, site.secure.config)
	}
	return conn, err
}
