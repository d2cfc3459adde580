package kubetest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/kubetest/control"
)

// The directive admin checks tokens and permissions with the API server. While that is away,
// tokens that were accepted are, and others are refused.
func TestAdminTokenReview(t *testing.T) {
	srv := start(t)
	admin, reviewed := freeAddress(t), freeAddress(t)
	serve(t, ". {\n admin "+admin+" {\n  token_review\n }\n kubernetes cluster.local {\n  "+kubeconfig(t, srv)+"\n }\n}\n"+
		"other.example {\n admin "+reviewed+" {\n  token_review "+control.Audience+"\n }\n kubernetes cluster.local {\n  "+kubeconfig(t, srv)+"\n }\n}\n")
	request := func(address, method, path, token string) (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		r := must(http.NewRequestWithContext(ctx, method, "http://"+address+path, nil))(t)
		r.Header.Set("X-Seamark", "1")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		reply := must(http.DefaultClient.Do(r))(t)
		defer reply.Body.Close()
		return reply.StatusCode, string(must(io.ReadAll(reply.Body))(t))
	}
	const flush = "/v1/cache/flush?name=."
	for _, c := range []struct {
		address, method, path, user, audience, want string
		code                                        int
	}{
		{admin, "GET", "/v1/status", "", "", "a token is needed", 401},
		{admin, "GET", "/v1/status", "unknown", control.APIAudience, "does not accept the token", 401},
		{admin, "GET", "/v1/status", control.Reader, control.Audience, "does not accept the token", 401},
		{admin, "GET", "/v1/status", control.Reader, control.APIAudience, "summary", 200},
		{admin, "GET", "/", control.Reader, control.APIAudience, "<!DOCTYPE html>", 200},
		{admin, "POST", flush, control.Reader, control.APIAudience, "may not post the URL /seamark/admin", 403},
		{admin, "POST", flush, control.Operator, control.APIAudience, "removed", 200},
		{admin, "GET", "/v1/status", control.Nobody, control.APIAudience, "user " + control.Nobody + " may not get the URL /seamark/admin", 403},
		{reviewed, "GET", "/v1/status", control.Reader, control.APIAudience, "does not accept the token", 401},
		{reviewed, "GET", "/v1/status", control.Reader, control.Audience, "summary", 200},
	} {
		token := ""
		if c.user != "" {
			token = control.Token(c.user, c.audience)
		}
		if code, body := request(c.address, c.method, c.path, token); code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s at %s with the token %q: got %d %.300s, want %d and %q", c.method, c.path, c.address, token, code, body, c.code, c.want)
		}
	}
	srv.StopAPI()
	if code, body := request(admin, "GET", "/v1/status", control.Token(control.Reader, control.APIAudience)); code != 200 {
		t.Errorf("a known token without the API server: got %d %.300s, want 200", code, body)
	}
	if code, body := request(admin, "GET", "/v1/status", "another"); code != 503 || !strings.Contains(body, "cannot be checked now") {
		t.Errorf("another token without the API server: got %d %.300s, want 503", code, body)
	}
}
