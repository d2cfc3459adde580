package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
)

// A world is one simulation.
type world struct {
	*rand.Rand
	seed      uint64
	dir       string // for snapshots
	tls       *certificate
	started   time.Time
	api       *apiServer
	upstreams [2][]*upstream
	due       time.Time // when the next step is due
	options   server.Options
	server    *machine
	secondary *secondary     // nil in worlds without one
	streams   *streamClients // nil in worlds without encrypted clients
	pages     *pages         // nil in worlds without status pages
	storage   *disk
	shortage  *shortage    // nil in worlds with enough memory
	handOvers *handOvers   // nil in worlds without hand-overs
	restarts  atomic.Int32 // of the server, begun
	down      atomic.Bool  // the server is being restarted

	mu        sync.Mutex
	events    []event  // the trace
	causes    []string // the events that the seed determines, in order
	failures  []string
	process   int // of the server: a hand-over begins another
	running   *process
	processes int // that were begun
	sources   map[sourceKey]*source
	queries   map[netip.AddrPort]*query
	asked     int
	waiting   int // queries without a reply
	skipped   int // replies for which too many answers are possible
	hosts     int
	loads     []period // of Corefiles
	shortages []period // of descriptors

	files     []*followedFile
	loaded    time.Time // when plan was loaded, or a hand-over from it has failed
	plan      *server.Plan
	serving   *settings     // of plan
	next      *settings     // of the plan that is starting, or nil
	served    []service     // the last one is of serving
	reloading chan struct{} // has an element while a plan is starting
}

// A service is the time for which a plan has answered.
type service struct {
	period
	settings *settings
}

// settings are the settings of a Corefile that the oracle must know.
type settings struct {
	source    *source
	upstreams int  // a set of upstreams
	tls       bool // to the upstreams
	reload    int  // seconds between two checks of followed files
	cached    bool
	stale     bool
	broken    string // an error in the Corefile
}

const (
	// longestStart bounds a start or a reload, which waits for the objects of the cluster
	// and for the queries of the old plan.
	longestStart = time.Minute
	longestStop  = time.Minute

	// firstSnapshot is how long after the lists the first snapshot may be written.
	firstSnapshot = 5 * time.Second

	staleFor = 20 * time.Second
	// maxParked is the number of parked queries with goroutines. A query without one
	// occupies an eighth.
	maxParked = 32
)

func newWorld(seed uint64, dir string, c *certificate) *world {
	w := &world{
		Rand: rand.New(rand.NewPCG(seed, 1)), seed: seed, dir: dir, tls: c, started: time.Now(), due: time.Now(),
		reloading: make(chan struct{}, 1), sources: map[sourceKey]*source{}, queries: map[netip.AddrPort]*query{},
	}
	w.storage = newDisk(w)
	w.server = newMachine(w, "10.0.0.1")
	w.api = newAPIServer(w)
	w.api.old, w.api.mute, w.api.content = w.IntN(4) == 0, w.IntN(6) == 0, []string{jsonType, protobufType}[w.IntN(2)]
	for set := range w.upstreams {
		zone := newZone(set)
		w.upstreams[set] = []*upstream{newUpstream(w, zone, 0), newUpstream(w, zone, 1)}
	}
	w.running = w.server.newProcess()
	w.options = w.processOptions(0, w.running)
	w.shortage = newShortage(w)
	w.handOvers = newHandOvers(w)
	w.files = []*followedFile{newFollowedFile(w, hostsZone), newFollowedFile(w, fileZone)}
	if w.IntN(3) == 0 {
		w.secondary = newSecondary(w)
	}
	if w.IntN(3) == 0 {
		w.streams = newStreamClients(w)
	}
	if w.IntN(10) == 0 {
		w.pages = newPages(w)
	}
	return w
}

// processOptions returns the options of a server, which is a process of its own.
func (w *world) processOptions(number int, p *process) server.Options {
	name := ""
	if number > 0 {
		name = fmt.Sprintf("process %d: ", number)
	}
	return server.Options{
		Directives: builtin.Directives(), Port: 53, Log: slog.New(logHandler{w, name}), Metrics: new(metrics.Registry),
		Open: p.open(w.replied), Dial: w.dialFrom(number), ListenTCP: p.listen, NoFileEvents: true, MaxParked: maxParked,
	}
}

// rand returns a source of random numbers for one decision. It does not depend on the order
// in which goroutines run.
func (w *world) rand(what string, numbers ...uint64) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, what, numbers)
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// trace adds a line to the trace.
func (w *world) trace(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event{time.Since(w.started), format, args})
}

