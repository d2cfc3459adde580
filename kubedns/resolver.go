package kubedns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A Resolver turns Configs into Forwards in which servers are addresses alone: it
// looks the names of servers up, when a Config comes and every so often.
type Resolver struct {
	// Lookup gives a host's addresses, in any order. It is called from several
	// goroutines, for a name by one at a time, and has to return when its context
	// ends.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Interval is how often a name is looked up again; zero is 30 s.
	Interval time.Duration
	Log      *slog.Logger
}

const (
	interval = 30 * time.Second
	// lookupMost is how long one look-up may take.
	lookupMost = 5 * time.Second
	// patience is how long a new Config waits for its names. Its other servers can
	// be asked then, and a name's zone has no server until it is known.
	patience = time.Second
	// atOnce is how many names are looked up at the same time.
	atOnce = 16
)

// Run calls back with the Forwards of each Config that comes, when its names are
// known or a second later, and again whenever an address of theirs has changed;
// never twice with the same. It ends with ctx; configs must stay open until then.
// A name that cannot be resolved keeps the addresses that it had, and that is
// logged once.
func (r Resolver) Run(ctx context.Context, configs <-chan Config, apply func([]Forward)) {
	ctx, cancel := context.WithCancel(ctx)
	w := resolving{
		Resolver: r, apply: apply,
		known: map[string][]netip.Addr{}, failed: map[string]bool{}, asked: map[string]bool{},
		found: make(chan finding), turn: make(chan struct{}, atOnce),
	}
	defer w.lookups.Wait()
	defer cancel()
	ticker := time.NewTicker(cmp.Or(r.Interval, interval))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-configs:
			w.take(ctx, c)
		case <-w.late:
			w.late = nil
			w.show()
		case f := <-w.found:
			w.note(f)
		case <-ticker.C:
			w.lookUp(ctx)
		}
		if len(w.asked) == 0 && w.late != nil {
			w.late = nil
			w.show()
		}
	}
}

// A finding is what a look-up has given.
type finding struct {
	name  string
	addrs []netip.Addr // in order
	err   error
}

// A resolving is a Resolver at work. One goroutine owns it.
type resolving struct {
	Resolver
	apply   func([]Forward)
	config  Config
	names   []string // of config
	known   map[string][]netip.Addr
	failed  map[string]bool  // names of which the last look-up gave nothing
	asked   map[string]bool  // names that are being looked up
	late    <-chan time.Time // when a new Config has waited long enough; nil if there is none
	shown   []Forward
	found   chan finding
	turn    chan struct{} // has room for those who look up
	lookups sync.WaitGroup
}

// take begins with another Config. What is known of names that are in it too
// stays.
func (w *resolving) take(ctx context.Context, c Config) {
	w.config, w.names = c, c.names()
	gone := func(name string) bool {
		_, there := slices.BinarySearch(w.names, name)
		return !there
	}
	for name := range w.known {
		if gone(name) {
			delete(w.known, name)
		}
	}
	for name := range w.failed {
		if gone(name) {
			delete(w.failed, name)
		}
	}
	w.late = time.After(patience)
	w.lookUp(ctx)
}

// lookUp asks for all names, but those for which it is asking.
func (w *resolving) lookUp(ctx context.Context) {
	for _, name := range w.names {
		if w.asked[name] {
			continue
		}
		w.asked[name] = true
		w.lookups.Go(func() {
			f := finding{name: name}
			select {
			case w.turn <- struct{}{}:
				f.addrs, f.err = w.ask(ctx, name)
				<-w.turn
			case <-ctx.Done():
			}
			select {
			case w.found <- f:
			case <-ctx.Done():
			}
		})
	}
}

var errNoAddress = errors.New("it has no address")

// ask gives the addresses in one order, so that servers that take turns in an
// answer are no news.
func (w *resolving) ask(ctx context.Context, name string) (addrs []netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupMost)
	defer cancel()
	found, err := w.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, addr := range found {
		if addr.IsValid() && addr.Zone() == "" {
			addrs = append(addrs, addr.Unmap())
		}
	}
	if len(addrs) == 0 {
		return nil, errNoAddress
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), nil
}

// note takes in what has been found, and says once that a name is not, and once
// that it is again.
func (w *resolving) note(f finding) {
	delete(w.asked, f.name)
	if _, there := slices.BinarySearch(w.names, f.name); !there {
		return
	}
	switch {
	case f.err != nil && !w.failed[f.name]:
		w.failed[f.name] = true
		stays := "it is not asked until it has one"
		if n := len(w.known[f.name]); n > 0 {
			stays = fmt.Sprintf("the %d that it had stay", n)
		}
		w.Log.Warn(fmt.Sprintf("kubedns stub server %s: looking up its addresses: %v: %s", f.name, f.err, stays))
	case f.err == nil && w.failed[f.name]:
		delete(w.failed, f.name)
		w.Log.Info(fmt.Sprintf("kubedns stub server %s: it has an address now", f.name))
	}
	if f.err == nil {
		w.known[f.name] = f.addrs
		if w.late == nil { // a new Config is shown when all of it is known
			w.show()
		}
	}
}

// show calls back if there is news.
func (w *resolving) show() {
	now := w.config.forwards(func(name string) (servers []string) {
		for _, addr := range w.known[name] {
			servers = append(servers, Server{Addr: netip.AddrPortFrom(addr, 53)}.String())
		}
		return servers
	})
	if !equalForwards(now, w.shown) {
		w.shown = now
		w.apply(now)
	}
}
