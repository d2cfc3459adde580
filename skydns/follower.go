package skydns

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
	"github.com/seamark/seamark/etcd"
	"github.com/seamark/seamark/wire"
)

// firstTime is how long the configuration in etcd is waited for at the start.
const firstTime = 5 * time.Second

// A Follower makes a Corefile of SkyDNS's flags and of what etcd has for it: the
// configuration, which counts before the flags, and the stub zones if they are
// asked for. It tells when that is something else. What is wrong there is logged,
// and what was before stays.
type Follower struct {
	flags  Flags
	getenv func(string) string
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
func NewFollower(flags Flags, getenv func(string) string, log *slog.Logger) *Follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Follower{
		flags: flags, now: flags, getenv: getenv, log: log,
		cancel: cancel, known: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	few := etcd.Few{Options: flags.Etcd, Prefixes: []string{flags.configKey()}, Log: log}
	if flags.StubZones {
		few.Prefixes = append(few.Prefixes, flags.stubKey()+"/")
	}
	f.task.Go(func() { few.Run(ctx, f.take) })
	return f
}

// Stop ends it.
func (f *Follower) Stop() {
	f.cancel()
	f.task.Wait()
}

// Changed gets a value when Read may give something else.
func (f *Follower) Changed() <-chan struct{} { return f.changed }

// Read gives the Corefile. The first time it waits for etcd, for five seconds at
// most.
func (f *Follower) Read() corefile.Reading {
	timeout := time.NewTimer(firstTime)
	defer timeout.Stop()
	select {
	case <-f.known:
	case <-timeout.C:
		f.log.Warn(fmt.Sprintf("no answer of etcd within %v: the flags count until it answers", firstTime))
		f.begin()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := f.now.Corefile(f.stubs, f.getenv)
	if err != nil {
		return corefile.Reading{Err: err}
	}
	return corefile.ReadText("(skydns)", []byte(text))
}

// begin says that nobody has to wait any more.
func (f *Follower) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.known:
	default:
		close(f.known)
	}
}

// take reads what etcd has.
func (f *Follower) take(keys map[string]string) {
	f.mu.Lock()
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
		var bad []string
		stubs, bad = stubsOf(f.flags.stubKey(), keys)
		wrong = append(wrong, bad...)
	}
	f.now, f.stubs = now, stubs
	if said := strings.Join(wrong, "; "); said != f.said {
		f.said = said
		if said != "" {
			f.log.Warn("configuration in etcd: " + said)
		}
	}
	f.mu.Unlock()
	f.begin()
	select {
	case f.changed <- struct{}{}:
	default: // it is known already
	}
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
		slices.Reverse(labels)
		zone := strings.Join(labels, ".")
		if _, err := wire.ParseName(zone); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", key, err))
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
		const most = 15 // upstreams of a forward
		stubs = append(stubs, Stub{zone, all[:min(len(all), most)]})
	}
	return stubs, wrong
}
