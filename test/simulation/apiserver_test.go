package simulation

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A fault is a way in which the API server misbehaves.
type fault string

const (
	healthy     fault = ""
	down        fault = "down"        // connections are refused
	unreachable fault = "unreachable" // connections are not established
	failing     fault = "failing"     // requests get an error response
	stalled     fault = "stalled"     // responses stop until the fault ends
	truncated   fault = "truncated"   // responses break off
	garbage     fault = "garbage"     // responses become garbage
	slow        fault = "slow"        // each event takes up to two seconds
	silent      fault = "silent"      // the connections that are open become half-open
	expired     fault = "expired"     // watches end with 410 Gone
	ended       fault = "ended"       // watches end, and connections are closed
	emptied     fault = "emptied"     // watches expire, and one list of each resource is empty
)

// lasting are the faults that last for some time. The others are moments.
func (f fault) lasting() bool { return f != silent && f != expired && f != ended && f != emptied }

// An apiServer serves the resources of a cluster over HTTP.
type apiServer struct {
	world   *world
	cluster *cluster
	old     bool        // does not stream lists, as before Kubernetes 1.32
	mute    bool        // sends no bookmarks
	content string      // the type of its responses
	lossy   atomic.Bool // watches lose events
	prompt  bool        // responses are not delayed

	mu        sync.Mutex
	fault     fault
	healed    chan struct{} // closed at the end of the fault
	restarted chan struct{} // closed when the connections are reset or forgotten
	expired   chan struct{} // closed when watches expire
	compacted int           // the oldest version from which a watch can start
	conns     map[*conn]bool
	empty     [resources]bool // the next list is empty
	requests  [resources]uint64
}

func newAPIServer(w *world) *apiServer {
	return &apiServer{world: w, cluster: newCluster(), healed: make(chan struct{}), restarted: make(chan struct{}), expired: make(chan struct{}), conns: map[*conn]bool{}}
}

// misbehave begins a fault, or ends it.
func (a *apiServer) misbehave(f fault) {
	a.world.cause("API server %s", f)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch f {
	case down, ended, silent:
		for c := range a.conns {
			if f == silent {
				c.die()
			} else {
				c.reset()
			}
		}
		clear(a.conns)
		close(a.restarted)
		a.restarted = make(chan struct{})
	case expired, emptied:
		a.compacted, _ = a.cluster.now()
		close(a.expired)
		a.expired = make(chan struct{})
	}
	if f == emptied {
		a.empty = [resources]bool{true, true, true, true}
	}
	if !f.lasting() {
		return
	}
	a.fault = f
	if f == healthy {
		close(a.healed)
		a.healed = make(chan struct{})
	}
}

func (a *apiServer) state() (f fault, healed, restarted, expired <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fault, a.healed, a.restarted, a.expired
}

// dial connects to the API server.
func (a *apiServer) dial(ctx context.Context, s *source) (net.Conn, error) {
	for {
		f, healed, _, _ := a.state()
		switch f {
		case down:
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		case unreachable:
			select {
			case <-healed:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(10 * time.Second):
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
			}
		}
		client, server := connect("tcp", netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddrPort("10.0.0.2:80"))
		a.mu.Lock()
		a.conns[server] = true
		a.mu.Unlock()
		go a.serve(server, s)
		return client, nil
	}
}

// serve answers the requests of a connection.
func (a *apiServer) serve(c *conn, s *source) {
	defer func() {
		a.mu.Lock()
		delete(a.conns, c)
		a.mu.Unlock()
	}()
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		x := a.response(c, s, req)
		if !x.respond() {
			return
		}
	}
}

// A response is the response to a list or watch.
type response struct {
	*rand.Rand
	server *apiServer
	conn   *conn
	source *source
	feed
	query    url.Values
	selects  selector
	started  bool // the header has been sent
	delay    time.Duration
	metadata bool // the client requests only the metadata, to compare versions
	doubtful bool // the client waits for another list before it deletes anything
}

