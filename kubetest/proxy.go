package kubetest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// errCut ends a response early.
var errCut = errors.New("cut by the proxy")

// Faults are the faults of a [Proxy]. The zero value has none. Several faults apply
// in the order of the fields.
type Faults struct {
	// Only limits the other faults to these resources ("endpointslices"); if it
	// is empty, they apply to every request.
	Only []string
	// Stall accepts requests without responding, and passes no byte of open
	// streams: the half-open watch. Requests and streams continue when it ends.
	Stall bool
	// Delay is a delay before each response and before each chunk of a watch.
	Delay time.Duration
	// Unauthorized responds 401.
	Unauthorized bool
	// Forbidden responds 403 for these resources.
	Forbidden []string
	// Absent responds 404 for these group versions ("apps/v1"), as an API server that does not serve them.
	Absent []string
	// Garbage responds 200 with the requested content type and invalid bytes.
	Garbage bool
	// CutAfter closes the connection after this many bytes of a body, and an open
	// stream beyond it at its next chunk. Zero cuts nothing.
	CutAfter int
	// Lose removes the events that contain this text from watches.
	Lose string
}

// A Proxy is an HTTP reverse proxy in front of a [Server], on a loopback port,
// without TLS: "kubectl proxy" with faults. It responds 502 while the server's
// API is stopped.
type Proxy struct {
	ln     net.Listener
	dir    string // for Kubeconfig
	server *http.Server
	target atomic.Pointer[target]
	paths  *apirequest.RequestInfoFactory
	quiet  *log.Logger
	faults atomic.Pointer[faultState]
	served chan struct{} // closed when the accepting goroutine has ended

	mu       sync.Mutex
	closed   bool
	open     map[*exchange]struct{}
	handlers sync.WaitGroup
}

// A target is the server behind a proxy.
type target struct {
	*url.URL
	transport *http.Transport
}

// A faultState is the present faults, and a channel that is closed when they are
// replaced.
type faultState struct {
	Faults
	over chan struct{}
}

// An exchange is a request that the proxy is serving.
type exchange struct {
	*apirequest.RequestInfo
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// NewProxy starts a proxy in front of srv, without faults. It survives stops and
// starts of srv's API.
func NewProxy(srv *Server) (*Proxy, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the proxy: %w", err)
	}

	p := &Proxy{
		ln:  ln,
		dir: srv.dir,
		paths: &apirequest.RequestInfoFactory{
			APIPrefixes:          sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api"),
		},
		quiet:  log.New(io.Discard, "", 0),
		served: make(chan struct{}),
		open:   map[*exchange]struct{}{},
	}

	p.faults.Store(&faultState{over: make(chan struct{})})
	if err := p.SetServer(srv); err != nil {
		return nil, errors.Join(err, ln.Close())
	}

	p.server = &http.Server{Handler: p, ErrorLog: p.quiet}
	go func() {
		defer close(p.served)
		p.server.Serve(ln) // returns after Close
	}()
	return p, nil
}

// SetServer sends the next requests to another server, as if the server had been
// replaced. Requests in progress continue until Cut.
func (p *Proxy) SetServer(srv *Server) error {
	u, err := url.Parse(srv.URL())
	if err != nil {
		return fmt.Errorf("parsing the server's URL: %w", err)
	}
	// With HTTP/1.1 each stream has its own connection, which can be cut.
	old := p.target.Swap(&target{u,
		&http.Transport{TLSClientConfig: &tls.Config{RootCAs: srv.pool()}, DisableCompression: true}})
	if old != nil {
		old.transport.CloseIdleConnections()
	}
	return nil
}

// URL returns http://127.0.0.1:port.
func (p *Proxy) URL() string { return "http://" + p.ln.Addr().String() }

// Config returns a new client configuration that goes through the proxy.
func (p *Proxy) Config() *rest.Config { return &rest.Config{Host: p.URL(), QPS: -1} }

// Kubeconfig writes a kubeconfig for the proxy into the server's directory and
// returns its path.
func (p *Proxy) Kubeconfig() (string, error) {
	path := filepath.Join(p.dir, fmt.Sprintf("kubeconfig-proxy-%d", p.ln.Addr().(*net.TCPAddr).Port))
	if err := writeKubeconfig(path, &clientcmdapi.Cluster{Server: p.URL()}); err != nil {
		return "", fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return path, nil
}

// Set replaces the faults at once, for waiting requests and open streams, too.
// Set(Faults{}) removes them.
func (p *Proxy) Set(f Faults) {
	f.Only, f.Forbidden = slices.Clone(f.Only), slices.Clone(f.Forbidden)
	close(p.faults.Swap(&faultState{Faults: f, over: make(chan struct{})}).over)
}

// Cut aborts every request in progress. Later requests are served.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range p.open {
		x.cancel(errCut)
	}
}

