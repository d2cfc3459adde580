package file

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/watch"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/zone/signing"
)

// newKey writes a key pair, and returns the path of its files without extension.
func newKey(t testing.TB, dir, zone string, flags uint16) string {
	t.Helper()
	key := &dns.DNSKEY{Hdr: dns.RR_Header{Name: zone, Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET}, Flags: flags, Protocol: 3, Algorithm: dns.ED25519}
	private, err := key.Generate(256)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fmt.Sprintf("K%s+015+%05d", zone, key.KeyTag()))
	write(t, path+".key", key.String()+"\n")
	write(t, path+".private", key.PrivateKeyString(private))
	return path
}

func TestSignSetupErrors(t *testing.T) {
	dir := t.TempDir()
	key, other, zsk := newKey(t, dir, "example.org.", 257), newKey(t, dir, "example.net.", 257), newKey(t, t.TempDir(), "example.org.", 256)
	db, bad := filepath.Join(dir, "db"), filepath.Join(dir, "bad")
	write(t, db, fmt.Sprintf(head, 1))
	write(t, bad, fmt.Sprintf(head, 1)+"a A 192.0.2.300\n")
	empty := t.TempDir()
	for _, c := range []struct{ text, want string }{
		{"sign", "Corefile:2: sign: want at least 1 argument, got 0"},
		{"sign " + db, "Corefile:2: sign: no key for example.org.: make one with dnssec-keygen"},
		{"sign " + db + " {\n key file " + other + "\n}", "Corefile:3: sign: key: " + other + " is a key of example.net., which is not one of the zones"},
		{"sign " + db + " {\n key file " + zsk + ".key\n}", "Corefile:3: sign: key: " + zsk + " is not a key-signing key"},
		{"sign " + db + " {\n key file " + dir + "/none\n}", "Corefile:3: sign: key: " + dir + "/none.key: no such file"},
		{"sign " + db + " {\n key directory " + empty + "\n}", "Corefile:3: sign: key: " + empty + ": no files Kexample.org.+*.key"},
		{"sign " + db + " {\n key directory " + dir + "/none\n}", "Corefile:3: sign: key: open " + dir + "/none: no such file"},
		{"sign " + db + " {\n key aws_secretsmanager x\n}", `Corefile:3: sign: key: want file or directory, got "aws_secretsmanager"`},
		{"sign " + db + " {\n key file\n}", "Corefile:3: sign: key: got 1 argument, usage"},
		{"sign " + db + " {\n directory a b\n}", "Corefile:3: sign: directory: got 2 arguments, usage"},
		{"sign " + bad + " {\n key file " + key + "\n}", "Corefile:2: sign: " + bad + `:3: bad A A: "192.0.2.300"`},
		{"sign " + dir + "/none {\n key file " + key + "\n}", "Corefile:2: sign: " + dir + "/none: no such file"},
		{"sign " + db + " {\n key file " + key + "\n}\nsign " + db + " example.org. {\n key file " + key + "\n}", "Corefile:5: sign: zone example.org. is already signed at Corefile:2"},
	} {
		_, _, err := planSetup(SetupSign, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngot %v\nwant %s", c.text, err, c.want)
		}
	}
}

// A signedZone is a signer with a zone file and a key.
type signedZone struct {
	*signer
	task  *signTask
	block *config.Block
	log   *chaintest.Log
}

// newSigning returns a signer that checks its files once in a minute.
func newSigning(t *testing.T, text string) *signedZone {
	t.Helper()
	dir := t.TempDir()
	db := filepath.Join(dir, "db")
	write(t, db, text)
	b, out, err := planSetup(SetupSign, "sign "+db+" {\n key file "+newKey(t, dir, "example.org.", 257)+"\n directory "+dir+"\n}")
	if err != nil {
		t.Fatal(err)
	}
	s := &signedZone{task: config.Find[*Sign](b)[0].tasks[0], block: b, log: out}
	s.signer = newSigner(s.task, b)
	s.watch = watch.Options{Poll: time.Minute, NoEvents: true}
	random := rand.New(rand.NewPCG(1, 2))
	s.random = func(n time.Duration) time.Duration { return time.Duration(random.Int64N(int64(n))) }
	t.Cleanup(s.Stop)
	return s
}