func (a *apiServer) response(c *conn, s *source, req *http.Request) *response {
	x := &response{server: a, conn: c, source: s, query: req.URL.Query(), metadata: strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadata")}
	for x.resource = namespaces; x.resource.String() != path.Base(req.URL.Path); x.resource++ {
	}
	if _, after, ok := strings.Cut(req.URL.Path, "/namespaces/"); ok {
		x.namespace, _, _ = strings.Cut(after, "/")
	}
	if name, ok := strings.CutPrefix(x.query.Get("fieldSelector"), "metadata.name="); ok && x.resource == namespaces {
		x.namespace = name
	}
	front := x.query.Get("labelSelector") == "tier=front"
	x.selects = func(o *object) bool { return x.includes(o) && (o.front || !front) }
	a.mu.Lock()
	a.requests[x.resource]++
	n := a.requests[x.resource]
	a.mu.Unlock()
	x.Rand = a.world.rand("request", uint64(x.resource), n)
	if !a.prompt {
		x.delay = time.Duration(x.IntN(30_000)) * time.Microsecond
	}
	a.world.trace("request %s %s %s", s.host, req.URL.Path, req.URL.RawQuery)
	return x
}

// send sends a part of the response unless the API server misbehaves. read is called when
// the client has read it. send returns false if the response has broken off.
func (x *response) send(data []byte, read func()) bool {
	f, healed, restarted, _ := x.server.state()
	delay := x.delay
	switch {
	case f == stalled && x.IntN(2) == 0:
		select {
		case <-healed:
		case <-restarted:
			return false
		case <-x.conn.out.closed:
			return false
		}
	case f == slow:
		delay += time.Duration(x.IntN(2_000_000)) * time.Microsecond
	case f == truncated && x.IntN(3) == 0:
		x.conn.send(data[:x.IntN(len(data))], delay, nil)
		x.conn.end()
		return false
	case f == garbage && x.IntN(3) == 0:
		junk := []string{"{}", "\x00\xff", `{"type":"ADDED","object":{"kind":"Pod"}}`, "<html>", `{"type":"MODIFIED"}`}[x.IntN(5)]
		if x.started {
			junk = fmt.Sprintf("%x\r\n%s\r\n", len(junk), junk)
		}
		x.conn.send([]byte(junk), delay, nil)
		x.conn.end()
		return false
	}
	x.conn.send(data, delay, read)
	return true
}

// respond sends the response. It returns false if the connection ends with it.
func (x *response) respond() bool {
	f, _, _, _ := x.server.state()
	version, ok := x.snapshot()
	streamed := x.query.Has("sendInitialEvents")
	switch {
	case f == failing:
		return x.status([]int{401, 403, 410, 429, 500, 503}[x.IntN(6)])
	case streamed && x.server.old:
		return x.status(http.StatusUnprocessableEntity)
	case !ok:
		return x.status(http.StatusGone)
	case !x.query.Has("watch"):
		return x.list(version)
	}
	if !x.send(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: %s;stream=watch\r\nTransfer-Encoding: chunked\r\n\r\n", x.server.content), nil) {
		return false
	}
	x.started = true
	if streamed && !x.stream(version) {
		return false
	}
	return x.watch(version)
}

// snapshot returns the version of a list, or the one after which a watch begins. A
// replica of the API server that lags behind may answer, but not with less than the client
// asks for. It returns false if the version is too old for a watch.
func (x *response) snapshot() (version int, ok bool) {
	now, _ := x.server.cluster.now()
	from := x.query.Get("resourceVersion")
	oldest, err := strconv.Atoi(from)
	if x.query.Has("watch") && !x.query.Has("sendInitialEvents") {
		if x.doubtful = x.source.isDoubtful(x.feed); !x.doubtful {
			x.source.received(x.feed, oldest, nil) // this is what the client knows
		}
		x.server.mu.Lock()
		defer x.server.mu.Unlock()
		return oldest, oldest >= x.server.compacted
	}
	if err != nil || x.IntN(3) > 0 || oldest > now {
		return now, true
	}
	return max(oldest, 10, now-x.IntN(8)), true
}

func (x *response) status(code int) bool {
	return x.body(code, x.failure(strings.ReplaceAll(http.StatusText(code), " ", ""), code), nil)
}

// failure returns a Status.
func (x *response) failure(reason string, code int) []byte {
	return encode(x.server.content, "v1", "Status", &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReason(reason), Code: int32(code)})
}

