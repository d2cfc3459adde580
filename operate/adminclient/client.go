// Package adminclient is a client of the HTTP API of the directive admin, for the commands
// that look into a running server. It bounds what it reads, and accepts the answers of
// servers of other versions: unknown members are ignored.
package adminclient

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/seamark/seamark/sys/redact"
)

// Default is the address of a server that sets none.
const Default = "http://localhost:8053"

// TokenVariable is the environment variable with a token.
const TokenVariable = "SEAMARK_ADMIN_TOKEN"

const (
	maxResponse = 64 << 20 // bytes of a response that is read as a whole
	maxError    = 64 << 10 // bytes of an error response
	maxLine     = 1 << 20  // bytes of a line of a response that is read line by line
	// tailSilence is the longest time between two lines of a tail: the server sends an
	// empty line every 15 seconds.
	tailSilence = 15 * time.Second
)

// A Client sends requests to one server. Its methods may be called from several goroutines.
type Client struct {
	base    *url.URL
	name    string // unix:PATH, or ""
	token   string
	origin  string // of the token, for errors
	timeout time.Duration
	http    *http.Client

	forwarded bool // by SetDial
}

// New returns a client of the server at an address, URL, HOST:PORT or unix:PATH, with the token
// of the environment. timeout limits each request, and the silence of a stream.
func New(address string, timeout time.Duration) (*Client, error) {
	text := address
	path, unix := strings.CutPrefix(address, "unix:")
	if unix {
		text = "localhost:80"
	}
	scheme := strings.Contains(text, "://")
	if !scheme {
		text = "http://" + text
	}

	base, err := url.Parse(text)
	switch {
	case err != nil || base.Hostname() == "" || base.Scheme != "http" && base.Scheme != "https",
		!scheme && base.Port() == "", unix && path == "":
		return nil, fmt.Errorf("want a URL, HOST:PORT or unix:PATH, got %q", redact.URL(address))
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, fmt.Errorf("%s has a user or parameters: a token is read from a file", redact.URL(address))
	}

	c := &Client{
		base: base, timeout: timeout, token: strings.TrimSpace(os.Getenv(TokenVariable)), origin: TokenVariable,
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = maxError
	if unix {
		c.name, transport.Proxy = address, nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	// A request that follows a redirect would have the token.
	keep := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &http.Client{Transport: transport, CheckRedirect: keep}
	return c, nil
}

// ReadToken replaces the token by that in a file.
func (c *Client) ReadToken(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the token: %w", err)
	}
	if c.token, c.origin = strings.TrimSpace(string(content)), file; c.token == "" {
		return fmt.Errorf("reading the token: %s is empty", file)
	}
	return nil
}

// Close closes the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Address returns the host and port of the server, or unix:PATH.
func (c *Client) Address() string {
	return cmp.Or(c.name, c.base.Host+strings.TrimSuffix(c.base.Path, "/"))
}

// A response is the open response to a successful request.
type response struct {
	*http.Response
	alive  func() // extends the time until which the request ends
	idle   func() // lets it go on for any time until alive is called
	cancel context.CancelCauseFunc
	err    func(error) error // adds the cause to an error of reading
}

func (r *response) close() {
	r.cancel(nil)
	_ = r.Body.Close()
}

var errSilent = errors.New("no data in time")

// do sends a request and returns the response, whose Body must be closed. The request ends
// with an error if the server sends nothing for that long.
func (c *Client) do(
	ctx context.Context, method, path string, parameters url.Values, silence time.Duration,
) (*response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(c.timeout, func() { cancel(errSilent) })
	explained := func(err error) error {
		switch {
		case context.Cause(ctx) == errSilent:
			return fmt.Errorf("%s sent nothing for too long: set a longer --timeout", c.Address())
		case ctx.Err() != nil:
			return ctx.Err()
		}
		return fmt.Errorf("reading from %s: %w", c.Address(), err)
	}
	stop := func(err error) {
		timer.Stop()
		cancel(err)
	}

	target := c.base.JoinPath(path)
	target.RawQuery = parameters.Encode()
	request, err := http.NewRequestWithContext(ctx, method, target.String(), http.NoBody)
	if err != nil {
		stop(nil)
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if method == http.MethodPost {
		request.Header.Set("X-Seamark", "1")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}

	got, err := c.http.Do(request)
	if err != nil {
		defer stop(nil)
		if ctx.Err() != nil {
			return nil, explained(err)
		}
		return nil, c.unreachable(redact.Error(err))
	}

	r := &response{Response: got, cancel: stop, err: explained,
		alive: func() { timer.Reset(silence) }, idle: func() { timer.Stop() }}
	if err := c.check(r); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// unreachable returns the error of a connection, with what to do.
func (c *Client) unreachable(err error) error {
	hint := "start it with --admin " + c.Address() + " or with the directive admin, or set --admin to its address"
	switch text := strings.ToLower(err.Error()); {
	case errors.Is(err, os.ErrPermission):
		hint = "the socket is for root and the user of the server: use sudo"
	case strings.Contains(text, "http response to https client"):
		hint = "the server there has no TLS: write " + c.base.Host + " without https://"
	case !c.forwarded:
	case strings.Contains(text, "forbidden"):
		hint = "you need the permission to create pods/portforward in its namespace"
	case strings.Contains(text, "refused"), strings.Contains(text, "failed to connect"):
		hint = "its pod has no admin there: add -admin=localhost:" + c.base.Port() +
			" to its arguments, or the directive admin to the Corefile, or set --port"
	default:
		hint = "the port forward to its pod failed"
	}
	return fmt.Errorf("no server at %s: %s (%w)", c.Address(), hint, err)
}

// check returns the error of a response that is not the API's, or that is an error.
func (c *Client) check(r *response) error {
	kind := r.Header.Get("Content-Type")
	isJSON := strings.HasPrefix(kind, "application/json") || strings.HasPrefix(kind, "application/x-ndjson")
	if r.StatusCode == http.StatusOK && isJSON {
		return nil
	}

	var body struct{ Error string }
	text, _ := io.ReadAll(io.LimitReader(r.Body, maxError)) // of an error, as far as it can be read
	if json.Unmarshal(text, &body) != nil || body.Error == "" {
		body.Error = r.Status
	}

	switch {
	case r.StatusCode == http.StatusUnauthorized && c.token == "":
		return fmt.Errorf("%s wants a token: set --token-file or the environment variable %s",
			c.Address(), TokenVariable)
	case r.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s refuses the token of %s: it must be that of the option token of its directive admin,"+
			" or a valid one for token_review", c.Address(), c.origin)
	case r.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s refuses the request: %s", c.Address(), body.Error)
	case r.StatusCode == http.StatusServiceUnavailable:
		return fmt.Errorf("%s is busy: %s", c.Address(), body.Error)
	case r.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s has no %s: is it another program, or another version of Seamark?",
			c.Address(), r.Request.URL.Path)
	case r.StatusCode == http.StatusOK:
		return fmt.Errorf("%s is not the address of a directive admin: want JSON, got %q", c.Address(), kind)
	}
	return fmt.Errorf("%s: %s", c.Address(), body.Error)
}

// get sends a request and reads the response into value.
func (c *Client) get(ctx context.Context, method, path string, parameters url.Values, value any) error {
	r, err := c.do(ctx, method, path, parameters, 0)
	if err != nil {
		return err
	}
	defer r.close()
	text, err := io.ReadAll(io.LimitReader(r.Body, maxResponse+1))
	switch {
	case err != nil:
		return r.err(err)
	case len(text) > maxResponse:
		return fmt.Errorf("reading %s from %s: larger than %d MB", path, c.Address(), maxResponse>>20)
	}
	if err := json.Unmarshal(text, value); err != nil {
		return fmt.Errorf("reading %s from %s: is it another version of Seamark? %w", path, c.Address(), err)
	}
	return nil
}

// lines sends a request, calls begun when the server accepts it, and passes each line of
// the response that is not empty to yield.
func (c *Client) lines(
	ctx context.Context, path string, parameters url.Values, silence time.Duration,
	begun func(), yield func(line []byte) error,
) error {
	r, err := c.do(ctx, http.MethodGet, path, parameters, silence)
	if err != nil {
		return err
	}
	defer r.close()
	begun()
	scanner := bufio.NewScanner(r.Body)
	scanner.Buffer(nil, maxLine)
	for r.alive(); scanner.Scan(); r.alive() {
		if len(scanner.Bytes()) == 0 {
			continue
		}
		r.idle() // the reader of the output may wait
		if err := yield(scanner.Bytes()); err != nil {
			return err
		}
	}
	if err := scanner.Err(); err != nil {
		return r.err(err)
	}
	return nil
}
