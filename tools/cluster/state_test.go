//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

func newTestCluster(t *testing.T) *cluster {
	c := newCluster(&state{Options: options{Dir: t.TempDir(), Kubernetes: "1.37.2", Port: 7000, Nodes: 2}})
	c.out = io.Discard
	return c
}

func TestStateFile(t *testing.T) {
	c := newTestCluster(t)
	if _, err := readState(c.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: got the error %v, want fs.ErrNotExist", err)
	}

	c.Begun, c.Groups, c.Init = []string{"a", "b"}, []string{"/g"}, process{3, "4", "5"}
	if err := c.write(); err != nil {
		t.Fatal(err)
	}
	if s, err := readState(c.dir); err != nil || !reflect.DeepEqual(s, c.state) {
		t.Errorf("got %+v, %v, want %+v", s, err, c.state)
	}

	if err := os.WriteFile(stateFile(c.dir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readState(c.dir); err == nil || !strings.Contains(err.Error(), stateFile(c.dir)) {
		t.Errorf("half a file: got the error %v, want one with its name", err)
	}
}

func TestProcessRuns(t *testing.T) {
	p := findProcess(os.Getpid())
	if !p.runs() {
		t.Errorf("%+v: got false, want true", p)
	}
	for name, other := range map[string]process{
		"zero":           {},
		"other start":    {p.PID, "1", p.Boot},
		"other boot":     {p.PID, p.Start, "x"},
		"missing number": {1 << 30, p.Start, p.Boot},
	} {
		if other.runs() {
			t.Errorf("%s: got true, want false", name)
		}
	}
}

func TestProcessRunsZombie(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := findProcess(cmd.Process.Pid)
	if !p.runs() {
		t.Errorf("%+v: got false, want true", p)
	}

	// It stays in the table of processes until Wait.
	in.Close()
	for p.runs() {
		if readStat(p.PID) == nil {
			t.Fatal("the process was reaped")
		}
	}
	cmd.Wait()
}

func TestLockHeld(t *testing.T) {
	dir := t.TempDir()
	l, err := lock(dir, startsOrEnds)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(dir, startsOrEnds); err == nil || !strings.Contains(err.Error(), "another command starts or ends the cluster of "+dir) {
		t.Errorf("a second lock: got the error %v, want one that names another command", err)
	}

	l.Close()
	again, err := lock(dir, startsOrEnds)
	if err != nil {
		t.Fatalf("after the end of the first: %v", err)
	}
	again.Close()
}

// recordedStages returns stages a to d that record what they do. b has no undo.
func recordedStages(record *[]string, broken string) []stage {
	do := func(name string) func(*cluster, context.Context) error {
		return func(*cluster, context.Context) error {
			*record = append(*record, "do "+name)
			if name == broken {
				return errors.New("broken")
			}
			return nil
		}
	}
	undo := func(name string) func(*cluster) error {
		return func(*cluster) error {
			*record = append(*record, "undo "+name)
			return nil
		}
	}
	return []stage{
		{"a", "", do("a"), undo("a")},
		{"b", "", do("b"), nil},
		{"c", "", do("c"), undo("c")},
		{"d", "", do("d"), undo("d")},
	}
}

func TestUndoReverse(t *testing.T) {
	for _, test := range []struct{ broken, want string }{
		{"", "do a, do b, do c, do d, undo d, undo c, undo a"},
		{"c", "do a, do b, do c, undo c, undo a"},
		{"a", "do a, undo a"},
	} {
		c := newTestCluster(t)
		var record []string
		stages := recordedStages(&record, test.broken)
		err := c.run(t.Context(), stages, func(name string) error {
			c.Begun = append(c.Begun, name)
			return c.write()
		})
		if (err != nil) != (test.broken != "") {
			t.Errorf("broken %q: got the error %v", test.broken, err)
		}

		// A crash: another process has only the file.
		s, err := readState(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := newCluster(s).undoAll(stages); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(record, ", "); got != test.want {
			t.Errorf("broken %q: got %s, want %s", test.broken, got, test.want)
		}
	}
}

func TestUndoErrorStops(t *testing.T) {
	c := newTestCluster(t)
	var record []string
	stages := recordedStages(&record, "")
	stages[2].undo = func(*cluster) error { return errors.New("busy") }
	c.Begun = []string{"a", "b", "c", "d"}

	err := c.undoAll(stages)
	if err == nil || !strings.Contains(err.Error(), "stage c has made: busy") {
		t.Errorf("got the error %v, want that of stage c", err)
	}
	if got := strings.Join(record, ", "); got != "undo d" {
		t.Errorf("got %s, want undo d: the state of the others is needed for the next attempt", got)
	}
}

// TestUndoneStagesLast checks that the stages that undo the files and the namespaces frame the
// others: files are removed last, and nothing is removed while processes use it.
func TestUndoneStagesLast(t *testing.T) {
	stages := outside()
	if first := stages[0]; first.name != "machine" || first.undo == nil {
		t.Errorf("the first stage is %s, want machine, which removes the state file", first.name)
	}
	if last := stages[len(stages)-1]; last.name != "namespaces" || last.undo == nil {
		t.Errorf("the last stage is %s, want namespaces, which ends the processes", last.name)
	}
	for _, s := range inside(options{Fake: 1}) {
		if s.undo != nil {
			t.Errorf("the stage %s in the namespaces has an undo, which nothing calls", s.name)
		}
	}
}

// An interrupted `go run` must not leave its program, which writes into the cluster's directory.
func TestOutputInterruptsChildren(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() {
		_, err := output(exec.CommandContext(ctx, "sh", "-c", `sh -c 'echo $$ >"$0"; exec sleep 600' "$0"; exit 3`, file))
		done <- err
	}()

	var child process
	for deadline := time.Now().Add(time.Minute); !child.runs(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the child has not started after a minute")
		}
		text, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			child = findProcess(pid)
		}
	}

	cancel()
	if err := <-done; err == nil {
		t.Error("interrupted: got no error")
	}
	for deadline := time.Now().Add(time.Minute); child.runs(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the child has not ended after a minute")
		}
	}
}
