package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/seamark/seamark/kubetest/machinery"
)

const manifest = `apiVersion: v1
kind: Namespace
metadata:
  name: ns-0
  labels: {seamark-bench: "true"}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, namespace: ns-0}
addressType: IPv4
endpoints:
- addresses: [10.0.0.1]
`

func TestParse(t *testing.T) {
	o, err := parse([]byte("kind: Service\nmetadata: {name: a, namespace: b}\n"))
	if err != nil || o.kind != "Service" || o.path != "/api/v1/namespaces/b/services" ||
		string(o.body) != `{"kind":"Service","metadata":{"name":"a","namespace":"b"}}` {
		t.Errorf("parse of a Service: got %+v with body %s, %v", o, o.body, err)
	}
	for _, text := range []string{"kind: Pod", "kind: [", "metadata: 1"} {
		if _, err := parse([]byte(text)); err == nil {
			t.Errorf("parse(%q): got no error, want one", text)
		}
	}
}

// A benchmark's cluster is created, changed while it is watched, restarted, and
// deleted.
func TestCluster(t *testing.T) {
	ctx := t.Context()
	data := t.TempDir()
	srv, err := machinery.Start(ctx, data)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	kubeconfig, err := writeKubeconfig(data, srv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ns-0.yaml"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := apply(ctx, kubeconfig, dir); err != nil {
		t.Fatal(err)
	}
	if err := apply(ctx, kubeconfig, dir); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("apply of existing objects: got error %v, want already exists", err)
	}

	orders, in := io.Pipe()
	out, output := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- change(ctx, kubeconfig, orders, output); output.Close() }()
	go func() { // the second order names an invalid object
		const path = "/apis/discovery.k8s.io/v1/namespaces/ns-0/endpointslices/a"
		fmt.Fprintln(in, path, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"a","namespace":"ns-0"},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.2"]}]}`)
		fmt.Fprintln(in, path+"x {}")
	}()
	acked, saw, failed, at := "", "", false, ""
	for text := bufio.NewScanner(out); text.Scan(); {
		words := strings.Fields(text.Text())
		switch words[0] {
		case "watching":
			at = words[1]
		case "acked":
			acked = words[2]
		case "failed":
			failed = words[1] == "1"
		}
		if failed && acked != "" {
			for range 1000 {
				if saw = lastSeen(t, at, "a"); saw == acked {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			in.Close()
		}
	}
	if err := <-ended; err != nil || acked == "" || saw != acked || !failed {
		t.Errorf("change: acknowledged version %q, watched %q, second order failed: %v, error %v; want equal versions, a failure, no error", acked, saw, failed, err)
	}

	checkWatchMany(t, kubeconfig)
	if err := errors.Join(forget(ctx, srv, kubeconfig), restart(ctx, srv)); err != nil {
		t.Fatal(err)
	}
	client, err := newClient(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, client, "/api/v1/namespaces/default/configmaps"); n != 10 {
		t.Errorf("ConfigMaps after the restart: got %d, want 10", n)
	}
	if err := clearAll(ctx, kubeconfig); err != nil {
		t.Fatal(err)
	}
	if n := count(t, client, "/api/v1/namespaces"); n != 0 {
		t.Errorf("namespaces after clear: got %d, want 0", n)
	}
}

// lastSeen queries the bare watch for the last version of an object.
func lastSeen(t *testing.T, at, name string) string {
	t.Helper()
	conn, err := net.Dial("udp4", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write([]byte(name)); err != nil {
		t.Fatal(err)
	}
	room := make([]byte, 64)
	n, err := conn.Read(room)
	if err != nil {
		t.Fatal(err)
	}
	return string(room[:n])
}

func count(t *testing.T, client *rest.RESTClient, path string) int {
	t.Helper()
	raw, err := client.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// checkWatchMany checks that several watches begin, that one receives a change, and that they end with the input.
func checkWatchMany(t *testing.T, kubeconfig string) {
	t.Helper()
	input, in := io.Pipe()
	output, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- watchMany(t.Context(), kubeconfig, 3, input, out); out.Close() }()
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "watching\n" {
		t.Fatalf("watch: got %q, error %v, and %v, want watching", line, err, <-ended)
	}
	in.Close()
	if err := <-ended; err != nil {
		t.Errorf("watch: after its input has ended: got %v, want no error", err)
	}

	client, err := newClient(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	body, err := watchFrom(t.Context(), kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	const slice = `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"a","namespace":"ns-0"},` +
		`"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.3"]}]}`
	path := "/apis/discovery.k8s.io/v1/namespaces/ns-0/endpointslices/a "
	if err := put(t.Context(), client, path+slice, 0, &lines{to: io.Discard}); err != nil {
		t.Fatal(err)
	}
	var read []byte
	for room := make([]byte, 4096); !strings.Contains(string(read), "10.0.0.3"); {
		n, err := body.Read(room)
		if read = append(read, room[:n]...); err != nil {
			t.Fatalf("a watch: got %q and %v, want the changed address", read, err)
		}
	}
}
