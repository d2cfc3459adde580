// Package config is the contract between the directives and the server:
// Directive, Block and Start. Package builtin lists the directives, package
// server calls their Setup, and Setup adds handlers to a Block. Package config
// neither parses text (see corefile) nor runs a server (see server).
package config

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/descriptors"
	"github.com/seamark/seamark/sys/generation"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/wire"
)

// A Directive is a word that a Corefile may use. The order of the list of
// directives is the order of their handlers in the chain.
type Directive struct {
	Name  string
	Usage string // its syntax without options: "forward FROM TO..."
	Brief string // its purpose, in one line
	// Answers reports whether the directive may answer queries by itself. A
	// server block without such a directive gets a warning.
	Answers bool
	// Setup is called once for each server block that uses the directive, with
	// every use in source order. It checks all that can be checked without
	// opening a socket, starting a goroutine or contacting a server, returns
	// every error it finds (see errors.Join), and adds handlers to b.
	Setup func(b *Block, uses []corefile.Directive) error
}

// A Block is one server block during its setup. All zones and addresses of the
// block share it.
type Block struct {
	Zones   []wire.Name // the zones of its keys, CIDRs expanded; at least one
	Ports   []string    // the ports of its keys
	Schemes []Scheme    // the schemes of its keys
	Source  corefile.Server
	Log     *slog.Logger
	JSONLog bool // lines for standard output are JSON objects
	Metrics *metrics.Registry
	Memory  *memory.Budget
	// Shared has what all plans of the server share, for Share.
	Shared *Shared
	// Generations counts the changes of data for replies that are repeated until then (see
	// [dns.Query.AllowRepeat]); nil if no replies are repeated.
	Generations *generation.Cells
	// Unrepeated are the directives because of which replies of the block are not repeated, at one of its
	// addresses or more. The server sets it before Swapped.
	Unrepeated []string
	// Dial connects to API servers and upstreams; nil uses the operating system.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// NoFileEvents makes hosts, file and tls rely on their checks for changed files alone.
	NoFileEvents bool

	// Chain is the block's chain of handlers. Add to it with Handle.
	Chain *dns.Chain

	warnings []error
	extents  []Extent
	handlers []offer
	planned  []func() error
	start    []func(*Start) error
	swap     []func()
	discard  []func()
	shutdown []func(context.Context)
	name     string

	findMu sync.Mutex
	found  map[reflect.Type]*finding // the results of Find
}

// A finding has the values of a type, a []T, among the first handlers.
type finding struct {
	values any
	read   int // the number of handlers
}

// An offer is a handler and the directive that made it.
type offer struct {
	name string
	v    any
}

// SetDirective names the directive whose Setup is called next. Only the server
// calls it.
func (b *Block) SetDirective(name string) { b.name = name }

// Warn records a problem with a configuration that can be served all the same.
// The error must have a position: create it with Errorf of the directive or of
// its argument. The command check prints it, and serve logs it.
func (b *Block) Warn(err error) { b.warnings = append(b.warnings, err) }

// WarnExposed warns of files with keys or tokens, which d names, that all users can read.
func (b *Block) WarnExposed(d corefile.Directive, paths ...string) {
	for _, path := range paths {
		if err := watch.Exposed(path); err != nil {
			b.Warn(d.Errorf("%w", err))
		}
	}
}

// Warnings returns the errors passed to Warn.
func (b *Block) Warnings() []error { return b.warnings }

// Handle adds a handler to the chain: a dns.Handler, a dns.Resolver or both. If
// it also implements dns.Finisher or dns.Observer, it is used as such.
func (b *Block) Handle(h any) {
	b.Chain.Add(b.name, h)
	b.Offer(h)
}

// NewStateKey returns a key under which a handler stores state in the block's
// queries.
func (b *Block) NewStateKey() dns.StateKey { return b.Chain.NewStateKey() }

// Path returns the path of a file that a directive names. The directive root
// sets the directory of relative paths; without it they are relative to the
// working directory. Path("") returns that directory, "" without root.
func (b *Block) Path(file string) string {
	for _, r := range Find[interface{ Root() string }](b) {
		if !filepath.IsAbs(file) {
			return filepath.Join(r.Root(), file)
		}
	}
	return file
}

// Offer makes v available to Find without adding it to the chain. If v is a
// dns.Observer, it observes the chain.
func (b *Block) Offer(v any) {
	if o, ok := v.(dns.Observer); ok {
		b.Chain.Observe(o)
	}
	b.handlers = append(b.handlers, offer{b.name, v})
}

// Observers returns the names of the directives that observe the block's replies,
// in order.
func (b *Block) Observers() (names []string) {
	for _, h := range b.handlers {
		if _, ok := h.v.(dns.Observer); ok {
			names = append(names, h.name)
		}
	}
	return names
}

