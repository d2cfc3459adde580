package handover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const patience = 30 * time.Second

// pair returns the two ends of a connection; starting has dialed.
func pair(t *testing.T) (running, starting *Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	l, err := Listen(path, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the socket: got %v, %v, want 0600", info.Mode(), err)
	}
	c := make(chan *Conn)
	go func() {
		defer close(c)
		running := <-l.Requests
		if err := running.Accept(); err != nil {
			t.Error(err)
		}
		c <- running
	}()
	if starting, err = Dial(path); err != nil {
		t.Fatal(err)
	}
	running = <-c
	t.Cleanup(func() { running.Close(); starting.Close() })
	return running, starting
}

func TestMessages(t *testing.T) {
	running, starting := pair(t)
	if running.PID != os.Getpid() || starting.PID != os.Getpid() {
		t.Errorf("process IDs: got %d and %d, want %d", running.PID, starting.PID, os.Getpid())
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	sent := Message{
		Kind: Connection, Name: "name", Address: netip.MustParseAddrPort("[fe80::1%lo]:53"),
		Unread: bytes.Repeat([]byte{255}, maxUnread), Queries: 5, File: r,
	}
	if err := running.Send(sent, patience); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	m, err := starting.Receive(patience, Connection)
	if err != nil || m.Name != sent.Name || m.Address != sent.Address || !bytes.Equal(m.Unread, sent.Unread) || m.Queries != 5 {
		t.Fatalf("got %+v, %v, want %+v", m, err, sent)
	}
	if _, err := io.WriteString(w, "text"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if text, err := io.ReadAll(m.File); string(text) != "text" || err != nil {
		t.Errorf("file: got %q, %v, want text", text, err)
	}
	_ = m.File.Close()

	// Messages of another kind, and messages that lack a file.
	if err := running.Send(Message{Kind: End}, patience); err != nil {
		t.Fatal(err)
	}
	if _, err := starting.Receive(patience, DNS); err == nil || !strings.Contains(err.Error(), "want socket") {
		t.Errorf("end in place of socket: got %v, want an error", err)
	}
	if err := running.Send(Message{Kind: DNS}, patience); err != nil {
		t.Fatal(err)
	}
	if _, err := starting.Receive(patience, DNS); err == nil {
		t.Error("socket without a file: got no error, want one")
	}
	if _, err := starting.Receive(time.Millisecond, End); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without a message: got %v, want a timeout", err)
	}
	running.Close()
	if _, err := starting.Receive(patience, End); !errors.Is(err, io.EOF) {
		t.Errorf("after the other end was closed: got %v, want EOF", err)
	}
}

// Processes with other versions are refused, and both ends report it.
func TestOtherVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := Listen(path, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	unix, err := net.Dial("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	starting, err := newConn(unix.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	defer starting.Close()
	if err := starting.Send(Message{Kind: Hello, Version: Version + 1}, patience); err != nil {
		t.Fatal(err)
	}
	running := <-l.Requests
	defer running.Close()
	const want = "version 2 of the protocol, want 1"
	if err := running.Accept(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Accept: got %v, want %q", err, want)
	}
	if _, err := starting.Receive(patience, Hello); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the refused process: got %v, want %q", err, want)
	}
}

// The file of a socket on which no process listens is replaced; that of a running
// server and other files are not.
func TestListenStale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	if c, err := Dial(path); c != nil || err != nil {
		t.Errorf("Dial without a socket: got %v, %v, want none and no error", c, err)
	}
	for range 2 { // Close leaves the file
		l, err := Listen(path, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(path, func(error) {}); err == nil || !strings.Contains(err.Error(), "another process listens") {
			t.Errorf("Listen beside another process: got %v, want an error", err)
		}
		l.Close()
		if c, err := Dial(path); c != nil || err != nil {
			t.Errorf("Dial of a stale socket: got %v, %v, want none and no error", c, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file, func(error) {}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("Listen at a file: got %v, want an error", err)
	}
}

// FuzzMessage: no packet does harm, and what is decoded can be sent again.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"Kind":"hello","Version":1}`))
	f.Add([]byte(`{"Kind":"connection","Address":"127.0.0.1:53","Unread":"AAA=","Queries":3}`))
	f.Add([]byte(`{"Kind":"serving","Unused":["[::]:53"]}`))
	f.Fuzz(func(t *testing.T, packet []byte) {
		m, err := decode(packet)
		if err != nil {
			return
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("%q: %v", packet, err)
		}
		got, err := decode(again)
		if err != nil {
			t.Fatalf("%q: %v", again, err)
		}
		if twice, err := json.Marshal(got); err != nil || !bytes.Equal(twice, again) {
			t.Errorf("%q: got %q, %v, want %q", packet, twice, err, again)
		}
	})
}

// A process that is killed may end connections before its socket. It is not seen as one that listens.
func TestDialWhileKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	dying, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	dying.SetUnlinkOnClose(false)
	ended := make(chan error)
	go func() {
		for range 3 {
			c, err := dying.Accept()
			if err != nil {
				ended <- err
				return
			}
			_ = c.Close()
		}
		ended <- dying.Close()
	}()

	if c, err := Dial(path); c != nil || err != nil {
		t.Fatalf("Dial: got %v and error %v, want neither", c, err)
	}
	l, err := Listen(path, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The files of a process that sends no end are bounded in number and in time, and an end allows as
// many again.
func TestFilesWithoutEnd(t *testing.T) {
	running, starting := pair(t)
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	exchange := func(m Message) error {
		t.Helper()
		if err := running.Send(m, patience); err != nil {
			t.Fatal(err)
		}
		got, err := starting.Receive(patience, DNS, End)
		if err == nil && got.File != nil {
			_ = got.File.Close()
		}
		return err
	}

	socket := Message{Kind: DNS, File: file}
	for range 2 {
		if err := exchange(socket); err != nil {
			t.Fatal(err)
		}
		starting.files = maxFiles - 1 // as after so many
		if err := exchange(socket); err != nil {
			t.Errorf("file %d: got error %v, want none", maxFiles, err)
		}
		if err := exchange(Message{Kind: End}); err != nil || starting.files != 0 {
			t.Fatalf("end: got error %v and %d files, want none", err, starting.files)
		}
	}

	starting.files, starting.filesUntil = maxFiles, time.Now().Add(patience)
	if err := exchange(socket); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("sends more than %d files", maxFiles)) {
		t.Errorf("file %d: got error %v, want one about their number", maxFiles+1, err)
	}
	starting.filesUntil = time.Now()
	_, err = starting.Receive(time.Hour, DNS, End)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprintf("no end of its %d files", maxFiles+1)) {
		t.Errorf("no end in time: got error %v, want one about the end", err)
	}
}

// A worker's files have no bound in time, and a begin voids those before.
func TestFilesOfWorker(t *testing.T) {
	running, starting := pair(t)
	starting.filesTimeout = 0 // as of FileConn
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i, m := range []Message{{Kind: DNS, File: file}, {Kind: DNS, File: file}, {Kind: Begin}} {
		if err := running.Send(m, patience); err != nil {
			t.Fatal(err)
		}
		got, err := starting.Receive(patience, Begin, DNS)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.File.Close()
		if want := []int{1, 2, 0}[i]; starting.files != want || !starting.filesUntil.IsZero() {
			t.Errorf("after %s: got %d files until %v, want %d and no bound", m.Kind, starting.files, starting.filesUntil, want)
		}
	}
}

// The last word of the other process is received although that has closed the connection with messages unread,
// which the kernel reports first, and although this process was stopped until after its time limit.
func TestLastWord(t *testing.T) {
	running, starting := pair(t)
	if err := starting.Send(Message{Kind: Serving}, patience); err != nil {
		t.Fatal(err)
	}
	running.Refuse(errors.New("too late"))
	_, err := starting.Receive(-time.Second, End)
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != "too late" || refused.PID != os.Getpid() {
		t.Errorf("got %v, want the refusal of process %d: too late", err, os.Getpid())
	}
	if _, err := starting.Receive(patience, End); !errors.Is(err, io.EOF) {
		t.Errorf("after the last word: got %v, want EOF", err)
	}
}

// A process that reads nothing gets the refusal, too, once it reads what was sent before.
func TestRefuseStoppedProcess(t *testing.T) {
	running, starting := pair(t)
	sent := 0
	for running.Send(Message{Kind: End, Name: strings.Repeat("x", 1000)}, time.Millisecond) == nil {
		sent++
	}
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		running.Refuse(errors.New("not ready"))
	}()
	for range sent {
		if _, err := starting.Receive(patience, End); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := starting.Receive(patience, End); !errors.As(err, new(*RefusedError)) {
		t.Errorf("after %d messages: got %v, want the refusal", sent, err)
	}
	<-refused
}
