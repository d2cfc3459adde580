package admin_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A reviewAPI is an API server that knows tokens, and counts what it is asked. Package
// kubetest has a test with the real API machinery.
type reviewAPI struct {
	t              *testing.T
	url            string
	tokens, checks atomic.Int64 // TokenReviews and SubjectAccessReviews
	running        atomic.Int64
	most           atomic.Int64 // that ran at a time
	delay          atomic.Int64
	forbidden      atomic.Pointer[string] // a path
	pods           atomic.Pointer[string]
	podRequests    atomic.Int64
	lists          atomic.Bool // the directive kubernetes receives empty lists, not errors
}

func newReviewAPI(t *testing.T) *reviewAPI {
	a := &reviewAPI{t: t}
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	a.url = s.URL
	return a
}

func (a *reviewAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for n := a.running.Add(1); ; {
		if most := a.most.Load(); n <= most || a.most.CompareAndSwap(most, n) {
			break
		}
	}
	defer a.running.Add(-1)
	text, _ := io.ReadAll(r.Body) // to the end: else the server does not notice that the client disconnects
	select {
	case <-time.After(time.Duration(a.delay.Load())):
	case <-r.Context().Done():
	}
	w.Header().Set("Content-Type", "application/json")
	if path := a.forbidden.Load(); path != nil && *path == r.URL.Path {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","message":"the user may not create this"}`)
		return
	}
	var body struct {
		APIVersion, Kind string
		Spec             struct {
			Token                 string
			Audiences, Groups     []string
			User                  string
			NonResourceAttributes struct{ Path, Verb string }
		}
	}
	if r.Method == "POST" {
		if err := json.Unmarshal(text, &body); err != nil {
			a.t.Errorf("%s: got %s and error %v, want JSON", r.URL.Path, text, err)
		}
	}
	switch s := body.Spec; r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		a.tokens.Add(1)
		if body.APIVersion != "authentication.k8s.io/v1" || body.Kind != "TokenReview" || len(s.Audiences) != 1 || s.Audiences[0] != "seamark" {
			a.t.Errorf("got %s, want a TokenReview for the audience seamark", text)
		}
		user, ok := strings.CutPrefix(s.Token, "token-of-")
		audience := "seamark"
		if user == "other-audience" {
			audience = "other"
		}
		fmt.Fprintf(w, `{"status":{"authenticated":%v,"audiences":[%q],"user":{"username":%q,"groups":["g"]}}}`, ok, audience, user)
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		a.checks.Add(1)
		if body.APIVersion != "authorization.k8s.io/v1" || body.Kind != "SubjectAccessReview" || s.NonResourceAttributes.Path != "/seamark/admin" || len(s.Groups) != 1 {
			a.t.Errorf("got %s, want a SubjectAccessReview for /seamark/admin with the groups", text)
		}
		verb := s.NonResourceAttributes.Verb
		fmt.Fprintf(w, `{"status":{"allowed":%v}}`, s.User == "operator" || s.User == "reader" && verb == "get")
	case "/api/v1/pods":
		a.podRequests.Add(1)
		list := a.pods.Load()
		if list == nil {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","message":"pods is forbidden"}`)
			return
		}
		if got := r.URL.Query().Get("fieldSelector"); got != "status.podIP=127.0.0.1" {
			a.t.Errorf("got the selector %q, want that of one address", got)
		}
		fmt.Fprint(w, *list)
	default: // the lists of the directive kubernetes
		if r.FormValue("watch") != "" || !a.lists.Load() {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
	}
}

// corefile returns one with options of admin and this API server.
func (a *reviewAPI) corefile(options string) string {
	return ". {\n admin ADMIN {\n  " + options + "\n }\n kubernetes cluster.local {\n  endpoint " + a.url + "\n }\n whoami\n}\n"
}

// serve serves queries with options of admin and this API server, which has no objects.
func (a *reviewAPI) serve(options string) *world {
	a.t.Helper()
	w := newWorld(a.t)
	w.unready = true
	if err := w.load(a.corefile(options)); err != nil {
		a.t.Fatal(err)
	}
	return w
}