// Unrepeatable returns the name of a directive that has to see each query, so that no reply
// of the block is repeated without the server (dns.Repeatable); "" if there is none.
func (b *Block) Unrepeatable() string {
	for _, h := range b.handlers {
		_, repeatable := h.v.(dns.Repeatable)
		switch h.v.(type) {
		case dns.Handler, dns.Resolver, dns.Observer:
			if !repeatable {
				return h.name
			}
		}
	}
	return ""
}

// Find returns the values passed to Handle and Offer that have type T, in chain
// order. The result is complete only after every Setup: call Find in OnPlanned or
// later. It is not to be changed.
func Find[T any](b *Block) []T {
	b.findMu.Lock()
	defer b.findMu.Unlock()
	f := b.found[reflect.TypeFor[T]()]
	if f == nil {
		if b.found == nil {
			b.found = map[reflect.Type]*finding{}
		}
		f = &finding{values: []T(nil)}
		b.found[reflect.TypeFor[T]()] = f
	}

	// Each of thousands of directives may ask, so each handler is read once for a type.
	values := f.values.([]T)
	if f.read < len(b.handlers) {
		for _, h := range b.handlers[f.read:] {
			if t, ok := h.v.(T); ok {
				values = append(values, t)
			}
		}
		f.values, f.read = values, len(b.handlers)
	}
	return slices.Clip(values)
}

// NameOf returns the name of the directive that passed v to Handle or Offer, or
// "" if none did. v must be comparable.
func (b *Block) NameOf(v any) string {
	for _, h := range b.handlers {
		if h.v == v {
			return h.name
		}
	}
	return ""
}

// OnPlanned registers a function that runs when every directive of every block
// has been set up. It must not open sockets or files.
func (b *Block) OnPlanned(f func() error) { b.planned = append(b.planned, f) }

// OnStart registers a function that opens sockets and files and starts watches.
// If it returns an error, the start fails and the old plan continues to serve.
func (b *Block) OnStart(f func(*Start) error) { b.start = append(b.start, f) }

// OnSwap registers a function that runs when the new plan begins to serve. It
// must not block.
func (b *Block) OnSwap(f func()) { b.swap = append(b.swap, f) }

// OnDiscard registers a function that runs if the plan never serves: its setup or its start has
// failed. What was created by Keep is stopped before that.
func (b *Block) OnDiscard(f func()) { b.discard = append(b.discard, f) }

// OnShutdown registers a function that runs when the process has received a
// signal to stop and still answers queries. It may block until ctx ends. A reload
// does not call it.
func (b *Block) OnShutdown(f func(ctx context.Context)) { b.shutdown = append(b.shutdown, f) }

