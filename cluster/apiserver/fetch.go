package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/seamark/seamark/cluster"
)

const (
	fetchTimeout = 15 * time.Second
	fetchLimit   = 16 << 20 // bytes; etcd's limit for one object is 1.5 MB
)

// Fetch reads one object or list of the API server, as JSON. path is that of its URL:
// /api/v1/namespaces/shop/pods/web, or with parameters, which are encoded:
// /api/v1/pods?limit=500. It is for commands that read once; Run follows changes. An error
// response of the API server is a *ResponseError.
func Fetch(ctx context.Context, o cluster.Options, path string) ([]byte, error) {
	return request(ctx, o, http.MethodGet, path, nil)
}

// Review creates an object that the API server does not store, such as a
// SelfSubjectAccessReview, and returns it with its status.
func Review(ctx context.Context, o cluster.Options, path string, object []byte) ([]byte, error) {
	return request(ctx, o, http.MethodPost, path, object)
}

func request(ctx context.Context, o cluster.Options, method, path string, body []byte) ([]byte, error) {
	config, err := restConfig(o)
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent()
	config.Timeout = fetchTimeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	path, parameters, _ := strings.Cut(path, "?")
	base = base.JoinPath(path)
	base.RawQuery = parameters
	request, err := http.NewRequestWithContext(ctx, method, base.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err // it names the method and the URL
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, fetchLimit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s from the API server: %w", path, err)
	case len(text) > fetchLimit:
		return nil, fmt.Errorf("reading %s from the API server: larger than %d MB", path, fetchLimit>>20)
	case response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated:
		var status struct{ Message string }
		if json.Unmarshal(text, &status) != nil || status.Message == "" {
			status.Message = response.Status
		}
		return nil, &ResponseError{Path: path, Code: response.StatusCode, Message: status.Message}
	}
	return text, nil
}

// A ResponseError is an error response of the API server.
type ResponseError struct {
	Path    string
	Code    int // of HTTP
	Message string
}

func (e *ResponseError) Error() string {
	return fmt.Sprintf("reading %s from the API server: %s", e.Path, e.Message)
}
