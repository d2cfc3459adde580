package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// ownLabel is the label of the namespaces that apply creates and clear deletes.
const ownLabel = "seamark-bench"

// writers is the number of concurrent requests.
const writers = 16

func newClient(kubeconfig string) (*rest.RESTClient, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // not throttled
	config.NegotiatedSerializer = scheme.Codecs
	return rest.UnversionedRESTClientFor(config)
}

// An object is one document of a manifest, as JSON, and the path at which it is
// created.
type object struct {
	kind string
	path string
	body []byte
}

// read reads the objects in the YAML files of a folder.
func read(dir string) (namespaces, others []object, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, err
		}
		for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
			o, err := parse(doc)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			if o.kind == "Namespace" {
				namespaces = append(namespaces, o)
			} else {
				others = append(others, o)
			}
		}
	}
	return namespaces, others, nil
}

func parse(doc []byte) (object, error) {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
	}

	body, err := yaml.YAMLToJSON(doc)
	if err != nil {
		return object{}, err
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return object{}, err
	}

	o := object{kind: head.Kind, body: body}
	in := "/namespaces/" + head.Metadata.Namespace
	switch head.Kind {
	case "Namespace":
		o.path = "/api/v1/namespaces"
	case "ConfigMap":
		o.path = "/api/v1" + in + "/configmaps"
	case "Service":
		o.path = "/api/v1" + in + "/services"
	case "EndpointSlice":
		o.path = "/apis/discovery.k8s.io/v1" + in + "/endpointslices"
	default:
		return object{}, fmt.Errorf("unsupported kind %q: want Namespace, ConfigMap, Service or EndpointSlice", head.Kind)
	}
	return o, nil
}

// apply creates the objects of a folder, the namespaces first.
func apply(ctx context.Context, kubeconfig, dir string) error {
	client, err := newClient(kubeconfig)
	if err != nil {
		return err
	}
	namespaces, others, err := read(dir)
	if err != nil {
		return err
	}
	for _, objects := range [][]object{namespaces, others} {
		if err := createAll(ctx, client, objects); err != nil {
			return err
		}
	}
	fmt.Println(len(namespaces)+len(others), "objects")
	return nil
}

// createAll creates objects concurrently, and stops at the first error.
func createAll(ctx context.Context, client *rest.RESTClient, objects []object) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(writers)
	for _, o := range objects {
		work.Go(func() error { return create(ctx, client, o) })
	}
	return work.Wait()
}

func create(ctx context.Context, client *rest.RESTClient, o object) error {
	err := client.Post().AbsPath(o.path).SetHeader("Content-Type", "application/json").Body(o.body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("creating a %s at %s: %w", o.kind, o.path, err)
	}
	return nil
}

// clearAll deletes the namespaces with ownLabel.
func clearAll(ctx context.Context, kubeconfig string) error {
	client, err := newClient(kubeconfig)
	if err != nil {
		return err
	}
	raw, err := client.Get().AbsPath("/api/v1/namespaces").Param("labelSelector", ownLabel+"=true").
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, ns := range list.Items {
		err := client.Delete().AbsPath("/api/v1/namespaces/" + ns.Name).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// change writes the objects of its input, and watches all EndpointSlices meanwhile.
func change(ctx context.Context, kubeconfig string, from io.Reader, to io.Writer) error {
	client, err := newClient(kubeconfig)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &lines{to: to}
	watch, err := newWatch(ctx, client, "")
	if err != nil {
		return err
	}
	var running sync.WaitGroup // of the watch
	var writing errgroup.Group
	writing.SetLimit(writers)
	defer running.Wait()
	defer writing.Wait()
	defer cancel()
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer socket.Close()
	running.Go(func() { watch.answer(socket) })
	running.Go(func() { watch.follow(ctx, out) })
	out.print("watching %s", socket.LocalAddr())

	in := bufio.NewScanner(from)
	in.Buffer(nil, 1<<20)
	for line := 0; in.Scan(); line++ {
		text := in.Text()
		writing.Go(func() error {
			if err := put(ctx, client, text, line, out); err != nil {
				out.print("failed %d %v", line, err)
			}
			return nil
		})
	}
	return in.Err()
}

// lines is an output of whole lines. It is safe for concurrent use.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) print(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.to, format+"\n", args...)
}

func put(ctx context.Context, client *rest.RESTClient, line string, number int, out *lines) error {
	path, body, _ := strings.Cut(line, " ")
	raw, err := client.Put().AbsPath(path).SetHeader("Content-Type", "application/json").
		SetHeader("Accept", "application/json").Body([]byte(body)).Do(ctx).Raw()
	at := nanoseconds()
	if err != nil {
		return err
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &o); err != nil {
		return err
	}
	out.print("acked %d %s %d", number, o.ResourceVersion, at)
	return nil
}

// A watch is a minimal watch: it reads the lines of the response, and replies over
// UDP with the last version of an object.
type watch struct {
	client *rest.RESTClient
	body   *http.Response
	mu     sync.Mutex
	last   map[string]string // resourceVersion by name
}

// answer replies to each name with the object's version until the socket is closed.
func (w *watch) answer(socket net.PacketConn) {
	room := make([]byte, 512)
	for {
		n, from, err := socket.ReadFrom(room)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		w.mu.Lock()
		version := w.last[string(room[:n])]
		w.mu.Unlock()
		_, _ = socket.WriteTo([]byte(version), from) // a client that misses it queries again
	}
}

// newWatch starts a watch at a version; "" starts with the existing objects.
func newWatch(ctx context.Context, client *rest.RESTClient, version string) (*watch, error) {
	w := &watch{client: client, last: map[string]string{}}
	return w, w.begin(ctx, version)
}

func (w *watch) begin(ctx context.Context, version string) error {
	u := w.client.Get().AbsPath(slices).Param("watch", "true").Param("resourceVersion", version).URL()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	resp, err := w.client.Client.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return fmt.Errorf("watching: %s", resp.Status)
	}
	w.body = resp
	return nil
}

// follow reads until ctx ends. If the server ends the watch because it is too slow,
// follow reports that and continues from the last version.
func (w *watch) follow(ctx context.Context, out *lines) {
	version := ""
	for {
		version = w.read(version)
		if ctx.Err() != nil {
			return
		}
		out.print("again %s", version)
		if err := w.begin(ctx, version); err != nil {
			if ctx.Err() == nil {
				out.print("failed watch %v", err)
			}
			return
		}
	}
}

// read reads one response to its end, and returns the version in its last line.
func (w *watch) read(version string) string {
	defer w.body.Body.Close()
	in := bufio.NewReaderSize(w.body.Body, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return version
		}
		// The first name and version of a line are the object's: the server sorts
		// the fields of metadata.
		name := member(line, `"name":"`)
		version = member(line, `"resourceVersion":"`)
		w.mu.Lock()
		w.last[name] = version
		w.mu.Unlock()
	}
}

// member returns the text after the first key, up to the next quote.
func member(line []byte, key string) string {
	_, rest, _ := bytes.Cut(line, []byte(key))
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(text)
}

func nanoseconds() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Linux has this clock
	}
	return t.Nano()
}