// body sends a response of known length.
func (x *response) body(code int, data []byte, read func()) bool {
	header := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", code, http.StatusText(code), x.server.content, len(data))
	return x.send(append(header, data...), read)
}

// objects returns the objects of a list.
func (x *response) objects(version int, probe bool) []*object {
	if x.metadata {
		return x.server.cluster.list(x.resource, version, x.selects)
	}
	known, _ := x.source.known(x.feed, time.Now())
	if !probe {
		x.source.listBegins(x.feed, version)
	}
	x.server.mu.Lock()
	empty := x.server.empty[x.resource] && !probe && known > 0 && len(x.server.cluster.stable(x.resource, known, x.selects)) > 0
	if empty {
		x.server.empty[x.resource] = false
	}
	x.server.mu.Unlock()
	objects := x.server.cluster.list(x.resource, version, x.selects)
	if empty && x.source.emptiedFirst(x.feed) {
		objects = nil
	}
	x.doubtful = x.source.doubts(x.server.cluster, x.feed, objects, x.selects)
	return objects
}

// list sends a list. A list of one object is a probe.
func (x *response) list(version int) bool {
	probe := x.query.Get("limit") == "1"
	objects := x.objects(version, probe)
	if probe {
		objects = objects[:min(len(objects), 1)]
	} else if !x.metadata {
		x.source.listSent(x.feed)
	}
	return x.body(http.StatusOK, encodeList(x.server.content, x.resource, version, objects), func() {
		if !probe && !x.metadata && !x.doubtful {
			x.source.received(x.feed, version, x.conn.out)
		}
	})
}

// event sends an event of a watch. The client knows the version once it has read it,
// unless that is zero.
func (x *response) event(kind string, object []byte, version int) bool {
	data := encodeEvent(x.server.content, kind, object)
	return x.send(fmt.Appendf(nil, "%x\r\n%s\r\n", len(data), data), func() {
		if version > 0 && !x.doubtful {
			x.source.received(x.feed, version, x.conn.out)
		}
	})
}

// stream sends the objects of a streamed list.
func (x *response) stream(version int) bool {
	for _, o := range x.objects(version, false) {
		if !x.event("ADDED", x.encode(o.api(x.resource, o.version)), 0) {
			return false
		}
	}
	x.source.listSent(x.feed)
	return x.bookmark(version, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

func (x *response) bookmark(version int, annotations map[string]string) bool {
	o := new(object).api(x.resource, version)
	o.SetAnnotations(annotations)
	return x.event("BOOKMARK", x.encode(o), version)
}

func (x *response) encode(o apiObject) []byte {
	return encode(x.server.content, x.resource.apiVersion(), x.resource.kind(), o)
}

// watch sends the changes after a version until the watch ends.
func (x *response) watch(version int) bool {
	seconds, _ := strconv.Atoi(x.query.Get("timeoutSeconds"))
	timeout := time.After(time.Duration(seconds) * time.Second)
	bookmarks := time.NewTicker(time.Minute - x.delay)
	defer bookmarks.Stop()
	if x.server.mute {
		bookmarks.Stop()
	}
	_, _, restarted, expired := x.server.state()
	for {
		now, changed := x.server.cluster.now()
		for _, c := range x.server.cluster.changes(x.resource, version, now, x.selects) {
			if x.server.lossy.Load() {
				continue
			}
			if !x.event(c.kind, x.encode(c.object.api(x.resource, c.version)), c.version) {
				return false
			}
		}
		version = max(version, now)
		select {
		case <-changed:
		case <-bookmarks.C:
			if !x.bookmark(version, nil) {
				return false
			}
		case <-expired:
			x.event("ERROR", x.failure("Expired", http.StatusGone), 0)
			return x.send([]byte("0\r\n\r\n"), nil)
		case <-timeout:
			return x.send([]byte("0\r\n\r\n"), nil)
		case <-restarted:
			return false
		case <-x.conn.out.closed:
			return false
		}
	}
}
