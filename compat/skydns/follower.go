package skydns

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster/etcdclient"
	"github.com/seamark/seamark/compat/flags"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/follow"
	"github.com/seamark/seamark/wire"
)

// startTimeout is how long the start waits for the configuration in etcd.
const startTimeout = 2 * time.Second

// corefileName is the name of the generated Corefile in messages.
const corefileName = "(skydns)"

// A Follower generates a Corefile from SkyDNS's flags, from the configuration in
// etcd, which overrides them, and optionally from the stub zones there. It
// follows changes. Invalid configuration is logged, and the previous one stays in
// use.
type Follower struct {
	flags  Flags
	getenv func(string) string
	check  func([]corefile.Server) error // reports why blocks cannot be served
	log    *slog.Logger

	task        *follow.Task
	changed     follow.Signal
	state       *follow.Value[state]
	lastWarning string // the last warning that was logged; the task's
}

// A state is what a Corefile is generated from.
type state struct {
	Flags
	stubs []Stub
}

// NewFollower starts a Follower; the caller must call Stop. The flags have passed
// Check.
func NewFollower(
	flags Flags, getenv func(string) string, check func([]corefile.Server) error, log *slog.Logger,
) *Follower {
	f := &Follower{
		flags: flags, getenv: getenv, check: check, log: log,
		changed: follow.NewSignal(), state: follow.NewValue(state{Flags: flags}),
	}
	f.task = follow.Go(f.run)
	return f
}

// run follows the configuration and the stub zones. The keys of stub zones depend
// on the domain, which the configuration may change.
func (f *Follower) run(ctx context.Context) {
	base := f.flags.stubKey()
	for ctx.Err() == nil {
		keys := etcdclient.Follower{Options: f.flags.Etcd, Prefixes: []string{f.flags.configKey()}, Log: f.log}
		if f.flags.StubZones {
			keys.Prefixes = append(keys.Prefixes, base+"/")
		}
		following, restart := context.WithCancel(ctx)
		keys.Run(following, func(values map[string]string) {
			if before := base; following.Err() == nil {
				if base = f.update(values, base); base != before {
					restart()
				}
			}
		})
		restart()
	}
}

// Stop stops following and waits for it to end.
func (f *Follower) Stop() { f.task.Stop() }

// Changed returns a channel that receives a value when Read may return another
// Corefile.
func (f *Follower) Changed() <-chan struct{} { return f.changed }

// Read returns the Corefile. The first call waits up to startTimeout for etcd.
func (f *Follower) Read() corefile.Reading {
	now := f.state.First(startTimeout, func() {
		f.log.Warn("etcd did not answer in time, starting with the flags alone", "duration", startTimeout)
	})
	text, err := now.Corefile(now.stubs, f.getenv)
	if err != nil {
		return corefile.Reading{Err: err}
	}
	return corefile.ReadText(corefileName, []byte(text))
}

// update applies the keys, with the stub zones below base, and returns the key of
// the stub zones. If the configuration has moved them, update changes nothing and
// the caller has to read the new keys.
func (f *Follower) update(keys map[string]string, base string) string {
	now, stubs := f.flags, []Stub(nil)
	var problems []string
	if text, there := keys[f.flags.configKey()]; there {
		configured, err := f.flags.withConfig(text)
		if err == nil {
			now = configured
		} else {
			now = f.state.Get().Flags
			problems = append(problems, fmt.Sprintf("%s: %v", f.flags.configKey(), err))
		}
	}

	if f.flags.StubZones {
		if other := now.stubKey(); other != base {
			return other
		}
		var more []string
		stubs, more = parseStubs(base, keys)
		problems = append(problems, more...)
	}

	now, stubs, more := f.servable(now, stubs)
	problems = append(problems, more...)
	if warning := strings.Join(problems, "; "); warning != f.lastWarning {
		f.lastWarning = warning
		if warning != "" {
			f.log.Warn("Invalid configuration in etcd", "error", strings.ReplaceAll(warning, "\n", "; "))
		}
	}
	f.state.Set(state{now, stubs})
	f.changed.Send()
	return base
}

// servable returns the part of the configuration and the stub zones that can be
// served, and describes the problems with the rest.
func (f *Follower) servable(now Flags, stubs []Stub) (Flags, []Stub, []string) {
	try := func(now Flags, stubs ...Stub) error {
		text, err := now.Corefile(stubs, f.getenv)
		if err != nil {
			return err
		}
		return flags.Check(corefileName, text, f.check)
	}
	if try(now, stubs...) == nil {
		return now, stubs, nil
	}

	var problems []string
	if err := try(now); err != nil {
		problems = append(problems, fmt.Sprintf("%s: %v", f.flags.configKey(), err))
		now = f.state.Get().Flags
	}

	var good []Stub
	for _, s := range stubs {
		if err := try(now, append(slices.Clip(good), s)...); err != nil {
			problems = append(problems, fmt.Sprintf("stub zone %s: %v", s.Zone, err))
			continue
		}
		good = append(good, s)
	}
	return now, good, problems
}

// parseStubs returns the stub zones. A key is the base, the labels of the zone,
// top label first, and the name of a server; its message has the server's
// address.
func parseStubs(base string, keys map[string]string) (stubs []Stub, problems []string) {
	servers := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		rest, below := strings.CutPrefix(key, base+"/")
		if !below {
			continue
		}
		labels := strings.Split(rest, "/")
		var server struct {
			Host netip.Addr
			Port uint16
		}
		err := json.Unmarshal([]byte(keys[key]), &server)
		if err == nil && (len(labels) < 2 || !server.Host.IsValid() || server.Host.Zone() != "") {
			err = errors.New("want ZONE/SERVER with the address of a server as host")
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", key, err))
			continue
		}

		labels = labels[:len(labels)-1]
		dotted := slices.ContainsFunc(labels, func(l string) bool { return l == "" || strings.Contains(l, ".") })
		slices.Reverse(labels)
		zone := strings.ToLower(strings.Join(labels, "."))
		if dotted || !isZone(zone) {
			problems = append(problems, fmt.Sprintf("%s: invalid zone %q", key, zone))
			continue
		}
		servers[zone] = append(servers[zone], netip.AddrPortFrom(server.Host.Unmap(), cmp.Or(server.Port, 53)).String())
	}

	for _, zone := range slices.Sorted(maps.Keys(servers)) {
		all := slices.Compact(slices.Sorted(slices.Values(servers[zone])))
		stubs = append(stubs, Stub{zone, all[:min(len(all), maxServers)]})
	}
	return stubs, problems
}

// isZone reports whether a name can be written in a Corefile without quotes.
func isZone(text string) bool {
	_, err := wire.ParseName(text)
	return err == nil && !strings.ContainsFunc(text, func(c rune) bool {
		return c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}
