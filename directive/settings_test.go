package directive

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// block plans a server block of these lines.
func block(t *testing.T, lines string) *config.Block {
	t.Helper()
	b, err := plan(t, ".:53 {\n"+lines+"\n}")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReload(t *testing.T) {
	for lines, want := range map[string]Reload{
		"reload":         {interval: 30 * time.Second, jitter: 15 * time.Second},
		"reload 10s":     {interval: 10 * time.Second, jitter: 5 * time.Second},
		"reload 2s 1s":   {interval: 2 * time.Second, jitter: time.Second},
		"reload 2s 0s":   {interval: 2 * time.Second},
		"reload 1m 0":    {interval: time.Minute},
		"reload 1m 2m":   {interval: time.Minute, jitter: 30 * time.Second},
		"reload 1m 10s":  {interval: time.Minute, jitter: 10 * time.Second},
		"reload 60 20":   {interval: time.Minute, jitter: 20 * time.Second},
		"reload 2s 100s": {interval: 2 * time.Second, jitter: time.Second},
	} {
		if got := config.Find[*Reload](block(t, lines)); len(got) != 1 || *got[0] != want {
			t.Errorf("%s: got %v, want %v", lines, got, want)
		}
	}
	if got := config.Find[*Reload](block(t, "reload off")); got != nil {
		t.Errorf("reload off: got %v, want none", got)
	}
}

func TestTimeouts(t *testing.T) {
	got := config.Find[*Timeouts](block(t, "timeouts {\nread 1\nwrite 2s\nidle 1m\nmaxtcpqueries 7\n}"))[0]
	if want := (Timeouts{read: time.Second, write: 2 * time.Second, idle: time.Minute, queries: 7}); *got != want {
		t.Errorf("timeouts: got %v, want %v", got, want)
	}
	if got := config.Find[*Timeouts](block(t, "timeouts {\nmaxtcpqueries -1\n}"))[0]; *got != (Timeouts{}) {
		t.Errorf("maxtcpqueries -1: got %v, want no limits", got)
	}
}

func TestMultisocket(t *testing.T) {
	for lines, want := range map[string]int{"multisocket": runtime.GOMAXPROCS(0), "multisocket 1024": 1024} {
		if got := config.Find[*Multisocket](block(t, lines))[0].Sockets(); got != want {
			t.Errorf("%q: got %d, want %d", lines, got, want)
		}
	}
	if got := config.Find[*Multisocket](block(t, "")); got != nil {
		t.Errorf("without multisocket: got %v, want none", got)
	}
}

func TestDebug(t *testing.T) {
	if config.Find[debugLines](block(t, "")) != nil || config.Find[debugLines](block(t, "debug")) == nil {
		t.Error("debug: want debugLines with the directive and none without it")
	}
}

func TestCancel(t *testing.T) {
	for lines, want := range map[string]time.Duration{"cancel": 5001 * time.Millisecond, "cancel 20ms": 20 * time.Millisecond} {
		c := config.Find[*Cancel](block(t, lines))[0]
		q := dns.NewQuery(nil)
		if verdict := c.ServeDNS(q); verdict != dns.Next || q.Timeout != want {
			t.Errorf("%s: got verdict %v, timeout %v; want Next, %v", lines, verdict, q.Timeout, want)
		}
	}
}

func TestSettingsErrors(t *testing.T) {
	for _, c := range []struct{ lines, want string }{
		{"reload 1s", `reload: want a duration of 2s..8760h, got "1s"`},
		{"reload x y", "reload: want a duration of 2s..8760h, got \"x\"\nCorefile:2: reload: want a duration of 1s..8760h, got \"y\""},
		{"reload 30s 10ms", `reload: want a duration of 1s..8760h, got "10ms"`},
		{"reload off 1s", `reload: want a duration of 2s..8760h, got "off"`},
		{"reload 1m 1m 1m", `reload: want at most 2 arguments, got 3`},
		{"reload {\nx\n}", "X3: reload: takes no options, got \"x\""},
		{"reload\nreload", "X3: reload: already given at Corefile:2, and can be given once in a server block"},
		{"timeouts", `timeouts: want at least one of read, write, idle and maxtcpqueries in braces`},
		{"timeouts 5s {\nread 5s\n}", `timeouts: want no argument, got 1`},
		{"timeouts {\nread\n}", `X3: timeouts: read: got no arguments, usage: read DURATION`},
		{"timeouts {\nread 5s\nread 6s\n}", `X4: timeouts: read: already given on line 3`},
		{"timeouts {\nwrite 1ms\n}", `X3: timeouts: write: want a duration of 1s..24h, got "1ms"`},
		{"timeouts {\nidle 25h\n}", `X3: timeouts: idle: want a duration of 1s..24h, got "25h"`},
		{"timeouts {\nmaxtcpqueries 0\n}", `X3: timeouts: maxtcpqueries: want 1..2147483647, got "0"`},
		{"timeouts {\nreads 1s\n}", `X3: timeouts: unknown option "reads"; did you mean "read"?`},
		{"timeouts {\nread 1s\n}\ntimeouts {\nread 1s\n}", `X5: timeouts: already given at Corefile:2, and can be given once in a server block`},
		{"multisocket 0", `multisocket: want 1..1024, got "0"`},
		{"multisocket 1025", `multisocket: want 1..1024, got "1025"`},
		{"multisocket 1 2", `multisocket: want at most 1 argument, got 2`},
		{"multisocket {\nx\n}", `X3: multisocket: takes no options, got "x"`},
		{"cancel 0s", `cancel: want a duration of 1ms..1h, got "0s"`},
		{"cancel 1s 2s", `cancel: want at most 1 argument, got 2`},
		{"cancel {\nx\n}", `X3: cancel: takes no options, got "x"`},
		{"debug on", `debug: want no argument, got 1`},
		{"debug {\nx\n}", `X3: debug: takes no options, got "x"`},
		{"shed 5", `shed: want no argument, got 1`},
		{"shed {\nqueue 5\n}", `X3: shed: takes no options, got "queue"`},
		{"pprof 6053", `pprof: want an address and a port such as :8080, got "6053"`},
		{"pprof :1 :2", `pprof: want at most 1 argument, got 2`},
		{"pprof {\nblock -1\n}", `X3: pprof: block: want 1..2147483647, got "-1"`},
		{"pprof {\nblock 1 2\n}", `X3: pprof: block: got 2 arguments, usage: block [RATE]`},
		{"pprof {\nblocks\n}", `X3: pprof: unknown option "blocks"; did you mean "block"?`},
	} {
		want := "Corefile:2: " + c.want
		if at, ok := strings.CutPrefix(c.want, "X"); ok {
			want = "Corefile:" + at
		}
		wantErrors(t, ".:53 {\n"+c.lines+"\n}", want)
	}
}

// Queries that cannot be parked are counted. The counter exists before the first.
func TestShed(t *testing.T) {
	h := &fixedVerdict{verdict: dns.Done, code: wire.ServFail}
	r := run(t, ".:53 {\nshed\n}", h)
	for n, err := range []error{nil, dns.LotFull, dns.ClientShare, nil} {
		want := fmt.Sprintf(`coredns_shed_dropped_total{server="dns://:53",reason="client"} %d
coredns_shed_dropped_total{server="dns://:53",reason="full"} %d
coredns_shed_dropped_total{server="dns://:53",reason="handler"} 0
`, n/3, n/2)
		if got := r.metrics("coredns_shed"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		h.err = err
		r.exchange(packet(t, "example.org", wire.TypeA), dns.UDP, client)
	}
}

func TestPprof(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	r := run(t, ".:53 {\npprof 127.0.0.1:0 {\nblock\n}\n}")
	for path, want := range map[string]string{
		"/debug/pprof/":                   "/debug/pprof/</title>",
		"/debug/pprof/cmdline":            "test",
		"/debug/pprof/symbol":             "num_symbols: 1",
		"/debug/pprof/goroutine?debug=1":  "goroutine profile: total ",
		"/debug/pprof/profile?seconds=1":  "",
		"/debug/pprof/trace?seconds=0.01": "go 1.",
	} {
		if code, body := r.page(path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %.200q, want 200 with %q", path, code, body, want)
		}
	}
	for path, want := range map[string]int{"/debug/": 404, "/": 404, "/debug/pprof/nothing": 404} {
		if code, _ := r.page(path); code != want {
			t.Errorf("%s: got %d, want %d", path, code, want)
		}
	}
}
