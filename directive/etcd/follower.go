package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/internal/etcdclient"
	"github.com/seamark/seamark/wire"
)

// firstTime is how long the configuration in etcd is waited for at the start, and
// nobody is answered.
const firstTime = 2 * time.Second

// A Follower makes a Corefile of SkyDNS's flags and of what etcd has for it: the
// configuration, which counts before the flags, and the stub zones if they are
// asked for. It tells when that is something else. What is wrong there is logged,
// and what was before stays.
type Follower struct {
	flags  Flags
	getenv func(string) string
	check  func([]corefile.Server) error // whether they can be served
	log    *slog.Logger

	cancel  context.CancelFunc
	task    sync.WaitGroup
	known   chan struct{} // closed once etcd has been read
	changed chan struct{} // has room for one

	mu    sync.Mutex
	now   Flags
	stubs []Stub
	said  string // what was wrong last
}

// NewFollower begins to follow; Stop ends it. The flags have been checked.
func NewFollower(flags Flags, getenv func(string) string, check func([]corefile.Server) error, log *slog.Logger) *Follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Follower{
		flags: flags, now: flags, getenv: getenv, check: check, log: log,
		cancel: cancel, known: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	f.task.Go(func() { f.run(ctx) })
	return f
}

// run follows the configuration, and the stub zones where that has them: their keys
// are those of names in the domain, which it may change.
func (f *Follower) run(ctx context.Context) {
	base := f.flags.stubKey()
	for ctx.Err() == nil {
		few := etcdclient.Few{Options: f.flags.Etcd, Prefixes: []string{f.flags.configKey()}, Log: f.log}
		if f.flags.StubZones {
			few.Prefixes = append(few.Prefixes, base+"/")
		}
		whole, end := context.WithCancel(ctx)
		few.Run(whole, func(keys map[string]string) {
			if before := base; whole.Err() == nil {
				if base = f.take(keys, base); base != before {
					end()
				}
			}
		})
		end()
	}
}

// Stop ends it.
func (f *Follower) Stop() {
	f.cancel()
	f.task.Wait()
}

// Changed gets a value when Read may give something else.
func (f *Follower) Changed() <-chan struct{} { return f.changed }

// Read gives the Corefile. The first time it waits for etcd, for two seconds at
// most.
func (f *Follower) Read() corefile.Reading {
	timeout := time.NewTimer(firstTime)
	defer timeout.Stop()
	select {
	case <-f.known:
	case <-timeout.C:
		f.log.Warn(fmt.Sprintf("no answer of etcd within %v: the flags count until it answers", firstTime))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begin()
	text, err := f.now.Corefile(f.stubs, f.getenv)
	if err != nil {
		return corefile.Reading{Err: err}
	}
	return corefile.ReadText("(skydns)", []byte(text))
}

// begin says that nobody has to wait any more. Its caller has the lock.
func (f *Follower) begin() {
	select {
	case <-f.known:
	default:
		close(f.known)
	}
}

// take reads what etcd has, with the stub zones below base, and says where they are.
// If that is elsewhere, nothing has been done: they have to be read first.
func (f *Follower) take(keys map[string]string, base string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, stubs := f.flags, []Stub(nil)
	var wrong []string
	if text, there := keys[f.flags.configKey()]; there {
		configured, err := f.flags.configured(text)
		if err == nil {
			now = configured
		} else {
			now = f.now
			wrong = append(wrong, fmt.Sprintf("%s: %v", f.flags.configKey(), err))
		}
	}
	if f.flags.StubZones {
		if other := now.stubKey(); other != base {
			return other
		}
		var bad []string
		stubs, bad = stubsOf(base, keys)
		wrong = append(wrong, bad...)
	}
	now, stubs, bad := f.served(now, stubs)
	wrong = append(wrong, bad...)
	f.now, f.stubs = now, stubs
	if said := strings.Join(wrong, "; "); said != f.said {
		f.said = said
		if said != "" {
			f.log.Warn("configuration in etcd: " + strings.ReplaceAll(said, "\n", "; "))
		}
	}
	f.begin()
	select {
	case f.changed <- struct{}{}:
	default: // it is known already
	}
	return base
}

// served gives what of the configuration and of the stub zones can be served, and
// what is wrong with the rest. Its caller has the lock.
func (f *Follower) served(now Flags, stubs []Stub) (Flags, []Stub, []string) {
	try := func(now Flags, stubs ...Stub) error {
		text, err := now.Corefile(stubs, f.getenv)
		if err == nil {
			r := corefile.ReadText("(skydns)", []byte(text))
			if err = r.Err; err == nil {
				err = f.check(r.Servers)
			}
		}
		return err
	}
	if try(now, stubs...) == nil {
		return now, stubs, nil
	}
	var wrong []string
	if err := try(now); err != nil {
		wrong = append(wrong, fmt.Sprintf("%s: %v", f.flags.configKey(), err))
		now = f.now
	}
	var good []Stub
	for _, s := range stubs {
		if err := try(now, append(slices.Clip(good), s)...); err != nil {
			wrong = append(wrong, fmt.Sprintf("stub zone %s: %v", s.Zone, err))
			continue
		}
		good = append(good, s)
	}
	return now, good, wrong
}

// stubsOf reads the stub zones: the name of one, from the top, stands behind base
// in a key, and its servers are the messages there.
func stubsOf(base string, keys map[string]string) (stubs []Stub, wrong []string) {
	servers := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		rest, below := strings.CutPrefix(key, base+"/")
		if !below {
			continue
		}
		labels := strings.Split(rest, "/")
		m, err := parse([]byte(keys[key]))
		if err == nil && (len(labels) < 2 || !m.addr.IsValid()) {
			err = fmt.Errorf("want ZONE/SERVER with the address of a server for host")
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", key, err))
			continue
		}
		labels = labels[:len(labels)-1]
		dotted := slices.ContainsFunc(labels, func(l string) bool { return l == "" || strings.Contains(l, ".") })
		slices.Reverse(labels)
		zone := strings.ToLower(strings.Join(labels, "."))
		if dotted || !isZone(zone) {
			wrong = append(wrong, fmt.Sprintf("%s: %q is no zone", key, zone))
			continue
		}
		port := m.port
		if port == 0 {
			port = 53
		}
		servers[zone] = append(servers[zone], netip.AddrPortFrom(m.addr, port).String())
	}
	for _, zone := range slices.Sorted(maps.Keys(servers)) {
		all := slices.Compact(slices.Sorted(slices.Values(servers[zone])))
		stubs = append(stubs, Stub{zone, all[:min(len(all), mostServers)]})
	}
	return stubs, wrong
}

// isZone says whether a zone can be written in a Corefile, where some characters mean
// something.
func isZone(text string) bool {
	_, err := wire.ParseName(text)
	return err == nil && !strings.ContainsFunc(text, func(c rune) bool {
		return c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}
