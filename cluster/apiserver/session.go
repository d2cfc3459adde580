package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/sys/redact"
)

const (
	requestTimeout = 15 * time.Second
	responseLimit  = 16 << 20 // bytes; etcd's limit for one object is 1.5 MB
)

// A Session sends single requests to one API server, in JSON. It is for commands; Run
// follows changes. Its methods may be called from several goroutines.
type Session struct {
	http   *http.Client
	base   *url.URL
	origin string // of the address and the credentials
}

// A ResponseError is an error response of the API server.
type ResponseError struct {
	Method, Path string // of the request, without parameters
	Code         int    // of HTTP
	Message      string
}

func (e *ResponseError) Error() string {
	if e.Method == http.MethodGet {
		return fmt.Sprintf("reading %s from the API server: %s", e.Path, e.Message)
	}
	return fmt.Sprintf("%s %s: %s", e.Method, e.Path, e.Message)
}

// IsNotFound reports whether err is the response that an object does not exist.
func IsNotFound(err error) bool {
	e, ok := errors.AsType[*ResponseError](err)
	return ok && e.Code == http.StatusNotFound
}

// NewSession reads the options' kubeconfig or service account. It sends no request.
func NewSession(o cluster.Options) (*Session, error) {
	config, err := restConfig(o)
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent()
	config.Timeout = requestTimeout
	origin := "the service account of this pod"
	switch {
	case o.Kubeconfig != "":
		origin = "kubeconfig " + o.Kubeconfig
	case o.Endpoint != "":
		origin = "the endpoint " + o.Endpoint
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", origin, err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", origin, err)
	}
	return &Session{client, base, origin}, nil
}

// Close closes the connections.
func (s *Session) Close() { utilnet.CloseIdleConnectionsFor(s.http.Transport) }

// Get reads an object or a list. path is the path of its URL: /api/v1/namespaces/shop/pods/web,
// or with parameters, which are encoded: /api/v1/pods?limit=500.
func (s *Session) Get(ctx context.Context, path string) ([]byte, error) {
	return s.Do(ctx, http.MethodGet, path, "", nil)
}

// Read decodes an object or a list into a value. what is the object in the error of one that cannot be decoded.
func (s *Session) Read(ctx context.Context, path, what string, into any) error {
	text, err := s.Get(ctx, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading %s: %w", what, err)
	}
	return nil
}

// Do sends a request and returns the body of the response. The error for a response other
// than success is a *ResponseError.
func (s *Session) Do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	path, parameters, _ := strings.Cut(path, "?")
	target := s.base.JoinPath(path)
	target.RawQuery = parameters
	request, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}

	request.Header.Set("Accept", "application/json, */*;q=0.5") // a pod's pages have other types
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}

	response, err := s.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server %s of %s: %w",
			redact.URL(s.base.String()), s.origin, redact.Error(err))
	}
	defer response.Body.Close()

	text, err := io.ReadAll(io.LimitReader(response.Body, responseLimit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s from the API server: %w", path, err)
	case len(text) > responseLimit:
		return nil, fmt.Errorf("reading %s from the API server: larger than %d MB", path, responseLimit>>20)
	case response.StatusCode < 300 && strings.HasPrefix(response.Header.Get("Content-Type"), "text/html"):
		return nil, fmt.Errorf("reading %s: got a web page, want JSON: "+
			"is %s of %s the address of an API server, and not of a proxy that wants a login?", path, redact.URL(s.base.String()), s.origin)
	case response.StatusCode < 200 || response.StatusCode > 299:
		var status struct{ Message string }
		if json.Unmarshal(text, &status) != nil || status.Message == "" {
			status.Message = response.Status
		}
		return nil, &ResponseError{method, path, response.StatusCode, status.Message}
	}
	return text, nil
}
