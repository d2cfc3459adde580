package adminclient

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"
)

// SetDial replaces how connections are opened. name is the server's in errors and messages.
func (c *Client) SetDial(name string, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	transport := c.http.Transport.(*http.Transport)
	c.name, c.forwarded, transport.DialContext, transport.Proxy = name, true, dial, nil
}

// proxyCookie is the cookie with a Proxy's secret.
const proxyCookie = "seamark-ui"

// A Proxy serves a server's web page to one browser of this machine, and adds the token. A
// request must have the Proxy's Host, against DNS rebinding, and a secret cookie, against other
// users of the machine. The browser gets the cookie with the first request for URL.
type Proxy struct {
	// Host is the address that the proxy is served at: IP:PORT. Set it before the first
	// request.
	Host string

	once, cookie string
	used         atomic.Bool
	proxy        *httputil.ReverseProxy
}

// NewProxy returns a proxy to the server of c.
func (c *Client) NewProxy() *Proxy {
	target := *c.base
	p := &Proxy{once: rand.Text(), cookie: rand.Text()}
	p.proxy = &httputil.ReverseProxy{
		Transport: c.http.Transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&target)
			r.Out.Header.Del("Cookie") // the secret is for this proxy
			r.Out.Header.Del("Authorization")
			if c.token != "" {
				r.Out.Header.Set("Authorization", "Bearer "+c.token)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("WWW-Authenticate") // the browser cannot know the token
			return nil
		},
		FlushInterval: -1, // of the tail
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("reading from %s: %v", c.Address(), err), http.StatusBadGateway)
		},
	}
	return p
}

// URL returns the address to open, which can be opened once.
func (p *Proxy) URL() string { return "http://" + p.Host + "/open/" + p.once }

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	once, opens := strings.CutPrefix(r.URL.Path, "/open/")
	switch {
	case r.Host != p.Host:
		http.Error(w, "this address is not served", http.StatusForbidden)
	case p.allowed(r) && opens:
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case p.allowed(r):
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // of a tail: the server has one
		p.proxy.ServeHTTP(w, r)
	case opens && r.Method == http.MethodGet &&
		subtle.ConstantTimeCompare([]byte(once), []byte(p.once)) == 1 && p.used.CompareAndSwap(false, true):
		http.SetCookie(w, &http.Cookie{
			Name: proxyCookie, Value: p.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		})
		http.Redirect(w, r, "/", http.StatusSeeOther)
	default:
		http.Error(w, "open the URL that seamark ui has printed, which works once;"+
			" to open the page again, run seamark ui again", http.StatusForbidden)
	}
}

// allowed reports whether a request has the cookie.
func (p *Proxy) allowed(r *http.Request) bool {
	for _, c := range r.CookiesNamed(proxyCookie) {
		if subtle.ConstantTimeCompare([]byte(c.Value), []byte(p.cookie)) == 1 {
			return true
		}
	}
	return false
}
