package transfer_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/server"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/freeport"
)

// freePort returns an address whose port is free for UDP and TCP.
func freePort(t testing.TB) netip.AddrPort {
	t.Helper()
	return netip.MustParseAddrPort("127.0.0.1:" + freeport.Reserve(t))
}

// serve starts Seamark at an address. old is the plan that it replaces, or nil.
func serve(t testing.TB, at netip.AddrPort, old *server.Plan, text string) (*server.Plan, *chaintest.Log) {
	t.Helper()
	return serveWith(t, at, old, text, builtin.Directives())
}

func serveWith(t testing.TB, at netip.AddrPort, old *server.Plan, text string, directives []config.Directive) (*server.Plan, *chaintest.Log) {
	t.Helper()
	return serveOptions(t, at, old, text, func(o *server.Options) { o.Directives = directives })
}

// serveOptions is like serve, with other options.
func serveOptions(
	t testing.TB, at netip.AddrPort, old *server.Plan, text string, change func(o *server.Options),
) (*server.Plan, *chaintest.Log) {
	t.Helper()
	blocks, err := corefile.Parse("Corefile", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	log := new(chaintest.Log)
	options := server.Options{
		Directives: builtin.Directives(), Listen: []netip.AddrPort{at},
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), Metrics: new(metrics.Registry),
	}
	change(&options)
	plan, err := server.NewPlan(blocks, options)
	if err == nil {
		err = plan.Start(context.Background(), old)
	}
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return plan, log
}

// run starts Seamark for the time of the test.
func run(t testing.TB, at netip.AddrPort, text string) *chaintest.Log {
	t.Helper()
	plan, log := serve(t, at, nil, text)
	t.Cleanup(func() {
		plan.Stop(context.Background())
		if t.Failed() {
			t.Logf("log of the server at %s:\n%.4000s", at, log)
		}
	})
	return log
}

// write writes a file in one step.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until is returns "". BIND repeats a failed first transfer after a minute.
func eventually(t testing.TB, is func() string) {
	t.Helper()
	chaintest.Within(t, 2*time.Minute, is)
}

// axfr returns the records of a zone as text, sorted, with one SOA record.
func axfr(at netip.AddrPort, zone string) ([]string, error) {
	m := new(mdns.Msg).SetAxfr(zone)
	return transferred(at, m)
}

func transferred(at netip.AddrPort, m *mdns.Msg) ([]string, error) {
	answers, err := (&mdns.Transfer{DialTimeout: patience, ReadTimeout: patience}).In(m, at.String())
	if err != nil {
		return nil, err
	}
	var records []string
	for a := range answers {
		if a.Error != nil {
			err = a.Error
			continue
		}
		for _, rr := range a.RR {
			records = append(records, strings.ToLower(strings.ReplaceAll(rr.String(), "\t", " ")))
		}
	}
	if err == nil && len(records) > 1 {
		records = records[:len(records)-1]
	}
	slices.Sort(records)
	return records, err
}

// patience is how long a client waits for a reply: a busy machine may need seconds.
const patience = 10 * time.Second

// exchange sends a message over UDP and returns the reply.
func exchange(m *mdns.Msg, at netip.AddrPort) (*mdns.Msg, error) {
	r, _, err := (&mdns.Client{Timeout: patience}).Exchange(m, at.String())
	return r, err
}

// soa returns the serial number that a server answers with, or 0.
func soa(at netip.AddrPort, zone string) uint32 {
	r, err := exchange(new(mdns.Msg).SetQuestion(zone, mdns.TypeSOA), at)
	if err != nil || len(r.Answer) == 0 {
		return 0
	}
	if s, ok := r.Answer[0].(*mdns.SOA); ok {
		return s.Serial
	}
	return 0
}

// same returns the differences between the zones of two servers.
func same(a, b netip.AddrPort, zone string) string {
	x, err := axfr(a, zone)
	if err != nil {
		return err.Error()
	}
	y, err := axfr(b, zone)
	if err != nil {
		return err.Error()
	}
	return difference(x, y)
}

func difference(x, y []string) string {
	var lines []string
	for _, r := range x {
		if _, ok := slices.BinarySearch(y, r); !ok {
			lines = append(lines, "- "+r)
		}
	}
	for _, r := range y {
		if _, ok := slices.BinarySearch(x, r); !ok {
			lines = append(lines, "+ "+r)
		}
	}
	if len(lines) == 0 && len(x) != len(y) {
		return fmt.Sprintf("%d and %d records, the same but for duplicates", len(x), len(y))
	}
	if n := len(lines); n > 20 {
		lines = append(lines[:20], fmt.Sprintf("and %d more", n-20))
	}
	return strings.Join(lines, "\n")
}

// A daemon is an independent name server that copies zones.
type daemon struct {
	program string
	// command returns the arguments, after it has written the configuration to dir.
	command func(t testing.TB, dir string, at, primary netip.AddrPort, key *tsigKey, zones []string) []string
}

// A tsigKey is a key for HMAC-SHA256.
type tsigKey struct{ name, secret string }

var daemons = map[string]daemon{
	"knot": {"knotd", knot}, "nsd": {"nsd", nsd}, "bind": {"named", bind},
}

