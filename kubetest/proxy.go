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

// errCut ends a response that is to break off.
var errCut = errors.New("cut by the proxy")

// Faults are what a [Proxy] does wrong. The zero value is none. If several
// apply, a request meets them in the order of the fields.
type Faults struct {
	// Only limits the other faults to these resources ("endpointslices"); if
	// it is empty they meet every request.
	Only []string
	// Stall accepts requests and says nothing, and lets nothing through on
	// streams that are open: the half-open watch. When it ends, all go on as if
	// nothing had been.
	Stall bool
	// Delay is a wait before each answer, and before each piece of a watch.
	Delay time.Duration
	// Unauthorized answers 401.
	Unauthorized bool
	// Forbidden answers 403 for these resources.
	Forbidden []string
	// Garbage answers 200, the content type that was asked for, and bytes that
	// are no such thing.
	Garbage bool
	// CutAfter closes the connection when that many bytes of a body went
	// through; an open stream that is past it breaks off at its next piece.
	// Zero cuts nothing.
	CutAfter int
}

// A Proxy is an HTTP reverse proxy in front of a [Server], on a loopback port,
// without TLS: "kubectl proxy" with faults. While the server's API is stopped
// it answers 502.
type Proxy struct {
	ln        net.Listener
	target    *url.URL
	dir       string // for Kubeconfig
	server    *http.Server
	transport *http.Transport
	paths     *apirequest.RequestInfoFactory
	quiet     *log.Logger
	faults    atomic.Pointer[faultState]
	served    chan struct{} // closed when the accepting goroutine has ended

	mu       sync.Mutex
	closed   bool
	open     map[*exchange]struct{}
	handlers sync.WaitGroup
}

// A faultState is the faults of some time, and a channel that is closed when
// others take their place.
type faultState struct {
	Faults
	over chan struct{}
}

// An exchange is a request on its way through the proxy.
type exchange struct {
	*apirequest.RequestInfo
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// NewProxy starts a proxy in front of srv, without faults. It keeps working
// when srv's API stops and starts.
func NewProxy(srv *Server) (*Proxy, error) {
	target, err := url.Parse(srv.URL())
	if err != nil {
		return nil, fmt.Errorf("parsing the server's URL: %w", err)
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the proxy: %w", err)
	}
	p := &Proxy{
		ln:     ln,
		target: target,
		dir:    srv.dir,
		paths: &apirequest.RequestInfoFactory{
			APIPrefixes:          sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api"),
		},
		// HTTP/1.1 gives each stream a connection of its own to break.
		transport: &http.Transport{
			TLSClientConfig:    &tls.Config{RootCAs: srv.certs.pool()},
			DisableCompression: true,
		},
		quiet:  log.New(io.Discard, "", 0),
		served: make(chan struct{}),
		open:   map[*exchange]struct{}{},
	}
	p.faults.Store(&faultState{over: make(chan struct{})})
	p.server = &http.Server{Handler: p, ErrorLog: p.quiet}
	go func() {
		defer close(p.served)
		p.server.Serve(ln) // it ends by Close alone
	}()
	return p, nil
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

// Set puts these faults in the place of those before, at once, for requests
// that wait and streams that are open too. Set(Faults{}) heals.
func (p *Proxy) Set(f Faults) {
	f.Only, f.Forbidden = slices.Clone(f.Only), slices.Clone(f.Forbidden)
	close(p.faults.Swap(&faultState{Faults: f, over: make(chan struct{})}).over)
}

// Cut breaks off every request that is under way. New ones are welcome.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range p.open {
		x.cancel(errCut)
	}
}

// Close stops the proxy, cuts what is under way and waits for its end. A
// second Close does nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.server.Close()
	<-p.served
	p.handlers.Wait()
	p.transport.CloseIdleConnections()
}

// ServeHTTP serves one request, or fails it as the faults have it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := p.paths.NewRequestInfo(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	x := p.begin(r.Context(), info)
	defer p.end(x)
	if x.wait(p, true) != nil {
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
	f := p.faults.Load().of(x)
	switch {
	case f.Unauthorized:
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	case slices.Contains(f.Forbidden, x.Resource):
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, x.Resource+" is forbidden")
	case f.Garbage:
		garble(w, r)
	default:
		p.forward(x).ServeHTTP(w, r.WithContext(x.ctx))
	}
}

// begin notes an exchange; after Close it is cut already.
func (p *Proxy) begin(ctx context.Context, info *apirequest.RequestInfo) *exchange {
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

// end forgets an exchange.
func (p *Proxy) end(x *exchange) {
	x.cancel(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.open[x]; ok {
		delete(p.open, x)
		p.handlers.Done()
	}
}

// of returns the faults that concern an exchange.
func (s *faultState) of(x *exchange) Faults {
	if len(s.Only) > 0 && !slices.Contains(s.Only, x.Resource) {
		return Faults{}
	}
	return s.Faults
}

// wait returns when no stall holds the exchange up and, if it asks for that,
// its delay is over or was called off; or with an error, when it is cut.
func (x *exchange) wait(p *Proxy, delay bool) error {
	for {
		state := p.faults.Load()
		f := state.of(x)
		var after <-chan time.Time
		switch {
		case f.Stall: // only other faults or a cut end it
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

// forward returns what passes an exchange on to the server and brings back a
// response whose body the faults apply to.
func (p *Proxy) forward(x *exchange) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(p.target) },
		Transport:     p.transport,
		FlushInterval: -1,
		ErrorLog:      p.quiet,
		ErrorHandler:  unreachable,
		ModifyResponse: func(r *http.Response) error {
			r.Body = &body{ReadCloser: r.Body, p: p, x: x}
			return nil
		},
	}
}

// unreachable answers when the server did not. A cut is no answer.
func unreachable(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	http.Error(w, err.Error(), http.StatusBadGateway)
}

// A body is a response's body that faults happen to.
type body struct {
	io.ReadCloser
	p    *Proxy
	x    *exchange
	sent int // bytes that went through
}

// Read reads on, as slowly and as far as the faults let it.
func (b *body) Read(buf []byte) (int, error) {
	if err := b.x.wait(b.p, false); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(buf)
	// What came in may have met a stall that began while this was waiting.
	if err := b.x.wait(b.p, n > 0 && b.x.Verb == "watch"); err != nil {
		return 0, err
	}
	if limit := b.p.faults.Load().of(b.x).CutAfter; limit > 0 && b.sent+n >= limit {
		n, err = max(0, limit-b.sent), errCut
	}
	b.sent += n
	return n, err
}

// refuse answers with a Status, as the API server does.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`+"\n", message, reason, code)
}

// garble answers with what is neither JSON nor protobuf, under the name of
// what the client likes best.
func garble(w http.ResponseWriter, r *http.Request) {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	if first == "" || strings.Contains(first, "*") {
		first = "application/json"
	}
	w.Header().Set("Content-Type", first)
	io.WriteString(w, strings.Repeat("\xff\xfe\x00<garbage>", 64))
}
