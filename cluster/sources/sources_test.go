package sources

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
)

// Run with the option manifests delivers the objects of that folder, and returns when
// its context ends.
func TestRunManifests(t *testing.T) {
	dir := t.TempDir()
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hosts, namespace: shop}\ndata: {key: value}\n"
	if err := os.WriteFile(filepath.Join(dir, "hosts.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got map[string]string
	o := cluster.Options{Manifests: dir, ConfigMap: "shop/hosts"}
	Run(ctx, o, &cluster.ConfigMapSink{Set: func(data map[string]string) {
		if data != nil {
			got = data
			cancel()
		}
	}}, slog.New(slog.DiscardHandler), new(metrics.Registry), nil, nil)
	if got["key"] != "value" {
		t.Errorf("ConfigMap shop/hosts: got data %v, want key=value", got)
	}
}

// A Recorder names the program as the source of its Events.
func TestNewRecorder(t *testing.T) {
	created := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"2"},"items":[{"metadata":{"name":"hosts","uid":"u"}}]}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		created <- string(body)
		w.WriteHeader(http.StatusCreated)
	}))
	defer s.Close()
	r := NewRecorder(cluster.Options{Endpoint: s.URL, ConfigMapLabels: "dns"}, slog.New(slog.DiscardHandler), new(metrics.Registry), nil)
	defer r.Close()
	r.Warn(cluster.ConfigMaps, cluster.Key{Namespace: "shop", Name: "hosts"}, "", "Invalid", "line 3")
	if got := <-created; !strings.Contains(got, `"source":{"component":"seamark"}`) {
		t.Errorf("got the Event %s, want the source seamark", got)
	}
}

func TestLocationOptions(t *testing.T) {
	below := func(file string) string { return filepath.Join("/root", file) }
	for _, c := range []struct {
		text string
		want cluster.Options
		err  string
	}{
		{"tls a b c", cluster.Options{Cert: "/root/a", Key: "/root/b", CA: "/root/c"}, ""},
		{"kubeconfig f", cluster.Options{Kubeconfig: "/root/f"}, ""},
		{"kubeconfig f staging", cluster.Options{Kubeconfig: "/root/f", KubeconfigContext: "staging"}, ""},
		{"manifests d", cluster.Options{Manifests: "/root/d"}, ""},
		{"tls a b", cluster.Options{}, "usage: tls CERT KEY CA"},
		{`manifests ""`, cluster.Options{Manifests: "/root"}, "want a value"},
	} {
		servers, err := corefile.Parse("Corefile", []byte(". {\n hosts {\n"+c.text+"\n }\n}\n"))
		if err != nil {
			t.Fatal(err)
		}
		var o cluster.Options
		err = servers[0].Directives[0].Options(LocationOptions(&o, below)...)
		if o != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %+v, %v; want %+v, error %q", c.text, o, err, c.want, c.err)
		}
	}
}
