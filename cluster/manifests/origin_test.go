package manifests

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
)

// The origin of an object is read from its file, as that is now.
func TestOrigin(t *testing.T) {
	b := newBench(t, map[string]string{
		"a.yaml": "# web\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, resourceVersion: '17', creationTimestamp: '2026-01-02T03:04:05Z'}\n" +
			"spec: {clusterIP: 10.0.0.1}\n---\n" + strings.Replace(webService, "name: web", "name: pods", 1),
		"b.yaml": join("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, resourceVersion: '99'}\nspec: {clusterIP: 10.0.0.2}\n",
			pod("db-0", "", "{podIP: 10.1.0.1}"), "apiVersion: v1\nkind: Service\nmetadata: {name: ends, namespace: shop}\nspec: {clusterIP: None}\n",
			strings.Replace(webEndpoints, "name: web", "name: ends", 1)),
		"c.json": `{"kind": "List", "apiVersion": "v1", "items": [
 {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop", "resourceVersion": "3", "creationTimestamp": null}},
 {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": {"name": "odd", "namespace": "other", "creationTimestamp": 5,
  "labels": {"kubernetes.io/service-name": "odd"}}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.3.0.1"]}]}]}`,
	})
	b.opts = cluster.Options{Pods: true}
	f := b.read()
	const created = "2026-01-02T03:04:05Z"
	for _, c := range []struct {
		kind cluster.Kind
		key  string
		want string // version, time, file and error
	}{
		{cluster.Services, "shop/web", "17 " + created + " a.yaml:3"}, // the first of two
		{cluster.Services, "shop/pods", "- - a.yaml:8"},
		{cluster.Pods, "shop/db-0", "- - b.yaml:6"},
		{cluster.Namespaces, "/shop", "3 - c.json:2"},
		{cluster.Namespaces, "/other", "- - c.json:3 the folder has objects in the namespace, but not the Namespace itself"},
		{cluster.Slices, "other/odd", "- - c.json:3"},
		{cluster.Slices, "shop/pods/pods/tcp-8080-http/tcp-8081-alt/tcp-82-same/ipv4", "- - a.yaml:8 made from the Pods that the Service selects"},
		{cluster.Slices, "shop/ends/endpoints/2/ipv4", "- - b.yaml:18 made from Endpoints shop/ends"},
		{cluster.Services, "shop/none", "- -  the folder does not have the object any more"},
		{cluster.Nodes, "/none", "- -  the folder does not have the object any more"},
	} {
		namespace, name, _ := strings.Cut(c.key, "/")
		o, err := f.origin(t.Context(), c.kind, cluster.Key{Namespace: namespace, Name: name})
		got := fmt.Sprintf("%s %s %s", orDash(o.ResourceVersion), orDash(formatted(o.Created)), strings.TrimPrefix(o.File, b.dir+"/"))
		if err != nil {
			got += " " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.kind, c.key, got, c.want)
		}
	}
	web := cluster.Key{Namespace: "shop", Name: "web"}
	b.write("a.yaml", strings.Replace(webService, "name: web,", "name: web, resourceVersion: '18',", 1)) // which the sink has not received
	if o, err := f.origin(t.Context(), cluster.Services, web); err != nil || o.ResourceVersion != "18" {
		t.Errorf("changed file: got %+v and error %v, want version 18", o, err)
	}
	b.write("a.yaml", "{}")
	if o, err := f.origin(t.Context(), cluster.Services, web); err == nil || err.Error() != "the file does not have the object any more" {
		t.Errorf("object removed from its file: got %+v and error %v", o, err)
	}
	b.remove("a.yaml")
	if o, err := f.origin(t.Context(), cluster.Services, web); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("removed file: got %+v and error %v", o, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if o, err := f.origin(ended, cluster.Pods, cluster.Key{Namespace: "shop", Name: "db-0"}); err == nil || err.Error() != "reading the file takes too long" {
		t.Errorf("ended context: got %+v and error %v", o, err)
	}
	if o, err := b.open().origin(t.Context(), cluster.Services, web); err == nil || err.Error() != "the folder has not been read yet" {
		t.Errorf("before the first read: got %+v and error %v", o, err)
	}
}

func formatted(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Format(time.RFC3339)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
