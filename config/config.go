// Package config is the contract between a word of a Corefile and what it
// makes: Directive, Block and Start. Package builtin lists the directives;
// package server calls them; handlers implement them. It reads no text
// (corefile does) and runs nothing (server does).
package config

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
)

// A Directive is a word that a Corefile may use. Its place in the list of
// directives is its place in the chain.
type Directive struct {
	Name  string
	Usage string // its syntax without options: "forward FROM TO..."
	Brief string // its purpose, in one line
	// Answers reports whether the directive may answer queries by itself. A
	// server block without such a directive gets a warning.
	Answers bool
	// Setup is called once for each server block that uses the word, with every
	// use of it there, in source order. It checks everything that can be
	// checked without a socket, a goroutine or another server, reports every
	// error it finds (errors.Join), and adds what it makes to b.
	Setup func(b *Block, uses []corefile.Directive) error
}

// A Block is one server block under construction. The zones and addresses of a
// block share it.
type Block struct {
	Zones   []wire.Name // of its keys, CIDRs expanded; at least one
	Ports   []string    // of its keys
	Source  corefile.Server
	Log     *slog.Logger
	Metrics *metrics.Registry

	// Chain is what the block's queries walk. Handlers are added with Handle.
	Chain *dns.Chain

	warnings []error
	handlers []offer
	planned  []func() error
	start    []func(*Start) error
	swap     []func()
	shutdown []func(context.Context)
	name     string
}

// An offer is a handler and the directive that made it.
type offer struct {
	name string
	v    any
}

// Begin names the directive whose Setup comes next. Only the server calls it.
func (b *Block) Begin(name string) { b.name = name }

// Warn records a problem that does not keep the configuration from being served.
// The error has a position: make it with Errorf of the directive or of its
// argument. check prints it, and serve logs it.
func (b *Block) Warn(err error) { b.warnings = append(b.warnings, err) }

// Warnings returns the errors passed to Warn.
func (b *Block) Warnings() []error { return b.warnings }

// Handle adds a handler to the chain: a dns.Handler, a dns.Resolver or both.
// If it is a dns.Finisher or dns.Observer too, it is used as that.
func (b *Block) Handle(h any) {
	b.Chain.Add(b.name, h)
	b.Offer(h)
}

// NewStateKey gives a handler a place of its own for state in the block's queries.
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

// Offer makes v known to Find, and an observer of the chain if it is a
// dns.Observer, without a place in the walk.
func (b *Block) Offer(v any) {
	if o, ok := v.(dns.Observer); ok {
		b.Chain.Observe(o)
	}
	b.handlers = append(b.handlers, offer{b.name, v})
}

// Observers names the directives that look at the block's replies, in order.
func (b *Block) Observers() (names []string) {
	for _, h := range b.handlers {
		if _, ok := h.v.(dns.Observer); ok {
			names = append(names, h.name)
		}
	}
	return names
}

// Find gives those handlers of b that are a T, in chain order. It is complete
// only when every Setup has run: call it in OnPlanned or later.
func Find[T any](b *Block) []T {
	var found []T
	for _, h := range b.handlers {
		if t, ok := h.v.(T); ok {
			found = append(found, t)
		}
	}
	return found
}

// NameOf is the directive that gave v to Handle or Offer; "" if none did. v is
// comparable: what Find has found, if handlers are pointers.
func (b *Block) NameOf(v any) string {
	for _, h := range b.handlers {
		if h.v == v {
			return h.name
		}
	}
	return ""
}

// OnPlanned registers a second pass: it runs when every directive of every
// block has been set up, and still opens nothing.
func (b *Block) OnPlanned(f func() error) { b.planned = append(b.planned, f) }

// OnStart registers what opens sockets, files and watches. An error leaves the
// old server as it is.
func (b *Block) OnStart(f func(*Start) error) { b.start = append(b.start, f) }

// OnSwap registers what must happen when the new plan begins to serve: it
// cannot fail and must not block.
func (b *Block) OnSwap(f func()) { b.swap = append(b.swap, f) }

// OnShutdown registers what must happen when the process has been told to stop
// and still serves as before: f may wait for as long as it likes, but no longer
// than until ctx ends. A reload is no shutdown.
func (b *Block) OnShutdown(f func(ctx context.Context)) { b.shutdown = append(b.shutdown, f) }

// Planned, Started and Swapped run what was registered, in order.
// Only the server calls them.
func (b *Block) Planned() (errs []error) {
	for _, f := range b.planned {
		if err := f(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Started stops at the first error.
func (b *Block) Started(s *Start) error {
	for _, f := range b.start {
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}

// Swapped cannot fail.
func (b *Block) Swapped() {
	for _, f := range b.swap {
		f()
	}
}

// Shutdown runs everything that OnShutdown registered, of all blocks at once,
// and returns when all have returned: the longest wait is the whole wait. Only
// the server calls it, before it stops anything.
func Shutdown(ctx context.Context, blocks ...*Block) {
	var all sync.WaitGroup
	for _, b := range blocks {
		for _, f := range b.shutdown {
			all.Go(func() { f(ctx) })
		}
	}
	all.Wait()
}

// A Stopper is something that outlives a reload: Stop ends it when no plan
// wants it any more, and returns when it has ended.
type Stopper interface{ Stop() }

// A Start is one plan being started in place of another.
type Start struct {
	// Context ends when the start is given up.
	Context context.Context
	// Reload says that an older plan is serving meanwhile, so that there is
	// time to get ready; otherwise the sockets open as soon as Start is done.
	Reload bool

	old, kept map[any]Stopper
	made      []any // keys, in order
}

// NewStart begins a start that may take over what old keeps; old may be nil.
func NewStart(ctx context.Context, old *Start) *Start {
	s := &Start{Context: ctx, kept: map[any]Stopper{}}
	if old != nil {
		s.Reload, s.old = true, old.kept
	}
	return s
}

// Keep returns what has the key: of this plan if it was asked for already, or
// taken over from the old plan, or else made now. A key is comparable and holds
// all that gives the thing its identity; its type is private to whoever keeps
// it.
func Keep[T Stopper](s *Start, key any, make func() (T, error)) (T, error) {
	if t, ok := s.kept[key].(T); ok {
		return t, nil
	}
	if t, ok := s.old[key].(T); ok {
		s.kept[key] = t
		return t, nil
	}
	t, err := make()
	if err != nil {
		return t, err
	}
	s.kept[key] = t
	s.made = append(s.made, key)
	return t, nil
}

// Commit stops what only the old plan kept: the new one serves.
func (s *Start) Commit() {
	for key, thing := range s.old {
		if s.kept[key] != thing {
			thing.Stop()
		}
	}
	s.old, s.made = nil, nil
}

// Abort stops what this start made, last first: the old plan goes on.
func (s *Start) Abort() {
	for i := len(s.made) - 1; i >= 0; i-- {
		s.kept[s.made[i]].Stop()
	}
	s.kept, s.made = nil, nil
}

// Stop ends everything that is kept.
func (s *Start) Stop() {
	for _, thing := range s.kept {
		thing.Stop()
	}
	s.kept = nil
}
