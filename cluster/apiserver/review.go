package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A User is the user that a token belongs to, as the API server knows it.
type User struct {
	Name   string              `json:"username"`
	UID    string              `json:"uid"`
	Groups []string            `json:"groups"`
	Extra  map[string][]string `json:"extra"`
}

// Authenticate returns the user that a token belongs to, and whether it belongs to one: a
// TokenReview. The token must be for an audience, or for the API server's own if that is
// empty. It needs the permission to create tokenreviews.authentication.k8s.io.
func (s *Session) Authenticate(ctx context.Context, token, audience string) (user User, ok bool, err error) {
	var r struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       struct {
			Token     string   `json:"token"`
			Audiences []string `json:"audiences,omitempty"`
		} `json:"spec"`
	}
	r.APIVersion, r.Kind, r.Spec.Token = "authentication.k8s.io/v1", "TokenReview", token
	if audience != "" {
		r.Spec.Audiences = []string{audience}
	}

	var reply struct {
		Status struct {
			Authenticated bool
			User          User
			Audiences     []string
			Error         string
		}
	}

	if err := s.create(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", r.Kind, r, &reply); err != nil {
		return User{}, false, err
	}

	// An API server that does not know audiences would return none.
	if !reply.Status.Authenticated || audience != "" && !slices.Contains(reply.Status.Audiences, audience) {
		return User{}, false, nil
	}
	return reply.Status.User, true, nil
}

// AllowedURL reports whether a user may use a verb on a path that is not one of a resource: a
// SubjectAccessReview. It needs the permission to create
// subjectaccessreviews.authorization.k8s.io.
func (s *Session) AllowedURL(ctx context.Context, user User, verb, path string) (bool, error) {
	return s.review(ctx, "SubjectAccessReview", reviewSpec{
		User: user.Name, UID: user.UID, Groups: user.Groups, Extra: user.Extra, URL: &urlAttributes{path, verb},
	})
}

// A reviewSpec is what a review of access is about: a user, and a resource or a path.
type reviewSpec struct {
	User     string              `json:"user,omitempty"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
	Resource *Permission         `json:"resourceAttributes,omitempty"`
	URL      *urlAttributes      `json:"nonResourceAttributes,omitempty"`
}

type urlAttributes struct {
	Path string `json:"path"`
	Verb string `json:"verb"`
}

// review reports whether access is allowed: a review of a kind.
func (s *Session) review(ctx context.Context, kind string, spec reviewSpec) (bool, error) {
	review := struct {
		APIVersion string     `json:"apiVersion"`
		Kind       string     `json:"kind"`
		Spec       reviewSpec `json:"spec"`
	}{"authorization.k8s.io/v1", kind, spec}
	var reply struct {
		Status struct{ Allowed, Denied bool }
	}
	err := s.create(ctx, "/apis/authorization.k8s.io/v1/"+strings.ToLower(kind)+"s", kind, review, &reply)
	return err == nil && reply.Status.Allowed && !reply.Status.Denied, err
}

// create sends a review, and reads the reply.
func (s *Session) create(ctx context.Context, path, kind string, review, reply any) error {
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	text, err := s.Do(ctx, http.MethodPost, path, "application/json", body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, reply); err != nil {
		return fmt.Errorf("reading a %s of the API server: %w", kind, err)
	}
	return nil
}