func TestTokenReview(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	a := newReviewAPI(t)
	w := a.serve("token_review seamark")
	const flush = "/v1/cache/flush?name=."
	for _, c := range []struct {
		method, path, token, want string
		code                      int
	}{
		{"GET", "/v1/status", "", "a token is needed", 401},
		{"GET", "/", "wrong", "the API server does not accept the token", 401},
		{"GET", "/", "token-of-other-audience", "the API server does not accept the token", 401},
		{"GET", "/", "token-of-reader", "<!DOCTYPE html>", 200},
		{"GET", "/v1/status", "token-of-reader", "summary", 200},
		{"HEAD", "/v1/status", "token-of-reader", "", 200},
		{"POST", flush, "token-of-reader", "user reader may not post the URL /seamark/admin", 403},
		{"POST", flush, "token-of-operator", "removed", 200},
		{"GET", "/v1/status", "token-of-nobody", "user nobody may not get the URL /seamark/admin: bind a ClusterRole", 403},
	} {
		header := "X-Nothing x"
		if c.token != "" {
			header = "Authorization Bearer " + c.token
		}
		if code, body := w.request(c.method, c.path, header, "X-Seamark 1"); code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s with the token %q: got %d %.300s, want %d and %q", c.method, c.path, c.token, code, body, c.code, c.want)
		}
	}
	// A verdict is remembered.
	tokens, checks := a.tokens.Load(), a.checks.Load()
	for range 50 {
		if code, _ := w.request("GET", "/v1/status", "Authorization Bearer token-of-reader"); code != 200 {
			t.Fatalf("again: got %d, want 200", code)
		}
		if code, _ := w.request("GET", "/v1/status", "Authorization Bearer wrong"); code != 401 {
			t.Fatalf("again: got %d, want 401", code)
		}
	}
	if a.tokens.Load() != tokens || a.checks.Load() != checks {
		t.Errorf("got %d and %d reviews more for the same tokens, want none", a.tokens.Load()-tokens, a.checks.Load()-checks)
	}
}

// Wrong tokens cause few requests to the API server, and a token that was accepted before is
// still accepted.
func TestTokenReviewFlood(t *testing.T) {
	a := newReviewAPI(t)
	w := a.serve("token_review seamark")
	if code, body := w.request("GET", "/v1/status", "Authorization Bearer token-of-reader"); code != 200 {
		t.Fatalf("got %d %s, want 200", code, body)
	}
	a.delay.Store(int64(50 * time.Millisecond))
	start := time.Now()
	var all sync.WaitGroup
	var busy atomic.Int64
	for i := range 20 {
		all.Go(func() {
			for j := range 25 {
				if code, body := w.request("GET", "/v1/status", fmt.Sprintf("Authorization Bearer wrong-%d-%d", i, j)); code == 503 {
					busy.Add(1)
				} else if code != 401 {
					t.Errorf("got %d %s, want 401 or 503", code, body)
				}
			}
		})
	}
	all.Wait()
	if code, body := w.request("GET", "/v1/status", "Authorization Bearer token-of-reader"); code != 200 {
		t.Errorf("after the wrong tokens: got %d %s, want 200", code, body)
	}
	if most := 1 + 21 + int64(10*time.Since(start).Seconds()); a.tokens.Load() > most || a.most.Load() > 8 || busy.Load() == 0 {
		t.Errorf("got %d reviews, %d at a time, and %d refusals, want at most %d, 4 besides those of the directive kubernetes, and some", a.tokens.Load(), a.most.Load(), busy.Load(), most)
	}
}

// A token that was accepted before a reload is accepted after it, by the same API server and for the
// same audience.
func TestTokenReviewAfterReload(t *testing.T) {
	a, other := newReviewAPI(t), newReviewAPI(t)
	w := a.serve("token_review seamark")
	const reader = "Authorization Bearer token-of-reader"
	if code, body := w.request("GET", "/v1/status", reader); code != 200 {
		t.Fatalf("got %d %s, want 200", code, body)
	}

	forbidden := "/apis/authentication.k8s.io/v1/tokenreviews"
	for _, api := range []*reviewAPI{a, other} {
		api.forbidden.Store(&forbidden)
		api.lists.Store(true)
	}
	for _, c := range []struct {
		state, corefile string
		code            int
	}{
		{"the same server", a.corefile("token_review seamark"), 200},
		{"another server", other.corefile("token_review seamark"), 503},
		{"another audience", a.corefile("token_review other"), 503},
	} {
		if err := w.load(c.corefile); err != nil {
			t.Fatal(err)
		}
		if code, body := w.request("GET", "/v1/status", reader); code != c.code {
			t.Errorf("after a reload with %s: got %d %s, want %d", c.state, code, body, c.code)
		}
	}
}

