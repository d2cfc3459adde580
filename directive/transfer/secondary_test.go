package transfer_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/chaintest"
)

// A secondary copies a zone, follows its changes, feeds another secondary with differences, and
// answers from its file after a restart without its primary.
func TestSecondary(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	db, file := filepath.Join(t.TempDir(), "db"), filepath.Join(t.TempDir(), "copy")
	write(t, db, zoneFile(1, 2999))
	primary, first, second := freePort(t), freePort(t), freePort(t)
	plan, _ := serve(t, primary, nil, fmt.Sprintf("example.org {\n file %s\n transfer {\n to %s\n}\n}", db, first))
	stopped := false
	defer func() {
		if !stopped {
			plan.Stop(t.Context())
		}
	}()
	text := fmt.Sprintf("example.org {\n secondary {\n transfer from %s\n file %s\n}\n transfer {\n to %s\n}\n}", primary, file, second)
	copied, _ := serve(t, first, nil, text)
	defer func() { copied.Stop(t.Context()) }()
	log := run(t, second, fmt.Sprintf("example.org {\n secondary {\n transfer from %s\n}\n transfer {\n to *\n}\n}", first))
	for serial := 1; serial < 4; serial++ {
		if serial > 1 {
			write(t, db, zoneFile(serial, 3000-serial))
		}
		eventually(t, func() string {
			if why := differs(primary, second, uint32(serial)); why != "" {
				return why + "\n" + log.String()
			}
			return ""
		})
	}
	if n := countKind(log, "IXFR"); n == 0 {
		t.Errorf("no transfer of differences: %s", log)
	}
	stopped = true
	plan.Stop(t.Context())
	copied.Stop(t.Context())
	copied, _ = serve(t, first, nil, text)
	eventually(t, func() string { return differs(first, second, 3) })
}

// Before the first transfer and after the zone has expired, queries are SERVFAIL.
func TestSecondaryExpires(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	db := filepath.Join(t.TempDir(), "db")
	write(t, db, "@ 5 SOA ns host 1 1 1 2 5\n")
	primary, at := freePort(t), freePort(t)
	run(t, at, fmt.Sprintf("example.org {\n secondary {\n transfer from %s\n}\n}", primary))
	code := func() int {
		r, err := exchange(new(mdns.Msg).SetQuestion("x.example.org.", mdns.TypeA), at)
		if err != nil {
			return -1
		}
		return r.Rcode
	}
	await := func(want int) {
		t.Helper()
		eventually(t, func() string {
			if got := code(); got != want {
				return fmt.Sprintf("got response code %d, want %d", got, want)
			}
			return ""
		})
	}
	await(mdns.RcodeServerFailure)
	plan, _ := serve(t, primary, nil, "example.org {\n file "+db+"\n transfer {\n to *\n}\n}")
	await(mdns.RcodeNameError)
	plan.Stop(t.Context())
	await(mdns.RcodeServerFailure)
}

// NOTIFY is accepted from primaries only, and for zones that are copied.
func TestSecondaryNotify(t *testing.T) {
	at := freePort(t)
	run(t, at, "example.org {\n secondary {\n transfer from 127.0.0.1:1\n}\n}\nexample.net {\n secondary {\n transfer from 127.0.0.2\n}\n}\n example.com {\n whoami\n}")
	for zone, want := range map[string]int{
		"example.org.": mdns.RcodeSuccess, "example.net.": mdns.RcodeRefused, "example.com.": mdns.RcodeNotImplemented, "sub.example.org.": mdns.RcodeNotAuth,
	} {
		r, err := exchange(new(mdns.Msg).SetNotify(zone), at)
		if err != nil || r.Rcode != want || r.Opcode != mdns.OpcodeNotify {
			t.Errorf("NOTIFY of %s: got %v, %v, want %s", zone, r, err, mdns.RcodeToString[want])
		}
	}
}

// A secondary follows Knot with differences.
func TestSecondaryOfKnot(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	dir := t.TempDir()
	primary, at := freePort(t), freePort(t)
	write(t, filepath.Join(dir, "example.org.zone"), zoneFile(1, 1000))
	write(t, filepath.Join(dir, "knot.conf"), fmt.Sprintf("server:\n  listen: %s@%d\n  rundir: %s\n  pidfile: %s/pid\ndatabase:\n  storage: %s\n"+
		"remote:\n- id: copy\n  address: %s@%d\nacl:\n- id: all\n  address: 127.0.0.1\n  action: transfer\nzone:\n- domain: example.org\n  storage: %s\n"+
		"  acl: all\n  notify: copy\n  zonefile-load: difference\n  journal-content: changes\n", primary.Addr(), primary.Port(), dir, dir, dir, at.Addr(), at.Port(), dir))
	knotd := start(t, "knotd", dir, primary, "-c", filepath.Join(dir, "knot.conf"))
	eventually(t, func() string {
		if soa(primary, "example.org.") != 1 {
			return "knotd does not answer"
		}
		return ""
	})
	log := run(t, at, fmt.Sprintf("example.org {\n secondary {\n transfer from %s\n}\n transfer {\n to *\n}\n}", primary))
	eventually(t, func() string { return differs(primary, at, 1) })
	for serial := 2; serial < 5; serial++ {
		write(t, filepath.Join(dir, "example.org.zone"), zoneFile(serial, 1000+serial))
		if err := knotd.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string { return differs(primary, at, uint32(serial)) })
	}
	if n := countKind(log, "IXFR"); n == 0 {
		t.Errorf("no transfer of differences: %s", log)
	}
}

func countKind(log *chaintest.Log, kind string) int { return strings.Count(log.String(), "kind="+kind) }
