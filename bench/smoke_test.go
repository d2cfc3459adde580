//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// The bare loop is this program in another process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "loop" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The quick comparison over UDP, of our server and the bare loop: every answer of
// every kind of name is right, the files are written, and nothing is left behind.
// Speed is not tested.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	scratch, results := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", scratch)
	var out bytes.Buffer
	err := run(t.Context(), []string{"-quick", "-services", "40", "-time", "200ms", "-rounds", "2",
		"-scenarios", "udp,idle,encrypted,policy,binary", "-peers", "", "-pgo", "off", "-results", results, "-root", ".."}, &out)
	if err != nil {
		t.Fatalf("run: %v\n%s", err, &out)
	}
	files, err := filepath.Glob(filepath.Join(results, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("results: got %v, %v; want one file", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, res := range r.Results {
		seen[res.Label]++
		if len(res.Samples) != 2 {
			t.Errorf("%s, %s: got %d samples, want 2", res.Scenario, res.Label, len(res.Samples))
		}
		// On a busy machine a handshake can outlast a round.
		answered := false
		for _, s := range res.Samples {
			answered = answered || s.Answered > 0
			if s.Wrong > 0 || s.CPU <= 0 {
				t.Errorf("%s, %s: got %+v, want no wrong answers, and CPU time", res.Scenario, res.Label, s)
			}
		}
		if !answered {
			t.Errorf("%s, %s: got no answer in any round, want some", res.Scenario, res.Label)
		}
	}
	if seen["seamark"] != 18 || seen["loop"] != 9 || seen["off"] != 2 || seen["on"] != 2 {
		t.Errorf("results: got %v, want 18 of seamark, 9 of loop, and 2 without and with policy\n%s", seen, &out)
	}
	if page := files[0][:len(files[0])-len("json")] + "md"; !exists(page) {
		t.Errorf("%s is missing", page)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("temporary files: got %v, %v; want none", left, err)
	}
}

// An interrupted run stops the processes that it has started.
func TestInterrupt(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	o, err := parseOptions([]string{"-quick", "-services", "20", "-seamark", os.Args[0], "-peers", "", "-scenarios", "binary"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(o, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.stopAll()
	if err := b.prepare(ctx); err != nil {
		t.Fatal(err)
	}
	upstream := b.upstream
	l := b.load(upstream, comparison{workload: "cached"})
	l.time = 1 << 40 // until it is interrupted
	cancel()
	if _, err := l.run(ctx); err == nil {
		t.Error("run after cancel: got no error, want one")
	}
	b.stopAll()
	select {
	case <-upstream.done:
	default:
		t.Error("after stopAll: the upstream is running, want it stopped")
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