// Without an answer of the API server all requests are refused, within the limit of time.
func TestTokenReviewUnavailable(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	a := newReviewAPI(t)
	w := a.serve("token_review seamark")
	a.delay.Store(int64(time.Minute))
	start := time.Now()
	code, body := w.request("GET", "/v1/status", "Authorization Bearer token-of-reader")
	if took := time.Since(start); code != 503 || !strings.Contains(body, "cannot be checked now") || took < 2*time.Second {
		t.Errorf("got %d %s after %v, want 503 after 2s", code, body, took)
	}
	a.delay.Store(0)
	if code, body := w.request("GET", "/v1/status", "Authorization Bearer token-of-reader"); code != 200 {
		t.Errorf("when the API server answers again: got %d %s, want 200", code, body)
	}
}

// Without the permission to create reviews all requests are refused, and the reply says what
// the server needs.
func TestTokenReviewForbidden(t *testing.T) {
	a := newReviewAPI(t)
	w := a.serve("token_review seamark")
	for _, path := range []string{"/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews"} {
		a.forbidden.Store(&path)
		code, body := w.request("GET", "/v1/status", "Authorization Bearer token-of-reader")
		if code != 503 || !strings.Contains(body, "the server has no permission to check tokens: allow its service account to create tokenreviews.authentication.k8s.io and ") {
			t.Errorf("%s is forbidden: got %d %s, want 503 and the permission", path, code, body)
		}
	}
	a.forbidden.Store(nil)
	if code, body := w.request("GET", "/v1/status", "Authorization Bearer token-of-reader"); code != 200 {
		t.Errorf("when the server has the permission: got %d %s, want 200", code, body)
	}
}

// The list of wasteful clients has their workloads, if the server may list pods.
func TestPods(t *testing.T) {
	a := newReviewAPI(t)
	w := a.serve("pods")
	w.query("www.example.org.shop.svc.cluster.local")
	w.eventually("/top?by=clients", "Pods are missing: reading /api/v1/pods from the API server: pods is forbidden")
	list := `{"items":[
		{"metadata":{"namespace":"shop","name":"cart-7d9c-x2","labels":{"pod-template-hash":"7d9c"},"ownerReferences":[{"kind":"ReplicaSet","name":"cart-7d9c","controller":true}]},"status":{"phase":"Running","podIPs":[{"ip":"127.0.0.1"}]}},
		{"metadata":{"namespace":"shop","name":"agent"},"spec":{"hostNetwork":true},"status":{"phase":"Running","podIPs":[{"ip":"127.0.0.1"}]}}]}`
	a.pods.Store(&list)
	w.eventually("/top?by=clients", "<td>shop/cart-7d9c-x2</td><td>Deployment/cart</td>")
	requests := a.podRequests.Load()
	w.eventually("/v1/top?by=clients", `"pod": "shop/cart-7d9c-x2",
      "owner": "Deployment/cart"`)
	if a.podRequests.Load() != requests {
		t.Errorf("got %d requests more for the same client, want none", a.podRequests.Load()-requests)
	}
}

// The pods of clients are known after a reload, also while the API server does not list them.
func TestPodsAfterReload(t *testing.T) {
	a := newReviewAPI(t)
	w := a.serve("pods")
	list := `{"items":[{"metadata":{"namespace":"shop","name":"cart"},"status":{"phase":"Running","podIPs":[{"ip":"127.0.0.1"}]}}]}`
	a.pods.Store(&list)
	w.query("www.example.org.shop.svc.cluster.local")
	w.eventually("/v1/top?by=clients", `"pod": "shop/cart"`)

	a.pods.Store(nil)
	if err := w.load(strings.Replace(a.corefile("pods"), " whoami\n", " cancel 2s\n whoami\n", 1)); err != nil {
		t.Fatal(err)
	}
	if _, body := w.request("GET", "/v1/top?by=clients"); !strings.Contains(body, `"pod": "shop/cart"`) {
		t.Errorf("got %s, want the client's pod", body)
	}
}