// follow starts a daemon that copies zones from primary.
func (d daemon) follow(t testing.TB, at, primary netip.AddrPort, key *tsigKey, zones ...string) {
	t.Helper()
	dir := t.TempDir()
	start(t, d.program, dir, at, d.command(t, dir, at, primary, key, zones)...)
}

// start starts a program in a directory for the time of the test, and waits until it listens
// at an address.
func start(t testing.TB, program, dir string, at netip.AddrPort, args ...string) *os.Process {
	t.Helper()
	c := exec.Command(debian.Program(t, program), args...)
	var log chaintest.Log
	c.Stdout, c.Stderr, c.Dir = &log, &log, dir
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			text := log.String()
			t.Logf("log of %s:\n%s", program, text[max(0, len(text)-20_000):])
		}
	})
	eventually(t, func() string {
		if conn, err := net.Dial("tcp", at.String()); err != nil {
			return program + " does not listen:\n" + log.String()
		} else {
			_ = conn.Close()
		}
		return ""
	})
	return c.Process
}

func knot(t testing.TB, dir string, at, primary netip.AddrPort, key *tsigKey, zones []string) []string {
	text := fmt.Sprintf("server:\n  listen: %s@%d\n  rundir: %s\n  pidfile: %s/pid\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n"+
		"database:\n  storage: %s\nlog:\n- target: stderr\n  any: info\n", at.Addr(), at.Port(), dir, dir, dir)
	use, signed := "", ""
	if key != nil {
		text += fmt.Sprintf("key:\n- id: %s\n  algorithm: hmac-sha256\n  secret: %s\n", key.name, key.secret)
		use = "  key: " + key.name + "\n"
		signed = "- id: signed\n  address: 127.0.0.1\n" + use + "  action: transfer\n"
	}
	text += fmt.Sprintf("remote:\n- id: primary\n  address: %s@%d\n%s", primary.Addr(), primary.Port(), use)
	text += "acl:\n- id: notify\n  address: 127.0.0.1\n" + use + "  action: notify\n- id: all\n  address: 127.0.0.1\n  action: transfer\n" + signed
	text += "template:\n- id: default\n  storage: " + dir + "\n  zonefile-sync: -1\nzone:\n"
	for _, z := range zones {
		text += fmt.Sprintf("- domain: %s\n  master: primary\n  acl: [notify, all%s]\n", z, map[bool]string{true: ", signed"}[key != nil])
	}
	write(t, filepath.Join(dir, "knot.conf"), text)
	return []string{"-c", filepath.Join(dir, "knot.conf")}
}

func nsd(t testing.TB, dir string, at, primary netip.AddrPort, key *tsigKey, zones []string) []string {
	text := fmt.Sprintf("server:\n ip-address: %s\n port: %d\n username: \"\"\n zonesdir: %q\n database: \"\"\n pidfile: %q\n xfrdfile: %q\n"+
		" zonelistfile: %q\n xfrdir: %q\n server-count: 1\n verbosity: 3\nremote-control:\n control-enable: no\n",
		at.Addr(), at.Port(), dir, dir+"/pid", dir+"/xfrd", dir+"/zonelist", dir)
	name := "NOKEY"
	if key != nil {
		name = key.name
		text += fmt.Sprintf("key:\n name: %q\n algorithm: hmac-sha256\n secret: %q\n", key.name, key.secret)
	}
	// NSD 4.6 discards changes that arrive while it applies others, and transfers the zone
	// again by its retry timer.
	for _, z := range zones {
		text += fmt.Sprintf("zone:\n name: %q\n request-xfr: %s@%d %s\n allow-notify: 127.0.0.1 %s\n provide-xfr: 127.0.0.1 NOKEY\n provide-xfr: 127.0.0.1 %s\n max-retry-time: 2\n",
			z, primary.Addr(), primary.Port(), name, name, name)
	}
	write(t, filepath.Join(dir, "nsd.conf"), text)
	return []string{"-d", "-c", filepath.Join(dir, "nsd.conf")}
}

func bind(t testing.TB, dir string, at, primary netip.AddrPort, key *tsigKey, zones []string) []string {
	text := fmt.Sprintf("options { directory %q; listen-on port %d { %s; }; listen-on-v6 { none; }; pid-file %q; session-keyfile %q;\n"+
		"recursion no; allow-transfer { any; }; dnssec-validation no; notify no; managed-keys-directory %q;\n"+
		"serial-query-rate 1000; startup-notify-rate 1000; };\ncontrols { };\n", dir, at.Port(), at.Addr(), dir+"/pid", dir+"/key", dir)
	use := ""
	if key != nil {
		text += fmt.Sprintf("key %q { algorithm hmac-sha256; secret %q; };\n", key.name, key.secret)
		use = " key " + fmt.Sprintf("%q", key.name)
	}
	for i, z := range zones {
		text += fmt.Sprintf("zone %q { type secondary; primaries port %d { %s%s; }; file \"%d\"; min-refresh-time 1; };\n", z, primary.Port(), primary.Addr(), use, i)
	}
	write(t, filepath.Join(dir, "named.conf"), text)
	return []string{"-g", "-n", "1", "-c", filepath.Join(dir, "named.conf")}
}