// A key that is named more than once, also on other lines, signs once.
func TestSignKeyNamedTwice(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "db"), zoneText(1, 1))
	key := newKey(t, dir, "example.org.", 257)
	b, _, err := planSetup(SetupSign, "sign "+dir+"/db {\n key file "+key+" "+key+".key\n key file "+key+"\n directory "+dir+"\n}")
	if err != nil {
		t.Fatal(err)
	}
	if keys := config.Find[*Sign](b)[0].tasks[0].keys; len(keys) != 1 {
		t.Errorf("got %d keys, want 1", len(keys))
	}
}

// state returns the state of the signed file.
func (s *signedZone) state(t *testing.T) signedFile {
	t.Helper()
	f := readSigned(s.path, origin)
	if f.err != nil {
		t.Fatal(f.err)
	}
	return f
}

// A zone is signed again when its signatures are six days old, and when its file changes.
// Inceptions and expirations are at random times within their bounds.
func TestSignAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t, fmt.Sprintf(head, 1))
		if err := s.prepare(config.NewStart(context.Background(), nil), s.task); err != nil {
			t.Fatal(err)
		}
		s.follow(s.task)
		inceptions, expirations := map[time.Duration]bool{}, map[time.Duration]bool{}
		last := unixNow() - 1
		for round := range 10 {
			now := unixNow()
			f := s.state(t)
			if f.serial <= last || now-f.serial > 100 {
				t.Fatalf("round %d: at %d, got serial number %d, want one of the last 100 s, after %d", round, now, f.serial, last)
			}
			last = f.serial
			before, after := seconds(f.serial-f.inception), seconds(f.expiration-f.serial)
			if before < 3*time.Hour || before > 21*time.Hour || after < 32*day || after > 37*day {
				t.Errorf("round %d: the signatures begin %s before and end %s after, want 3h to 21h and 32 to 37 days", round, before, after)
			}
			inceptions[before], expirations[after] = true, true
			if round%2 == 0 {
				write(t, s.task.path, fmt.Sprintf(head, 1)+fmt.Sprintf("a A 192.0.2.%d\n", round))
				time.Sleep(90 * time.Second) // the next check, and until the file stays the same
				continue
			}
			time.Sleep(maxAge - seconds(now-f.inception) - time.Second)
			synctest.Wait()
			if got := s.state(t); got != f {
				t.Errorf("round %d: signed again at %d, when the signatures were not six days old", round, got.serial)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		if len(inceptions) < 9 || len(expirations) < 9 {
			t.Errorf("10 signatures: %d inceptions and %d expirations, want others each time", len(inceptions), len(expirations))
		}
		s.Stop()
	})
}

// Signing is due before the signatures end, and when the file is not as expected.
func TestSignDue(t *testing.T) {
	const now = 1 << 30
	hours := func(n int) uint32 { return uint32(n * 3600) }
	for _, c := range []struct {
		f    signedFile
		want string
		wait time.Duration
	}{
		{signedFile{digest: "d", inception: now - hours(24), expiration: now + hours(20*24)}, "", 5 * time.Hour},
		{signedFile{digest: "d", inception: now - hours(6*24-2), expiration: now + hours(20*24)}, "", 2 * time.Hour},
		{signedFile{digest: "d", inception: now - hours(24), expiration: now + hours(14*24+1)}, "", time.Hour},
		{signedFile{digest: "x", inception: now - hours(24), expiration: now + hours(20*24)}, "the zone file or a key has changed", 0},
		{signedFile{digest: "d", inception: now + 1, expiration: now + hours(20*24)}, "the signatures begin in the future", 0},
		{signedFile{digest: "d", inception: now - hours(6*24), expiration: now + hours(20*24)}, "the signatures are old", 0},
		{signedFile{digest: "d", inception: now - hours(24), expiration: now + hours(14*24)}, "the signatures end soon", 0},
		{signedFile{err: os.ErrNotExist}, "no signed file", 0},
	} {
		if why, wait := c.f.due("d", now); why != c.want || wait != c.wait {
			t.Errorf("%+v: got %q in %s, want %q in %s", c.f, why, wait, c.want, c.wait)
		}
	}
}

