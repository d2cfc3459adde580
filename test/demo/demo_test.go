package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// TestMain makes the test binary the server, too.
func TestMain(m *testing.M) { program.Main(m) }

// A text may be written and read at once.
type text struct {
	sync.Mutex
	strings.Builder
}

func (t *text) Write(p []byte) (int, error) {
	t.Lock()
	defer t.Unlock()
	return t.Builder.Write(p)
}

// The page of a demo shows the misspelled name, the pod that wastes queries and the storm. After
// the interrupt no server listens, and no file is left.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for queries")
	}
	t.Setenv("TMPDIR", t.TempDir())
	var out text
	d := demo{
		manifests: "../../examples", dns: "127.0.0.1:" + freeport.Reserve(t), page: "127.0.0.1:" + freeport.Reserve(t),
		out: &out, scenes: []scene{{time.Hour, "a storm", scenes[1].play}},
		command: func(args ...string) *exec.Cmd { return program.Command(t, ".", args...) },
	}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()

	missing := map[string]string{"names": "web.shop", "waste": "127.0.0.14", "nxdomain": "wbe.shop", "clients": "127.0.0.66"}
	for end := time.Now().Add(time.Minute); len(missing) > 0; time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("run ended: %v\n%s", err, out.String())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("after a minute: the lists lack %v", missing)
		}
		for by, key := range missing {
			if strings.Contains(list(t, d.page, by), key) {
				delete(missing, by)
			}
		}
	}

	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("run: got error %v, want none", err)
	}
	if c, err := net.Dial("tcp", d.page); err == nil {
		_ = c.Close()
		t.Error("the server still listens after the interrupt")
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
	if !strings.Contains(out.String(), "http://"+d.page+"/") {
		t.Errorf("got\n%s\nwant the address of the page", out.String())
	}
}

// list returns a list of top as text; it is empty as long as the server does not answer.
func list(t *testing.T, page, by string) string {
	t.Helper()
	reply, err := http.Get("http://" + page + "/v1/top?by=" + by)
	if err != nil {
		return ""
	}
	defer func() { _ = reply.Body.Close() }()
	var top json.RawMessage
	if err := json.NewDecoder(reply.Body).Decode(&top); err != nil {
		t.Fatalf("list %s: %v", by, err)
	}
	return string(top)
}

// A server that cannot start ends the demo, with the server's message; an address that is in use does
// before the demo describes itself.
func TestDemoServerFails(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()

	busyUDP, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busyUDP.Close() }()

	const free, inUse = "127.0.0.1:0", "address already in use: end make run"
	for _, c := range []struct{ dns, page, flag, want string }{
		{free, busy.Addr().String(), "", inUse},
		{busyUDP.LocalAddr().String(), free, "", inUse},
		{free, free, "--no-such-flag", "the server ended: exit status 2"},
	} {
		out := new(text)
		d := demo{
			manifests: "../../examples", dns: c.dns, page: c.page, out: out, scenes: scenes[:1],
			command: func(args ...string) *exec.Cmd {
				return program.Command(t, ".", append(args, strings.Fields(c.flag)...)...)
			},
		}
		err = d.run(t.Context())
		if err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("dns %s, page %s: got error %v, want %q", c.dns, c.page, err, c.want)
		}
		if c.flag == "" && out.String() != "" {
			t.Errorf("with an address in use: got\n%s\nwant no description", out)
		}
	}
}
