//go:build unix

package directive

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/processgroup"
)

// Words are those of the module that CoreDNS uses, github.com/flynn/go-shlex.
func TestSplitCommand(t *testing.T) {
	for line, want := range map[string][]string{
		"cmd arg1 arg2":          {"cmd", "arg1", "arg2"},
		`  cmd  'a  b'	"c  d" `:  {"cmd", "a  b", "c  d"},
		`cmd a'b c'd "" ''`:      {"cmd", "ab cd", "", ""},
		`cmd "a \"b\" \n" 'a\b'`: {"cmd", `a "b" n`, `a\b`},
		`cmd a\ b \# # c`:        {"cmd", "a b", "#"},
		"cmd a#b #c\nd":          {"cmd", "a#b", "d"},
		"cmd $HOME *.go &":       {"cmd", "$HOME", "*.go", "&"},
	} {
		if got, err := splitCommand(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, error %v, want %q", line, got, err, want)
		}
	}
	for line, want := range map[string]string{
		`cmd "a`:     `missing closing quote`,
		`cmd 'a\'b'`: `missing closing quote`,
		`cmd "a\"`:   `missing closing quote`,
		`cmd \`:      `missing character after \`,
		" # cmd":     "want a command",
	} {
		if got, err := splitCommand(line); fmt.Sprint(err) != want {
			t.Errorf("%s: got %q, error %v, want error %s", line, got, err, want)
		}
	}
}

// lines waits until a file has a number of lines, and returns them.
func lines(t *testing.T, file string, count int) []string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		text, _ := os.ReadFile(file)
		if got := strings.Fields(string(text)); len(got) >= count {
			return got
		}
		if time.Now().After(end) {
			t.Fatalf("%s: got %q, want %d lines", file, text, count)
		}
	}
}

// gone waits until a process does not exist, not even as a zombie.
func gone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); syscall.Kill(n, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d: still exists", n)
		}
	}
}

// The commands of startup run in their order, again for a reload, those of shutdown when
// the process stops.
func TestOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events")
	r := run(t, strings.ReplaceAll(`.:53 {
    on startup sh -c 'echo first >> FILE'
    on Startup sh -c 'echo second >> FILE'
    on shutdown sh -c 'echo end >> FILE'
    on shutdown sh -c 'echo end >> FILE' &
    on certrenew sh -c 'echo certrenew >> FILE'
    whoami
}`, "FILE", file))
	reload := config.NewStart(context.Background(), r.start)
	if err := r.block.Started(reload); err != nil {
		t.Fatal(err)
	}
	config.Shutdown(context.Background(), r.block)
	if got, want := lines(t, file, 6), []string{"first", "second", "first", "second", "end", "end"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := fmt.Sprint(r.block.Warnings()); !strings.Contains(got, "certrenew never happens") {
		t.Errorf("warnings: got %s, want one about certrenew", got)
	}
}

// A command in the background ends with its plan, and so do the processes that it has
// started and that ignore SIGTERM.
func TestOnBackground(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	file := filepath.Join(t.TempDir(), "pids")
	script := `trap "" TERM; sleep 60 & echo $$ $! >> ` + file + `; trap "exit 0" TERM; wait`
	if err := os.WriteFile(file+".sh", []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, ".:53 {\n on startup sh "+file+".sh &\n whoami\n}")
	pids := lines(t, file, 2)
	r.start.Stop()
	gone(t, pids[0])
	gone(t, pids[1])
}

// Stop of a command that has ended sends no signal if no process of its group is left, since the kernel may have given
// its ID to others: here to cat.
func TestOnBackgroundEndedSendsNoSignal(t *testing.T) {
	c, err := startBackground([]string{"true"}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	<-c.ended

	other := exec.CommandContext(t.Context(), "cat")
	processgroup.Set(other)
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = other.Wait() }()

	c.Process = other.Process
	c.Stop()
	_, _ = io.WriteString(in, "alive\n")
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "alive\n" {
		t.Errorf("the process with the ID of a command that has ended: got %q, error %v, want it alive", line, err)
	}
}

// Stop of a command that has ended kills the processes that it has left.
func TestOnBackgroundEndedLeavesProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	file := filepath.Join(t.TempDir(), "pids")
	c, err := startBackground([]string{"sh", "-c", "sleep 60 & echo $! > " + file}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	<-c.ended
	c.Stop()
	gone(t, lines(t, file, 1)[0])
}

// A command of startup that fails, or that takes too long, fails the start. At the deadline
// its whole process group is killed.
func TestOnFailure(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	file := filepath.Join(t.TempDir(), "pids")
	text := strings.ReplaceAll(`sh -c 'trap "" TERM; sleep 60 & echo $$ $! >> FILE; wait'`, "FILE", file)
	words, err := splitCommand(text)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- runCommand(ctx, 300*time.Millisecond, words) }()
	pids := lines(t, file, 2)
	if err := <-ended; err == nil || err.Error() != "killed after 300ms" {
		t.Errorf("runCommand: got error %v, want killed after 300ms", err)
	}
	gone(t, pids[0])
	gone(t, pids[1])

	for command, want := range map[string]string{
		"sh -c 'exit 3'": "exit status 3",
		"nosuch":         `exec: "nosuch": executable file not found in $PATH`,
		"nosuch &":       `exec: "nosuch": executable file not found in $PATH`,
	} {
		b, err := plan(t, ".:53 {\n on startup "+command+"\n whoami\n}")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Started(config.NewStart(context.Background(), nil)); err == nil || err.Error() != "Corefile:2: on: "+want {
			t.Errorf("on startup %s: got error %v, want Corefile:2: on: %s", command, err, want)
		}
		if got := len(b.Warnings()); got != 1 && strings.HasPrefix(command, "nosuch") {
			t.Errorf("on startup %s: got %d warnings, want one", command, got)
		}
	}
}

// A failure at a shutdown is logged.
func TestOnShutdownFailure(t *testing.T) {
	r := run(t, ".:53 {\n on shutdown sh -c 'exit 4'\n whoami\n}")
	r.block.Log = slog.New(slog.NewTextHandler(r.out, nil))
	config.Shutdown(context.Background(), r.block)
	want := `level=ERROR msg="on: Command failed" command=sh error="exit status 4"`
	if got := r.out.String(); !strings.Contains(got, want) {
		t.Errorf("log: got %s, want %s", got, want)
	}
}