// The serial number increases although the clock goes back, or the signed file has a date
// as serial number.
func TestSignSerial(t *testing.T) {
	s := newSigning(t, fmt.Sprintf(head, 1))
	now := unixNow()
	for _, c := range []struct{ old, least, most uint32 }{
		{now - 100, now, now + 60}, {now + 1000, now + 1001, now + 1001}, {4294967295, now, now + 60}, {2100010100, 2100010101, 2100010101},
	} {
		write(t, s.path, fmt.Sprintf("example.org. 60 IN SOA ns host %d 2 3 4 5\n", c.old))
		if _, err := s.check(t.Context(), s.task); err != nil {
			t.Fatal(err)
		}
		if got := s.state(t).serial; got < c.least || got > c.most {
			t.Errorf("after serial number %d: got %d, want %d to %d", c.old, got, c.least, c.most)
		}
	}
}

// A zone file that has become invalid, a directory that cannot be written, and a stop keep
// the signed file. The error is logged once.
func TestSignErrorsKeepFile(t *testing.T) {
	s := newSigning(t, fmt.Sprintf(head, 1))
	if _, err := s.check(t.Context(), s.task); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	block := filepath.Join(filepath.Dir(s.path), "..db.example.org.signed.new", "x") // no file can have this name
	for _, c := range []struct {
		name    string
		prepare func()
		want    string
	}{
		{"invalid record", func() { write(t, s.task.path, fmt.Sprintf(head, 1)+"a A x\n") }, ":3: bad A"},
		{"no SOA record", func() { write(t, s.task.path, "a 60 A 192.0.2.1\n") }, "no SOA record"},
		{"empty file", func() { write(t, s.task.path, "") }, "no SOA record"},
		{"no file", func() { _ = os.Remove(s.task.path) }, "no such file"},
		{"directory", func() { write(t, s.task.path, fmt.Sprintf(head, 2)); write(t, block, "") }, "directory not empty"},
	} {
		c.prepare()
		s.task.use.File = "Corefile"
		s.signer.task.Store(s.task)
		s.lastFail = ""
		s.log.Take("ERROR")
		for range 2 {
			if wait, _ := s.update(t.Context()); wait != signRetry {
				t.Errorf("%s: tried again after %s, want %s", c.name, wait, signRetry)
			}
		}
		if logged := s.log.Take("ERROR"); strings.Count(logged, "sign: Failed to sign zone") != 1 || !strings.Contains(logged, c.want) {
			t.Errorf("%s: logged %q, want one line with %q", c.name, logged, c.want)
		}
		if now, err := os.ReadFile(s.path); err != nil || string(now) != string(good) {
			t.Errorf("%s: error %v, want the signed file unchanged; got\n%s", c.name, err, now)
		}
	}
	if err := os.RemoveAll(filepath.Dir(block)); err != nil {
		t.Fatal(err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.check(stopped, s.task); err == nil {
		t.Error("stopped: got no error")
	}
	if names, err := filepath.Glob(filepath.Join(filepath.Dir(s.path), "..*")); err != nil || len(names) > 0 {
		t.Errorf("got the temporary files %q, want none", names)
	}
	if _, err := s.check(t.Context(), s.task); err != nil {
		t.Errorf("after the errors: %v", err)
	}
}

// The temporary file that a crash has left is replaced, and a link of its name is not
// followed. A signed file that is cut short is replaced.
func TestSignAfterCrash(t *testing.T) {
	s := newSigning(t, fmt.Sprintf(head, 1))
	dir := filepath.Dir(s.path)
	temporary, victim := filepath.Join(dir, "..db.example.org.signed.new"), filepath.Join(dir, "victim")
	write(t, victim, "victim")
	for _, prepare := range []func(){
		func() { write(t, temporary, strings.Repeat("garbage\n", 1000)) },
		func() { _ = os.Symlink(victim, temporary) },
		func() { write(t, s.path, "example.org. 60 IN SOA ns host 1 2 3 4 5\nexample.org. 60 IN RR") },
		func() { write(t, s.path, "") },
	} {
		_ = os.Remove(s.path)
		prepare()
		if _, err := s.check(t.Context(), s.task); err != nil {
			t.Fatal(err)
		}
		s.state(t)
		if _, err := os.Lstat(temporary); err == nil {
			t.Errorf("%s still exists", temporary)
		}
	}
	if text, _ := os.ReadFile(victim); string(text) != "victim" {
		t.Errorf("got %q in the target of a link, want it unchanged", text)
	}
	if info, err := os.Stat(s.path); err != nil || info.Mode().Perm()&0o077 == 0 {
		t.Errorf("mode %v, error %v: want a file that other users can read", info.Mode(), err)
	}
}

// A reload of the Corefile with another key keeps the signer, which signs the zone with the
// new key. Two plans never write the file at the same time.
func TestSignReload(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "db")
	write(t, db, fmt.Sprintf(head, 1)+"www A 192.0.2.1\n")
	text := func(key string) string {
		return "sign " + db + " {\n key file " + key + "\n directory " + dir + "\n}"
	}
	one, two := newKey(t, dir, "example.org.", 257), newKey(t, dir, "example.org.", 257)
	old := runSetup(t, SetupSign, text(one), nil)
	first := config.Find[*Sign](old.Plan)[0].tasks[0]
	next := runSetup(t, SetupSign, text(two), old)
	second := config.Find[*Sign](next.Plan)[0].tasks[0]
	if first.signer != second.signer {
		t.Error("the reload has another signer, want the same")
	}
	l := loader{origin: origin, origins: second.origins, sign: true}
	z, _, err := l.load(db)
	if err != nil {
		t.Fatal(err)
	}
	want := signing.Digest(z, second.keys)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if f := readSigned(second.signed, origin); f.digest == want {
			break
		} else if time.Now().After(end) {
			t.Fatalf("got %+v after the reload, want digest %s", f, want)
		}
	}

	// Another block of the same plan must not write the file with another key.
	b, _, err := planSetup(SetupSign, text(one))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Started(next.Start); err == nil || !strings.Contains(err.Error(), "Corefile:2: sign: zone example.org. is already signed at Corefile:2, with other keys") {
		t.Errorf("two keys in one plan: got error %v", err)
	}
}

