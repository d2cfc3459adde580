package apiserver

import (
	"context"
	"net/http"

	"github.com/seamark/seamark/cluster"
)

// Fetch reads one object or list of the API server, as JSON: see Session.Get. It is for
// commands that read once; Run follows changes.
func Fetch(ctx context.Context, o cluster.Options, path string) ([]byte, error) {
	s, err := NewSession(o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Get(ctx, path)
}

// Review creates an object that the API server does not store, such as a
// SelfSubjectAccessReview, and returns it with its status.
func Review(ctx context.Context, o cluster.Options, path string, object []byte) ([]byte, error) {
	s, err := NewSession(o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Do(ctx, http.MethodPost, path, "application/json", object)
}
