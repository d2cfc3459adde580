package dynupdate_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/test/debian"
)

func (w *world) database() []byte {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, "db"))
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

// Updates survive restarts and reloads, with the serial number. The zone file is never written, and not
// read while there is a database.
func TestDatabaseRestart(t *testing.T) {
	w := newWorld(t, "database DIR/db")
	w.update(mdns.RcodeSuccess, "add x 60 A 192.0.2.1", "delete a TXT")
	for i, again := range []func(){w.start, func() { w.stop(); w.start() }, w.start} {
		again()
		w.expect("x", "A", "60 192.0.2.1")
		w.expect("a", "TXT", "NOERROR")
		w.update(mdns.RcodeSuccess, fmt.Sprintf("add y%d 60 A 192.0.2.1", i))
		w.write("seed", "broken")
	}
	if got := w.serial(); got != 14 {
		t.Errorf("got serial number %d, want 14", got)
	}
	if info, err := os.Stat(filepath.Join(w.dir, "db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want a file of mode 0600", info, err)
	}
}

// Without a database, updates survive reloads and are lost with the server.
func TestMemoryRestart(t *testing.T) {
	w := newWorld(t)
	w.update(mdns.RcodeSuccess, "add x 60 A 192.0.2.1")
	w.text = w.block("max_records 100", "+whoami")
	w.start()
	w.expect("x", "A", "60 192.0.2.1")
	w.update(mdns.RcodeSuccess, "add y 60 A 192.0.2.1")
	w.stop()
	w.start()
	w.expect("x", "A", "NXDOMAIN")
}

// A plan that does not serve leaves no database behind.
func TestDatabaseOfFailedPlan(t *testing.T) {
	w := newWorld(t)
	w.text = w.block("database DIR/db") + strings.ReplaceAll(w.block("database DIR/db"), "example.org {\n tsig", "example.net {\n tsig")
	w.text = strings.ReplaceAll(w.text, "dynupdate {", "dynupdate example.org {")
	w.start() // two server blocks share a database
	w.update(mdns.RcodeSuccess, "add x 60 A 192.0.2.1")

	w.write("seed2", strings.ReplaceAll(seed, "example.org", "example.com"))
	w.text += strings.ReplaceAll(strings.ReplaceAll(w.block("database DIR/db"), "example.org", "example.com"), "/seed", "/seed2")
	if _, err := w.try(); err == nil || !strings.Contains(err.Error(), "another one") && !strings.Contains(err.Error(), "is the database of zone") {
		t.Errorf("got error %v, want one about the database of another zone", err)
	}
	w.text = w.block("database DIR/other", "+transfer {\n to 192.0.2.1\n source 192.0.2.2\n }\n pprof 192.0.2.99:6053")
	if _, err := w.try(); err == nil {
		t.Error("got no error of a plan that cannot listen")
	}
	if _, err := os.Stat(filepath.Join(w.dir, "other")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no database of a plan that does not serve", err)
	}
}

// Records of other zones in the zone file are ignored with a warning, as for the directive file; they do not count,
// and a SOA record of another zone is not that of this one.
func TestZoneFileOutside(t *testing.T) {
	const others = "www.example.net. 60 A 192.0.2.1\nexample.net. 60 SOA ns.example.net. host.example.net. 1 2 3 4 5\n"
	w := newWorld(t)
	w.write("more", seed+others)
	w.text = strings.Replace(w.block("max_records 15"), "/seed", "/more", 1)
	w.start()
	w.expect("a", "TXT", `60 "one"`)
	warning := fmt.Sprintf("dynupdate: Ignored records outside the zone\" file=%s/more line=%d error=\"www.example.net.: out of zone example.org.\" count=2",
		w.dir, strings.Count(seed, "\n")+1)
	if !strings.Contains(w.log.String(), warning) {
		t.Errorf("got the log\n%s\nwant %s", w.log, warning)
	}

	w.write("more", others)
	w.text = strings.Replace(w.block("database DIR/new"), "/seed", "/more", 1)
	if _, err := w.try(); err == nil || !strings.Contains(err.Error(), "no SOA record for example.org.") {
		t.Errorf("without a SOA record of the zone: got error %v, want that it has none", err)
	}
}