// DNSSEC records in the zone file are ignored with a warning.
func TestSignReplacesRecords(t *testing.T) {
	s := newSigning(t, fmt.Sprintf(head, 1)+"www A 192.0.2.1\nwww NSEC z A\n@ NSEC3PARAM 1 0 0 -\n@ CDNSKEY 0 3 0 AA==\n")
	if _, err := s.check(t.Context(), s.task); err != nil {
		t.Fatal(err)
	}
	if warned := s.log.Take("WARN"); !strings.Contains(warned, "sign: Ignored records of a signed zone") || !strings.Contains(warned, "line=4") || !strings.Contains(warned, "count=3") {
		t.Errorf("logged %q, want a warning about line 4 and two more", warned)
	}
	text, err := os.ReadFile(s.path)
	if err != nil || strings.Contains(string(text), "NSEC3PARAM") || strings.Contains(string(text), "\tAA==\n") {
		t.Errorf("error %v, want a file without the records, got\n%s", err, text)
	}
}

// While another process replaces this one, only that writes the signed file: after Yield this one does not,
// however the zone file changes, and after Resume it does what is due.
func TestSignDuringHandover(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t, fmt.Sprintf(head, 1))
		if err := s.prepare(config.NewStart(context.Background(), nil), s.task); err != nil {
			t.Fatal(err)
		}
		s.follow(s.task)
		synctest.Wait()
		before := s.state(t)

		s.Yield()
		write(t, s.task.path, fmt.Sprintf(head, 2))
		time.Sleep(2 * maxAge) // the change is seen, and the signatures are old
		if got := s.state(t); got != before {
			t.Errorf("while the other process signs: got the file %+v, want %+v", got, before)
		}

		s.Resume()
		time.Sleep(time.Second)
		after := s.state(t)
		if after.serial <= before.serial || after.digest == before.digest {
			t.Errorf("after a hand-over that has failed: got serial number %d and digest %s, want a greater one than %d, and another digest than %s",
				after.serial, after.digest, before.serial, before.digest)
		}

		// The other process has signed meanwhile: there is nothing to do.
		s.Yield()
		other := newSigner(s.task, s.block)
		defer other.Stop()
		write(t, s.task.path, fmt.Sprintf(head, 3))
		time.Sleep(time.Minute)
		if _, err := other.check(t.Context(), s.task); err != nil {
			t.Fatal(err)
		}
		theirs := s.state(t)
		s.Resume()
		time.Sleep(time.Second)
		if got := s.state(t); got != theirs || theirs.serial <= after.serial {
			t.Errorf("after the other process has signed: got the file %+v, want %+v with a serial number above %d", got, theirs, after.serial)
		}
	})
}