// cause adds a line to the trace, and to the causes.
func (w *world) cause(format string, args ...any) {
	w.trace(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.causes = append(w.causes, fmt.Sprintf("%v ", time.Since(w.started))+fmt.Sprintf(format, args...))
}

// An event is a line of the trace, which is formatted only after a failure.
type event struct {
	at     time.Duration
	format string
	args   []any
}

func (e event) String() string {
	return fmt.Sprintf("%12.6f ", e.at.Seconds()) + fmt.Sprintf(e.format, e.args...)
}

// fail records a failure.
func (w *world) fail(format string, args ...any) {
	w.trace("FAILED "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

// report returns the trace, the failures, and the command that repeats the seed.
func (w *world) report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var text strings.Builder
	for _, e := range w.events {
		fmt.Fprintln(&text, e)
	}
	for _, f := range w.failures {
		fmt.Fprintln(&text, f)
	}
	fmt.Fprintf(&text, "replay with: go test ./test/simulation -run TestSimulation -first %d -seeds 1 -count 20", w.seed)
	return text.String()
}

// within calls f, and ends the process with a report if f has not returned after the limit:
// the goroutines of a server that hangs cannot be ended.
func (w *world) within(limit time.Duration, what string, f func()) {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		f()
	}()
	select {
	case <-returned:
	case <-time.After(limit):
		w.fail("%s: got no return within %v of virtual time", what, limit)
		panic(w.report() + "\n\n" + stacks())
	}
}

// printPanic prints a panic of the goroutine. Package synctest replaces it by one of its own, since other
// goroutines are left.
func (w *world) printPanic() {
	if cause := recover(); cause != nil {
		fmt.Fprintf(os.Stderr, "seed %d: panic: %v\n%s\n%s\n", w.seed, cause, debug.Stack(), w.report())
		panic(cause)
	}
}

// stuck returns the report of a world whose virtual clock does not move. Any of its mutexes
// may be locked.
func (w *world) stuck() string {
	text := fmt.Sprintf("seed %d: the world has not ended within %v of real time", w.seed, longestWorld)
	if w.mu.TryLock() {
		w.mu.Unlock()
		text += "\n" + w.report()
	}
	return text + "\n\n" + stacks()
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// A logHandler adds the server's log to the trace.
type logHandler struct {
	world  *world
	server string // "" for the first
}

func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h logHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h logHandler) WithGroup(string) slog.Handler            { return h }

func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	h.world.trace("log %s %s%s", r.Level, h.server, text)
	if strings.Contains(r.Message, "panicked") {
		h.world.fail("%s", text)
	}
	return nil
}

// runOut begins a shortage of descriptors, or ends it: connections that are open stay so.
func (w *world) runOut(short bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if n := len(w.shortages); n > 0 && w.shortages[n-1].end.IsZero() {
		w.shortages[n-1].end = now
	}
	if short {
		w.shortages = append(w.shortages, period{begin: now})
	}
}

// short reports whether descriptors were short at some time between two times.
func (w *world) short(from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.shortages, func(p period) bool { return p.overlaps(from, to) })
}

// dialFrom returns a function that connects a process of the server to the API server or to an upstream.
func (w *world) dialFrom(process int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return w.dial(ctx, process, network, address)
	}
}

func (w *world) dial(ctx context.Context, process int, network, address string) (net.Conn, error) {
	if now := time.Now(); w.short(now, now) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("socket", syscall.EMFILE)}
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return w.api.dial(ctx, w.source(process, strings.TrimSuffix(address, ":80")))
	}
	if at.Addr() == w.server.address { // health reads its own page
		return w.server.connect(w.server.address, at.Port())
	}
	if s := w.secondary; s != nil && at.Addr() == s.address {
		return s.notify(), nil
	} else if s != nil && at.Addr() == observerAddress {
		return s.observeNotified(), nil
	}
	for _, set := range w.upstreams {
		for _, u := range set {
			if u.address == at.Addr() {
				return u.dial(ctx, network, at.Port())
			}
		}
	}
	return nil, fmt.Errorf("dialing %s: no such server", address)
}

// A sourceKey is what tells the API server who asks: a process, and the host name in its Corefile.
type sourceKey struct {
	process int
	host    string
}

// source returns the source of the cluster's objects at a host name, of which each Corefile
// with other options for kubernetes has its own.
func (w *world) source(process int, host string) *source {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sources[sourceKey{process, host}]
}

// newSource returns a source of a process with a host name of its own.
func (w *world) newSource(process int, o sourceOptions) *source {
	w.mu.Lock()
	w.hosts++
	s := newSource(fmt.Sprintf("k%d", w.hosts), o)
	w.mu.Unlock()
	w.addSource(process, s)
	return s
}