// Planned runs the functions passed to OnPlanned and returns their errors. Only
// the server calls it.
func (b *Block) Planned() (errs []error) {
	for _, f := range b.planned {
		if err := f(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Started runs the functions passed to OnStart up to the first error. Only the
// server calls it.
func (b *Block) Started(s *Start) error {
	for _, f := range b.start {
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}

// Swapped runs the functions passed to OnSwap. Only the server calls it.
func (b *Block) Swapped() {
	for _, f := range b.swap {
		f()
	}
}

// Discarded runs the functions passed to OnDiscard. Only the server calls it.
func (b *Block) Discarded() {
	for _, f := range b.discard {
		f()
	}
}

// Shutdown runs the functions that the blocks passed to OnShutdown, concurrently,
// and returns when all have returned. Only the server calls it, before it stops
// any resource.
func Shutdown(ctx context.Context, blocks ...*Block) {
	var running sync.WaitGroup
	for _, b := range blocks {
		for _, f := range b.shutdown {
			running.Go(func() { f(ctx) })
		}
	}
	running.Wait()
}

// Shared holds values that outlive a plan, even one that never starts. The zero value is empty.
type Shared struct {
	// Health has what parts of the server have found to be wrong.
	Health health.Board

	mu     sync.Mutex
	values map[any]any
}

// Health returns the board on which parts of the server report what is wrong; nil without Shared.
func (b *Block) Health() *health.Board {
	if b.Shared == nil {
		return nil
	}
	return &b.Shared.Health
}

// WhyUnready returns the reason why a handler with the method Ready is not ready, "" if it does not
// know it.
func WhyUnready(handler any) string {
	if h, ok := handler.(interface{ Unready() string }); ok {
		return h.Unready()
	}
	return ""
}

// Share returns the value with a key, which create makes if there is none. A Block without Shared
// shares nothing. The type of the key is private to the caller's package.
func Share[T any](b *Block, key any, create func() T) T {
	s := b.Shared
	if s == nil {
		return create()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.values[key].(T); ok {
		return t
	}

	t := create()
	if s.values == nil {
		s.values = map[any]any{}
	}
	s.values[key] = t
	return t
}

// A Stopper is a resource that survives reloads. Stop releases it when no plan
// uses it any more, and returns when that is done.
type Stopper interface{ Stop() }

// A Start is the start of a plan, which may replace another plan.
type Start struct {
	// Context ends when the start is cancelled.
	Context context.Context
	// Reload reports whether an older plan serves during the start, so that
	// OnStart may wait until data is loaded. Otherwise the sockets open after
	// OnStart returns.
	Reload bool
	// Observes is set for a command beside the server: its resources yield (see Yielder) as long as they exist, so
	// that it writes none of the server's files, and it reports no Events.
	Observes bool
	// Taken holds sockets of the process that this one replaces, for Listen, and
	// Saved the data of its States, for Data.
	Taken, Saved map[string]*os.File
	// ListenTCP replaces the operating system for Listen unless it is nil.
	ListenTCP func(ctx context.Context, network, address string) (net.Listener, error)
	// Crypto has the slots of clients for signatures, and for handshakes of TLS. Descriptors
	// bounds the connections of all listeners. All plans of a server share them.
	Crypto      *slots.Pool
	Descriptors *descriptors.Budget
	Metrics     *metrics.Registry

	old, kept       map[keptKey]Stopper
	oldOrder, order []keptKey // of the calls of Keep
	created         []keptKey // in the order of creation
}

type keptKey struct {
	value reflect.Type
	key   any
}

// NewStart returns a start that can take over the resources of old, which may be
// nil.
func NewStart(ctx context.Context, old *Start) *Start {
	s := &Start{Context: ctx, kept: map[keptKey]Stopper{}}
	if old == nil {
		s.Crypto, s.Descriptors, s.Metrics = slots.NewProcessors(), descriptors.New(), new(metrics.Registry)
		return s
	}
	s.Reload, s.old, s.oldOrder = true, old.kept, old.order
	s.Crypto, s.Descriptors, s.Metrics = old.Crypto, old.Descriptors, old.Metrics
	return s
}

// InPlan is a key for Keep of what each plan makes for itself.
type InPlan struct {
	Plan *Start
	Key  any
}

// Keep returns the resource that has a type and a key: the one of this plan if it
// exists, else the one of the old plan, else a new one from create. The key must be
// comparable and contain everything that identifies the resource among those of its
// type, T; it is nil if a server has only one.
func Keep[T Stopper](s *Start, key any, create func() (T, error)) (T, error) {
	k := keptKey{reflect.TypeFor[T](), key}
	if t, ok := s.kept[k].(T); ok {
		return t, nil
	}
	if t, ok := s.old[k].(T); ok {
		s.keep(k, t)
		return t, nil
	}

	t, err := create()
	if err != nil {
		return t, err
	}
	if y, ok := any(t).(Yielder); ok && s.Observes {
		y.Yield()
	}
	s.keep(k, t)
	s.created = append(s.created, k)
	return t, nil
}

func (s *Start) keep(key keptKey, resource Stopper) {
	s.kept[key] = resource
	s.order = append(s.order, key)
}

// Old returns the resources of the old plan that have a type and that this one has not kept.
func Old[T any](s *Start) (old []T) {
	for key, resource := range s.old {
		if t, ok := resource.(T); ok && s.kept[key] != resource {
			old = append(old, t)
		}
	}
	return old
}

// Await blocks, during a reload, until ready is closed, since the old plan serves
// meanwhile. A function passed to Keep calls it for the resource r that it has
// created. After the timeout, Await returns the error of late. It stops r if it
// returns an error.
func (s *Start) Await(r Stopper, ready <-chan struct{}, timeout time.Duration, late func() error) (err error) {
	if !s.Reload {
		return nil
	}

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ready:
	case <-timer.C:
		err = late()
	case <-s.Context.Done():
		err = s.Context.Err()
	}

	if err != nil {
		r.Stop()
	}
	return err
}

// Commit stops the resources that only the old plan used, the last one first: it may use those before it. The new
// plan serves.
func (s *Start) Commit() {
	for _, key := range slices.Backward(s.oldOrder) {
		if resource := s.old[key]; s.kept[key] != resource {
			resource.Stop()
		}
	}
	s.old, s.oldOrder, s.created = nil, nil, nil
}

// Abort stops the resources that this start created, the last one first. The old
// plan continues to serve.
func (s *Start) Abort() {
	for i := len(s.created) - 1; i >= 0; i-- {
		s.kept[s.created[i]].Stop()
	}
	s.kept, s.order, s.created = nil, nil, nil
}

// Stop stops all resources of the plan, the last one first.
func (s *Start) Stop() {
	for _, key := range slices.Backward(s.order) {
		s.kept[key].Stop()
	}
	s.kept, s.order = nil, nil
}