// Close stops the proxy, aborts the requests in progress and waits until they have
// ended. A second Close does nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.server.Close()
	<-p.served
	p.handlers.Wait()
	p.target.Load().transport.CloseIdleConnections()
}

// ServeHTTP serves one request, with the present faults.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := p.paths.NewRequestInfo(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	x := p.register(r.Context(), info)
	defer p.unregister(x)
	if x.wait(p, true) != nil {
		panic(http.ErrAbortHandler) // closes the connection without a response
	}
	f := p.faults.Load().affecting(x)
	switch {
	case f.Unauthorized:
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	case slices.Contains(f.Forbidden, x.Resource):
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, x.Resource+" is forbidden")
	case slices.Contains(f.Absent, x.APIGroup+"/"+x.APIVersion):
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case f.Garbage:
		garble(w, r)
	default:
		p.forward(x).ServeHTTP(w, r.WithContext(x.ctx))
	}
}

// register adds an exchange to the open ones. After Close it is already cut.
func (p *Proxy) register(ctx context.Context, info *apirequest.RequestInfo) *exchange {
	x := &exchange{RequestInfo: info}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		x.cancel(errCut)
	} else {
		p.handlers.Add(1)
		p.open[x] = struct{}{}
	}
	return x
}

// unregister removes an exchange.
func (p *Proxy) unregister(x *exchange) {
	x.cancel(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.open[x]; ok {
		delete(p.open, x)
		p.handlers.Done()
	}
}

// affecting returns the faults that apply to an exchange.
func (s *faultState) affecting(x *exchange) Faults {
	if len(s.Only) > 0 && !slices.Contains(s.Only, x.Resource) {
		return Faults{}
	}
	return s.Faults
}

// wait blocks during a stall and, if delay is set, for the delay, which ends early
// if the faults change. It returns an error if the exchange is cut.
func (x *exchange) wait(p *Proxy, delay bool) error {
	for {
		state := p.faults.Load()
		f := state.affecting(x)
		var after <-chan time.Time
		switch {
		case f.Stall: // ends with other faults or a cut
		case delay && f.Delay > 0:
			after = time.After(f.Delay)
		default:
			return context.Cause(x.ctx)
		}
		select {
		case <-after:
			return context.Cause(x.ctx)
		case <-state.over:
		case <-x.ctx.Done():
			return context.Cause(x.ctx)
		}
	}
}

// forward returns a reverse proxy for one exchange. The faults apply to the body of
// its response.
func (p *Proxy) forward(x *exchange) *httputil.ReverseProxy {
	to := p.target.Load()
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to.URL)
			if x.Verb == "watch" {
				r.Out.Header.Del("Accept-Encoding") // for events
			}
		},
		Transport:     to.transport,
		FlushInterval: -1,
		ErrorLog:      p.quiet,
		ErrorHandler:  unreachable,
		ModifyResponse: func(r *http.Response) error {
			if x.Verb == "watch" {
				r.Body = &events{ReadCloser: r.Body, p: p, x: x,
					inProtobuf: strings.Contains(r.Header.Get("Content-Type"), "protobuf")}
			}
			r.Body = &body{ReadCloser: r.Body, p: p, x: x}
			return nil
		},
	}
}

// unreachable responds for a server that cannot be reached. A cut exchange gets no
// response.
func unreachable(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	http.Error(w, err.Error(), http.StatusBadGateway)
}

// A body is the body of a response, with faults.
type body struct {
	io.ReadCloser
	p    *Proxy
	x    *exchange
	sent int // bytes passed
}

// Read reads from the server, as the faults allow.
func (b *body) Read(buf []byte) (int, error) {
	if err := b.x.wait(b.p, false); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(buf)
	// A stall may have begun during the read.
	if err := b.x.wait(b.p, n > 0 && b.x.Verb == "watch"); err != nil {
		return 0, err
	}
	if limit := b.p.faults.Load().affecting(b.x).CutAfter; limit > 0 && b.sent+n >= limit {
		n, err = max(0, limit-b.sent), errCut
	}
	b.sent += n
	return n, err
}

// refuse responds with a Status, as the API server does.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`+"\n", message, reason, code)
}

// garble responds with bytes that are neither JSON nor protobuf, with the content
// type that the client prefers.
func garble(w http.ResponseWriter, r *http.Request) {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	if first == "" || strings.Contains(first, "*") {
		first = "application/json"
	}
	w.Header().Set("Content-Type", first)
	io.WriteString(w, strings.Repeat("\xff\xfe\x00<garbage>", 64))
}
