package kubetest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seamark/seamark/kubetest/control"
)

// reviewedURL is the URL on which users of the directive admin need rights.
const reviewedURL = "/seamark/admin"

// grant lets a subject use rules, by a ClusterRole and its binding.
func grant(t *testing.T, k kubernetes.Interface, name string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	must(k.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}))(t)
	must(k.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{}))(t)
}

// grantAdmin lets the reader read, and the group of the operator also remove cached answers.
func grantAdmin(t *testing.T, k kubernetes.Interface) {
	t.Helper()
	url := []string{reviewedURL}
	grant(t, k, "reader", rbacv1.Subject{Kind: "ServiceAccount", Namespace: "shop", Name: "reader"}, rbacv1.PolicyRule{NonResourceURLs: url, Verbs: []string{"get"}})
	grant(t, k, "operator", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "group-of-" + control.Operator}, rbacv1.PolicyRule{NonResourceURLs: url, Verbs: []string{"get", "post"}})
}

// requestAdmin sends a request to a directive admin.
func requestAdmin(t *testing.T, address, method, path, token string) (int, string) {
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

// The directive admin checks tokens and permissions with the API server. While that is away,
// tokens that were accepted are, and others are refused.
func TestAdminTokenReview(t *testing.T) {
	t.Parallel()
	srv := start(t)
	grantAdmin(t, client(t, srv.Config()))
	admin, reviewed := freeAddress(t), freeAddress(t)
	serve(t, ". {\n admin "+admin+" {\n  token_review\n }\n kubernetes cluster.local {\n  "+kubeconfig(t, srv)+"\n }\n}\n"+
		"other.example {\n admin "+reviewed+" {\n  token_review "+control.Audience+"\n }\n kubernetes cluster.local {\n  "+kubeconfig(t, srv)+"\n }\n}\n")
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
		if code, body := requestAdmin(t, c.address, c.method, c.path, token); code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s at %s with the token %q: got %d %.300s, want %d and %q", c.method, c.path, c.address, token, code, body, c.code, c.want)
		}
	}
	srv.StopAPI()
	if code, body := requestAdmin(t, admin, "GET", "/v1/status", control.Token(control.Reader, control.APIAudience)); code != 200 {
		t.Errorf("a known token without the API server: got %d %.300s, want 200", code, body)
	}
	if code, body := requestAdmin(t, admin, "GET", "/v1/status", "another"); code != 503 || !strings.Contains(body, "cannot be checked now") {
		t.Errorf("another token without the API server: got %d %.300s, want 503", code, body)
	}
}

// chartRules are the rules of the ClusterRole that the chart has for a server with token_review.
// The test of the chart compares them with what Helm renders.
func chartRules(t *testing.T) (all []rbacv1.PolicyRule) {
	t.Helper()
	text := string(must(os.ReadFile("../tools/chart/testdata/values.txt"))(t))
	_, text, found := strings.Cut(text, "\n-- admin with token_review and pods --\n")
	text, _, _ = strings.Cut(text, "\n-- ")
	for line := range strings.Lines(text) {
		rule, isRule := strings.CutPrefix(line, "# want ClusterRole rules.")
		_, rule, isObject := strings.Cut(rule, " {")
		if !isRule || !isObject || !strings.Contains(line, "reviews") {
			continue
		}
		var r rbacv1.PolicyRule
		if err := json.Unmarshal([]byte("{"+rule), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if !found || len(all) != 2 {
		t.Fatalf("the test of the chart has the rules %v, want two for reviews", all)
	}
	return all
}

// A server with a service account needs the rules that the chart has. Without one of them it
// refuses every token, and says which permission it lacks.
func TestAdminTokenReviewRBAC(t *testing.T) {
	t.Parallel()
	srv := start(t)
	k := client(t, srv.Config())
	grantAdmin(t, k)
	account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "kube-system", Name: "seamark"}
	grant(t, k, "seamark", account,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services", "namespaces"}, Verbs: []string{"list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}})
	web := service("web", "10.0.0.7")
	web.Namespace = "shop"
	add(t, k.CoreV1().Namespaces(), namespace("shop"))
	add(t, k.CoreV1().Services("shop"), web)

	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := must(clientcmd.LoadFromFile(must(srv.Kubeconfig())(t)))(t)
	for _, user := range config.AuthInfos {
		*user = clientcmdapi.AuthInfo{Token: control.Token(control.Seamark, control.APIAudience)}
	}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	admin := freeAddress(t)
	d := serve(t, ". {\n admin "+admin+" {\n  token_review\n }\n kubernetes cluster.local {\n  kubeconfig "+file+"\n }\n}\n")
	d.await(lookupA("web.shop.svc.cluster.local", "NOERROR 10.0.0.7"))

	const needs = "the server has no permission to check tokens: allow its service account to create tokenreviews.authentication.k8s.io and subjectaccessreviews.authorization.k8s.io"
	expect := func(state, method, user string, code int, want string) {
		t.Helper()
		if got, body := requestAdmin(t, admin, method, map[string]string{"GET": "/v1/status", "POST": "/v1/cache/flush?name=."}[method], control.Token(user, control.APIAudience)); got != code || !strings.Contains(body, want) {
			t.Errorf("%s: %s by %s: got %d %.300s, want %d and %q", state, method, user, got, body, code, want)
		}
	}
	rules := chartRules(t)
	expect("without the permissions", "GET", control.Reader, 503, needs)
	if d.logs("admin: Checking a token with the API server failed", "cannot create resource", "tokenreviews") == 0 {
		t.Errorf("got the log\n%s\nwant what the API server has refused", d.log())
	}
	grant(t, k, "tokens", account, rules[0])
	expect("with the first permission", "GET", control.Reader, 503, needs)
	grant(t, k, "access", account, rules[1])
	expect("with both permissions", "GET", control.Reader, 200, "summary")
	expect("with both permissions", "POST", control.Reader, 403, "may not post the URL "+reviewedURL)
	expect("with both permissions", "POST", control.Operator, 200, "removed")
	expect("with both permissions", "GET", control.Nobody, 403, "bind a ClusterRole with nonResourceURLs ["+reviewedURL+"] and verbs [get]")
	// The account itself has no right to read the page.
	expect("with both permissions", "GET", control.Seamark, 403, "user "+control.Seamark+" may not get")
}
