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
	"syscall"
	"time"
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
	old     bool // does not stream lists, as before Kubernetes 1.32
	mute    bool // sends no bookmarks

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
	a.world.trace("API server %s", f)
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
		a.empty = [resources]bool{true, true, true}
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
func (a *apiServer) dial(ctx context.Context, host string) (net.Conn, error) {
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
		go a.serve(server, a.world.source(strings.TrimSuffix(host, ":80")))
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
	server   *apiServer
	conn     *conn
	source   *source
	resource resource
	query    url.Values
	started  bool // the header has been sent
	delay    time.Duration
	doubtful bool // the client waits for another list before it deletes anything
}

func (a *apiServer) response(c *conn, s *source, req *http.Request) *response {
	x := &response{server: a, conn: c, source: s, query: req.URL.Query()}
	for x.resource = namespaces; x.resource.String() != path.Base(req.URL.Path); x.resource++ {
	}
	a.mu.Lock()
	a.requests[x.resource]++
	n := a.requests[x.resource]
	a.mu.Unlock()
	x.Rand = a.world.rand("request", uint64(x.resource), n)
	x.delay = time.Duration(x.IntN(30_000)) * time.Microsecond
	a.world.trace("request %s %s %s", s.host, x.resource, req.URL.RawQuery)
	return x
}

func (x *response) kind() string {
	return [...]string{"Namespace", "Service", "EndpointSlice"}[x.resource]
}

func (x *response) apiVersion() string {
	return [...]string{"v1", "v1", "discovery.k8s.io/v1"}[x.resource]
}

// send sends a part of the response unless the API server misbehaves. read is called when
// the client has read it. send returns false if the response has broken off.
func (x *response) send(text string, read func()) bool {
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
		x.conn.send([]byte(text[:x.IntN(len(text))]), delay, nil)
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
	x.conn.send([]byte(text), delay, read)
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
	if !x.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", nil) {
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
		if !x.source.isDoubtful(x.resource) {
			x.source.received(x.resource, oldest, nil) // this is what the client knows
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
	text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, strings.ReplaceAll(http.StatusText(code), " ", ""), code)
	return x.send(fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", code, http.StatusText(code), len(text), text), nil)
}

// objects returns the objects of a list.
func (x *response) objects(version int, probe bool) []*object {
	known, _ := x.source.known(x.resource, time.Now())
	x.server.mu.Lock()
	// The server accepts a list that lacks two objects, where a namespace counts as many as
	// it has.
	empty := x.server.empty[x.resource] && !probe && known > 0 &&
		min(x.server.cluster.stable(x.resource, known), x.server.cluster.stable(services, known)) > 2
	if empty {
		x.server.empty[x.resource] = false
	}
	x.server.mu.Unlock()
	objects := x.server.cluster.list(x.resource, version)
	if empty {
		objects = nil
	}
	x.doubtful = x.source.doubts(x.server.cluster, x.resource, objects)
	return objects
}

// list sends a list. A list of one object is a probe.
func (x *response) list(version int) bool {
	probe := x.query.Get("limit") == "1"
	var items []string
	for _, o := range x.objects(version, probe) {
		items = append(items, o.json(x.resource, o.version))
	}
	if probe {
		items = items[:min(len(items), 1)]
	} else {
		x.source.listSent(x.resource)
	}
	text := fmt.Sprintf(`{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[%s]}`, x.kind(), x.apiVersion(), version, strings.Join(items, ","))
	return x.send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text), func() {
		if !probe && !x.doubtful {
			x.source.received(x.resource, version, x.conn.out)
		}
	})
}

// event sends an event of a watch. The client knows the version once it has read it,
// unless that is zero.
func (x *response) event(kind, object string, version int) bool {
	text := fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object)
	return x.send(fmt.Sprintf("%x\r\n%s\r\n", len(text), text), func() {
		if version > 0 && !x.doubtful {
			x.source.received(x.resource, version, x.conn.out)
		}
	})
}

// stream sends the objects of a streamed list.
func (x *response) stream(version int) bool {
	for _, o := range x.objects(version, false) {
		if !x.event("ADDED", o.json(x.resource, o.version), 0) {
			return false
		}
	}
	x.source.listSent(x.resource)
	return x.bookmark(version, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
}

func (x *response) bookmark(version int, more string) bool {
	object := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"%s}}`, x.kind(), x.apiVersion(), version, more)
	return x.event("BOOKMARK", object, version)
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
		for _, c := range x.server.cluster.changes(x.resource, version, now) {
			if !x.event(c.kind, c.object.json(x.resource, c.version), c.version) {
				return false
			}
		}
		version = max(version, now)
		select {
		case <-changed:
		case <-bookmarks.C:
			if !x.bookmark(version, "") {
				return false
			}
		case <-expired:
			x.event("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`, 0)
			return x.send("0\r\n\r\n", nil)
		case <-timeout:
			return x.send("0\r\n\r\n", nil)
		case <-restarted:
			return false
		case <-x.conn.out.closed:
			return false
		}
	}
}

// A source is what one watch of the cluster by the server knows of it.
type source struct {
	host  string
	mu    sync.Mutex
	sent  [resources]bool // the end of a list has been sent
	marks [resources][]mark
	doubt [resources]time.Time // of the first list that has to be confirmed
}

// A mark is a version of which the client has received all changes.
type mark struct {
	version int
	at      time.Time
	queue   *queue // over which it was received; nil if the client has named the version
}

// confirmation is how long the server waits at least for a list that confirms another
// one, which lacks most objects.
const confirmation = 10 * time.Second

// doubts reports whether a list may lack so many of the objects that the server may know
// that it deletes nothing until another list confirms it.
func (s *source) doubts(c *cluster, r resource, list []*object) bool {
	known, _ := s.known(r, time.Now())
	if known == 0 {
		return false
	}
	missing := c.missing(r, list, known)
	s.mu.Lock()
	defer s.mu.Unlock()
	most := max(2, len(list))
	if r == namespaces {
		most = 0 // a namespace counts as many objects as it has
	}
	if missing <= most {
		s.doubt[r] = time.Time{}
		return false
	}
	if s.doubt[r].IsZero() {
		s.doubt[r] = time.Now()
	}
	return time.Since(s.doubt[r]) < confirmation
}

// isDoubtful reports whether the last list has to be confirmed.
func (s *source) isDoubtful(r resource) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.doubt[r].IsZero()
}

func (s *source) listSent(r resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[r] = true
}

// received is called when the client reads the end of a list, an event or a bookmark.
func (s *source) received(r resource, version int, q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks[r] = append(s.marks[r], mark{version, time.Now(), q})
}

// known returns the version of which the server has processed all changes. The virtual
// clock moves only when all goroutines wait, so everything that it received before this
// instant has been processed. A connection that it closed as soon as it received the
// change was that of a probe. Without a complete list known is zero, and listed reports
// whether a list may just have been completed.
func (s *source) known(r resource, now time.Time) (version int, listed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.marks[r] {
		if m.version > version && m.at.Before(now) && (m.queue == nil || m.queue.openAfter(m.at)) {
			version = m.version
		}
	}
	return version, s.sent[r]
}
