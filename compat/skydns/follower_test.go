package skydns

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/follow"
)

// Stub zones and configurations that cannot be served are omitted, and the rest is
// served.
func TestFollowerInvalidConfiguration(t *testing.T) {
	var log strings.Builder
	flags := DefaultFlags(func(string) string { return "" })
	flags.StubZones = true
	f := &Follower{
		flags: flags, getenv: func(string) string { return "" }, log: slog.New(slog.NewTextHandler(&log, nil)),
		changed: follow.NewSignal(), state: follow.NewValue(state{Flags: flags}),
		check: func(servers []corefile.Server) error { // rejects two server blocks of one zone
			seen := map[string]bool{}
			for _, s := range servers {
				if seen[s.Keys[0].Text] || s.Keys[0].Text == "bad.example:53" {
					return errors.New(s.Keys[0].Text + " cannot be served")
				}
				seen[s.Keys[0].Text] = true
			}
			return nil
		},
	}
	base := flags.stubKey()
	zones := func() (all []string) {
		for _, s := range f.Read().Servers {
			all = append(all, s.Keys[0].Text)
		}
		return all
	}
	stub := func(path string) string { return base + "/" + path }
	keys := map[string]string{
		stub("example/good/a"): `{"host":"10.0.0.1"}`, stub("example/bad/a"): `{"host":"10.0.0.1"}`, stub("Example/GOOD/b"): `{"host":"10.0.0.2"}`,
		stub("./x"): `{"host":"10.0.0.3"}`, stub("example/a.b/x"): `{"host":"10.0.0.4"}`, stub("example//x"): `{"host":"10.0.0.5"}`,
		flags.configKey(): `{"ndot":3}`,
	}
	f.update(keys, base)
	if got := zones(); !slices.Equal(got, []string{".:53", "good.example:53"}) {
		t.Errorf("got zones %q, want .:53 and good.example:53", got)
	}
	for _, want := range []string{"stub zone bad.example: bad.example:53 cannot be served", `stub/./x: `, "stub/example/a.b/x: ", "stub/example//x: "} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got log\n%s\nwant %s", log.String(), want)
		}
	}
	now := f.state.Get()
	if len(now.stubs) != 1 || !slices.Equal(now.stubs[0].Servers, []string{"10.0.0.1:53", "10.0.0.2:53"}) || now.Ndots != 3 {
		t.Errorf("got stub zones %+v and ndots %d, want one zone with two servers and 3", now.stubs, now.Ndots)
	}

	// A configuration out of range is ignored.
	for _, bad := range []string{
		`{"ndot":500}`, `{"min_ttl":4294967295}`, `{"ttl":4294967295}`, `{"read_timeout":1}`, `{"rcache":9999999999999}`, `{"rcache":5,"rcache_ttl":9999999999}`,
		`{"nameservers":[` + strings.Repeat(`"10.0.0.1:53",`, 15) + `"10.0.0.1:53"]}`,
	} {
		before := strings.Count(log.String(), "\n")
		keys[flags.configKey()] = bad
		f.update(keys, base)
		if now := f.state.Get(); now.Ndots != 3 || f.Read().Err != nil {
			t.Errorf("%s: got ndots %d, error %v, want 3 and none", bad, now.Ndots, f.Read().Err)
		}
		if n := strings.Count(log.String(), "\n") - before; n != 1 {
			t.Errorf("%s: got %d log lines, want 1", bad, n)
		}
	}
}
