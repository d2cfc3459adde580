//go:build linux

package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The error about a proxy that starts with another line than its address has no empty cause.
func TestStartProbeProxyWithoutAddress(t *testing.T) {
	dir := t.TempDir()
	const kubectl = "#!/bin/sh\nif [ \"$3\" = proxy ]; then echo denied; else read command; fi\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	_, err := (&conformance{cluster: newTestCluster(t)}).startProbe(t.Context())
	if want := `kubectl proxy said "denied\n": it has no address`; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// TestProbeAwaits has a server that says that a name does not exist, then that it has no addresses, and then
// that it has one: only the last is an answer.
func TestProbeAwaits(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	replies := make(chan [2]byte, 8) // code and number of answers
	for _, r := range [][2]byte{{3, 0}, {0, 0}, {0, 0}, {0, 1}, {0, 1}} {
		replies <- r
	}
	go func() {
		packet := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(packet)
			if err != nil {
				return
			}
			r := <-replies
			packet[2] |= 0x80
			packet[3], packet[7] = packet[3]|r[0], r[1]
			server.WriteTo(packet[:n], from)
		}
	}()

	r, w := io.Pipe()
	go func() {
		defer w.Close()
		for range 2 {
			if err := awaitName(server.LocalAddr().String(), "a.example.org", json.NewEncoder(w)); err != nil {
				t.Error(err)
			}
		}
	}()
	var got []probed
	for d := json.NewDecoder(r); ; {
		var p probed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, p)
	}

	if len(got) != 3 || got[0] != (probed{}) || got[1].At.IsZero() || got[1].Error != "" ||
		!strings.Contains(got[2].Error, "already") || len(replies) != 0 {
		t.Errorf("got %+v, and %d replies are left", got, len(replies))
	}
}

func TestPercentiles(t *testing.T) {
	var all []time.Duration
	for i := 200; i > 0; i-- {
		all = append(all, time.Duration(i))
	}
	if p50, p99 := percentiles(all); p50 != 100 || p99 != 198 {
		t.Errorf("got %d and %d, want 100 and 198", p50, p99)
	}
	if p50, p99 := percentiles(all[:1]); p50 != 1 || p99 != 1 {
		t.Errorf("of one: got %d and %d, want it", p50, p99)
	}
}