// A database that cannot be read is an error with its reason, also after a crash in the middle of a
// write, and stays as it is. The temporary file of a crash has no effect.
func TestDatabaseCorrupt(t *testing.T) {
	w := newWorld(t, "database DIR/db")
	w.update(mdns.RcodeSuccess, "add x 60 A 192.0.2.1")
	w.stop()
	good := w.database()

	other := bytes.Replace(good, []byte("\x07example\x03org\x00"), []byte("\x07example\x03net\x00"), 1)
	flipped := bytes.Clone(good)
	flipped[bytes.LastIndex(good, []byte("example"))+4] ^= 1               // a name outside the zone
	bolt := binary.NativeEndian.AppendUint32(make([]byte, 16), 0xED0CDAED) // the head of a page, and bbolt's number
	for name, c := range map[string]struct{ data, want string }{
		"empty":           {"", "not a database of this server"},
		"text":            {seed, "not a database of this server"},
		"truncated":       {string(good[:len(good)-10]), "corrupt"},
		"no checksum":     {string(good[:len(good)-4]), "corrupt"},
		"a flipped bit":   {string(flipped), "corrupt"},
		"another zone":    {string(other), "another one"},
		"of CoreDNS":      {string(bolt) + strings.Repeat("\x00", 4096), "a database of CoreDNS"},
		"only the header": {string(good[:60]), "corrupt"},
	} {
		w.write("db", c.data)
		if _, err := w.try(); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), filepath.Join(w.dir, "db")) {
			t.Errorf("%s: got error %v, want one with %q and the file", name, err, c.want)
		}
		if got := w.database(); string(got) != c.data {
			t.Errorf("%s: got another file of %d bytes, want the same of %d", name, len(got), len(c.data))
		}
	}

	w.write("db", string(good))
	w.write("..db.new", string(good[:20]))
	w.start()
	w.update(mdns.RcodeSuccess, "add y 60 A 192.0.2.1")
	w.expect("x", "A", "60 192.0.2.1")
	if _, err := os.Stat(filepath.Join(w.dir, "..db.new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no temporary file", err)
	}
}

// If the database cannot be written, the update is SERVFAIL and the zone stays. The next one succeeds.
func TestDatabaseWriteFails(t *testing.T) {
	w := newWorld(t, "database DIR/db")
	w.update(mdns.RcodeSuccess, "add x 60 A 192.0.2.1")
	before := w.database()
	blocked := filepath.Join(w.dir, "..db.new", "file")
	if err := os.MkdirAll(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	w.update(mdns.RcodeServerFailure, "add y 60 A 192.0.2.1")
	w.expect("y", "A", "NXDOMAIN")
	if got := w.serial(); got != 11 || !bytes.Equal(w.database(), before) {
		t.Errorf("got serial number %d or another database, want 11 and the same", got)
	}
	if err := os.RemoveAll(filepath.Dir(blocked)); err != nil {
		t.Fatal(err)
	}
	w.update(mdns.RcodeSuccess, "add y 60 A 192.0.2.1")
}

// While another process has the database, updates are SERVFAIL and queries are answered. After that the
// changes of the other process are kept.
func TestDatabaseOfOtherProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for an update's timeout")
	}
	w := newWorld(t, "database DIR/db")
	w.update(mdns.RcodeSuccess, "add x 60 A 192.0.2.1")
	newer := w.database()
	w.stop()

	w.write("seed", strings.ReplaceAll(seed, " 10 3600", " 5 3600"))
	if err := os.Remove(filepath.Join(w.dir, "db")); err != nil {
		t.Fatal(err)
	}
	unlock, err := watch.Lock(t.Context(), filepath.Join(w.dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	w.start()
	w.expect("x", "A", "NXDOMAIN")
	w.update(mdns.RcodeServerFailure, "add y 60 A 192.0.2.1")

	w.write("db", string(newer))
	unlock()
	for deadline := time.Now().Add(time.Minute); w.serial() != 11 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	w.expect("x", "A", "60 192.0.2.1")
	w.update(mdns.RcodeSuccess, "add y 60 A 192.0.2.1")
}

// Limits of the Corefile below the size of the zone are an error.
func TestLimitsBelowZone(t *testing.T) {
	w := newWorld(t, "database DIR/db")
	w.update(mdns.RcodeSuccess, "add x 60 A 192.0.2.1")
	for _, line := range []string{"max_records 14", "max_bytes 100"} {
		w.text = w.block("database DIR/db", line)
		if _, err := w.try(); err == nil || !strings.Contains(err.Error(), strings.Fields(line)[0]) {
			t.Errorf("%s: got error %v, want one", line, err)
		}
	}
	w.text = w.block("database DIR/db", "max_records 15")
	w.start()
	w.update(mdns.RcodeRefused, "add y 60 A 192.0.2.1")
	w.update(mdns.RcodeSuccess, "delete x", "add y 60 A 192.0.2.1")
}

// A zone for which the memory does not suffice is an error of the plan, and an update SERVFAIL.
func TestUpdateMemoryRefused(t *testing.T) {
	w := newWorld(t, "database DIR/db", "max_records 1000000", "max_bytes 100MB", "max_update_records 65535")
	w.stop()
	w.budget = memory.New(16<<20, memory.FromMachine)
	w.start()
	refused := 0
	for i := range 400 {
		m := new(mdns.Msg).SetUpdate("example.org.")
		for j := range 200 {
			rr, _ := mdns.NewRR(fmt.Sprintf("x%d-%d.example.org. 60 TXT %q", i, j, strings.Repeat("x", 250)))
			m.Insert([]mdns.RR{rr})
		}
		switch r := w.exchange(m, "tcp", "key."); r.Rcode {
		case mdns.RcodeSuccess:
		case mdns.RcodeServerFailure:
			refused++
		default:
			t.Fatalf("got %v", r)
		}
		if refused == 3 {
			break
		}
	}
	if used := w.budget.Part(memory.Zones); refused == 0 || used.Used > used.Max {
		t.Errorf("got %d refused updates and %d bytes, want some and at most %d", refused, used.Used, used.Max)
	}
	w.expect("a", "A", "60 192.0.2.1, 60 192.0.2.2")
	w.stop()
	if got := w.budget.Part(memory.Zones).Used + w.budget.Part(memory.Transfers).Used; got != 0 {
		t.Errorf("got %d bytes in use after the server, want 0", got)
	}
}

// Updates of several clients at the same time are all applied, and no query sees a part of one.
func TestUpdatesConcurrent(t *testing.T) {
	w := newWorld(t, "database DIR/db")
	const clients, updates = 4, 20
	var running sync.WaitGroup
	done := make(chan struct{})
	for c := range clients {
		running.Go(func() {
			for u := range updates {
				add := fmt.Sprintf("add pair 60 A 192.0.%d.%d", 10+2*c, u)
				w.update(mdns.RcodeSuccess, add, strings.Replace(add, fmt.Sprintf("192.0.%d.", 10+2*c), fmt.Sprintf("192.0.%d.", 11+2*c), 1))
			}
		})
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			m := new(mdns.Msg).SetQuestion("pair.example.org.", mdns.TypeA)
			if r := w.exchange(m, "tcp", ""); len(r.Answer)%2 != 0 {
				t.Errorf("got %d records, want pairs", len(r.Answer))
			}
		}
	})
	running.Wait()
	close(done)
	reader.Wait()
	if got := w.serial(); got != 10+clients*updates {
		t.Errorf("got serial number %d, want %d", got, 10+clients*updates)
	}
}