func (w *world) addSource(process int, s *source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sources[sourceKey{process, s.host}] = s
}

// randomSource returns random options.
func randomSource(r *rand.Rand) sourceOptions {
	o := sourceOptions{ttl: []uint32{5, 6, 30}[r.IntN(3)], labels: r.IntN(4) == 0, snapshot: r.IntN(3) > 0, pods: []string{"disabled", "insecure", "verified"}[r.IntN(3)]}
	if r.IntN(4) == 0 {
		o.namespaces = []string{"shop", "bank kube-system"}[r.IntN(2)]
	}
	return o
}

// random returns random settings.
func (w *world) random(old *settings) *settings { return w.randomFrom(w.Rand, old) }

// randomFrom returns random settings, with the former source and upstreams more often than
// with others.
func (w *world) randomFrom(r *rand.Rand, old *settings) *settings {
	s := &settings{cached: r.IntN(4) > 0, stale: r.IntN(4) == 0, tls: r.IntN(4) == 0, reload: 1 + r.IntN(2)}
	if o := randomSource(r); old != nil && r.IntN(3) > 0 {
		s.source = old.source
	} else {
		s.source = newSource("", o) // see load
	}
	if old != nil && r.IntN(2) > 0 {
		s.upstreams = old.upstreams
	} else {
		s.upstreams = r.IntN(2)
	}
	if old != nil && r.IntN(4) == 0 {
		s.broken = []string{"}", "nonsense", "forward . 10.53.0.1 {\n", "kubernetes cluster.local {\n ttl x\n}", "cache 0 0 0 {\n"}[r.IntN(5)]
	}
	return s
}

func (s *settings) corefile(w *world) string {
	text := fmt.Sprintf("%s {\n%s kubernetes %s %s {\n%s }\n", w.keys("."), w.tlsDirective(), clusterZone, reverseZone, s.source.corefile(w.dir))
	if s.cached {
		text += " cache {\n"
		if s.stale {
			text += fmt.Sprintf("  serve_stale %v\n", staleFor)
		}
		text += " }\n"
	}
	text += " forward ."
	for _, u := range w.upstreams[s.upstreams] {
		if text += " "; s.tls {
			text += "tls://"
		}
		text += u.address.String()
	}
	if s.tls {
		text += " {\n  tls " + w.tls.file + "\n  tls_servername " + upstreamName + "\n }"
	}
	text += "\n" + w.secondary.transferTo() + w.pages.corefile(true) + s.broken + "\n}\n"
	for _, f := range w.files {
		text += f.corefile(s.reload)
	}
	return text
}

// load starts a Corefile, or reloads it.
func (w *world) load(s *settings) {
	w.reloading <- struct{}{} // a mutex would keep the virtual clock from moving
	defer func() { <-w.reloading }()
	w.start(s)
}

// start is a load that nothing else delays.
func (w *world) start(s *settings) {
	if w.serving == nil || s.source != w.serving.source {
		s.source = w.newSource(w.process, s.source.sourceOptions) // the server starts another watch
	}
	plan, err := w.planned(s, w.options)
	if err == nil {
		w.within(longestStart, "start", func() { err = plan.Start(context.Background(), w.plan) })
	}
	if s.broken != "" && err == nil {
		w.fail("a Corefile with an error was loaded: %q", s.broken)
	}
	if s.broken == "" && err != nil && w.serving == nil {
		panic(fmt.Sprintf("the server does not start: %v", err))
	}
	w.ended(s, plan, err)
}

// planned begins to load a Corefile.
func (w *world) planned(s *settings, o server.Options) (*server.Plan, error) {
	text := s.corefile(w)
	w.mu.Lock()
	w.loads = append(w.loads, period{begin: time.Now()})
	w.next = s
	w.mu.Unlock()
	w.trace("load %+v\n%s", *s, text)
	read := corefile.ReadText("Corefile", []byte(text))
	plan, err := server.NewPlan(read.Servers, o)
	if read.Err != nil {
		err = read.Err
	}
	return plan, err
}

// ended is called when a Corefile has been loaded: its plan serves unless there was an error.
func (w *world) ended(s *settings, plan *server.Plan, err error) {
	w.trace("loaded, error %v", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = nil
	w.loads[len(w.loads)-1].end = time.Now()
	if err == nil {
		w.plan, w.serving, w.loaded = plan, s, time.Now()
		if n := len(w.served); n > 0 {
			w.served[n-1].end = w.loaded
		}
		w.served = append(w.served, service{period{begin: w.loads[len(w.loads)-1].begin}, s})
	}
}