// The directive transfer sends the present zone, and a NOTIFY message after a change.
func TestUpdateTransfer(t *testing.T) {
	notified := make(chan struct{}, 100)
	server := &mdns.Server{Addr: "127.0.0.1:0", Net: "udp", NotifyStartedFunc: func() { notified <- struct{}{} },
		MsgAcceptFunc: func(mdns.Header) mdns.MsgAcceptAction { return mdns.MsgAccept },
		Handler: mdns.HandlerFunc(func(r mdns.ResponseWriter, m *mdns.Msg) {
			_ = r.WriteMsg(new(mdns.Msg).SetReply(m))
			notified <- struct{}{}
		})}
	go func() { _ = server.ListenAndServe() }()
	<-notified
	t.Cleanup(func() { _ = server.Shutdown() })

	w := newWorld(t, "+transfer {\n to * "+server.PacketConn.LocalAddr().String()+"\n}")
	<-notified // for the start
	w.update(mdns.RcodeSuccess, "add x 60 A 192.0.2.1")
	select {
	case <-notified:
	case <-time.After(time.Minute):
		t.Error("got no NOTIFY message")
	}

	records, serial := 0, uint32(0)
	answers, err := new(mdns.Transfer).In(new(mdns.Msg).SetAxfr("example.org."), w.at.String())
	if err != nil {
		t.Fatal(err)
	}
	for a := range answers {
		records += len(a.RR)
		for _, rr := range a.RR {
			if soa, ok := rr.(*mdns.SOA); ok {
				serial = soa.Serial
			}
		}
	}
	if records != 16 || serial != 11 {
		t.Errorf("got %d records and serial number %d, want 16 and 11", records, serial)
	}
}

// nsupdate of BIND understands the server, over UDP and TCP.
func TestNsupdate(t *testing.T) {
	w := newWorld(t, "database DIR/db")
	program := debian.Program(t, "nsupdate")
	run := func(commands string, options ...string) string {
		t.Helper()
		c := exec.Command(program, append(options, "-y", "hmac-sha256:key.:"+secret)...)
		c.Stdin = strings.NewReader(fmt.Sprintf("server 127.0.0.1 %d\nzone example.org.\n%s\nsend\n", w.at.Port(), commands))
		out, _ := c.CombinedOutput()
		return string(out)
	}
	for i, options := range [][]string{nil, {"-v"}} {
		name := fmt.Sprintf("host%d", i)
		add := fmt.Sprintf("prereq nxrrset %s.example.org. A\nupdate add %[1]s.example.org. 60 A 192.0.2.10", name)
		if out := run(add, options...); out != "" {
			t.Errorf("%v: got output %q, want none", options, out)
		}
		w.expect(name, "A", "60 192.0.2.10")
		if out := run(add, options...); !strings.Contains(out, "YXRRSET") {
			t.Errorf("%v: got output %q, want YXRRSET", options, out)
		}
		if out := run("update delete "+name+".example.org.", options...); out != "" {
			t.Errorf("%v: got output %q, want none", options, out)
		}
		w.expect(name, "A", "NXDOMAIN")
	}
}
