//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A failingStart is a start of a cluster during which something happens.
type failingStart struct {
	*testing.T
	program string
	before  []string // traces on the machine at its begin
}

// begin starts a cluster, and calls happen when a line of its output begins with a text. It returns all
// output and the error.
func (f *failingStart) begin(text string, happen func(*os.Process), args ...string) (string, error) {
	f.Helper()
	f.before = traces(f.T)
	ctx, cancel := context.WithTimeout(f.Context(), time.Hour)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.program, append([]string{"up", "-source", "../.."}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var errorText bytes.Buffer
	cmd.Stderr = &errorText
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		f.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}

	var out strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		fmt.Fprintln(&out, lines.Text())
		if happen != nil && strings.HasPrefix(lines.Text(), text) {
			happen(cmd.Process)
			happen = nil
		}
	}
	err = cmd.Wait()
	if happen != nil && text != "" {
		f.Errorf("no line begins with %q:\n%s", text, out.String())
	}
	return out.String() + errorText.String(), err
}

// refused checks that a start had an error, and has left nothing.
func (f *failingStart) refused(want, out string, err error) {
	f.Helper()
	if err == nil || !strings.Contains(out, want) {
		f.Errorf("got the error %v and\n%s\nwant an error with %q", err, out, want)
	}
	checkTraces(f.T, f.before)
}

// TestClusterFailures starts clusters that do not become ready. Each start has an error with its cause and
// leaves nothing. It runs with SEAMARK_CLUSTER, as TestCluster.
func TestClusterFailures(t *testing.T) {
	dir, program, flags := clusterProgram(t)
	args := append([]string{"-dir", dir}, flags...)

	t.Run("port in use", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		f := failingStart{T: t, program: program}
		out, err := f.begin("", nil, append(args, "-port", fmt.Sprint(port))...)
		f.refused(fmt.Sprintf("port %d of 127.0.0.1 is in use", port), out, err)
	})

	t.Run("no instances of inotify", func(t *testing.T) {
		takeInotify(t)
		f := failingStart{T: t, program: program}
		out, err := f.begin("", nil, args...)
		f.refused("instances of inotify are left", out, err)
	})

	t.Run("second start at the same time", func(t *testing.T) {
		f := failingStart{T: t, program: program}
		out, err := f.begin("== programs", func(first *os.Process) {
			out, err := exec.Command(program, append([]string{"up", "-source", "../.."}, args...)...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "another command starts or ends the cluster") {
				t.Errorf("the second: got the error %v and\n%s", err, out)
			}
			first.Signal(syscall.SIGINT)
		}, args...)
		f.refused("interrupted", out, err)
	})

	t.Run("too little space", func(t *testing.T) {
		f := failingStart{T: t, program: program}
		small := f.diskOf("64m", dir)
		out, err := f.begin("", nil, append([]string{"-dir", small}, flags...)...)
		f.refused("GB are free, and a start needs", out, err)
	})

	t.Run("full disk", func(t *testing.T) {
		f := failingStart{T: t, program: program}
		small := f.diskOf("2200m", dir)
		out, err := f.begin("== images", func(*os.Process) {
			file, err := os.Create(filepath.Join(small, "filler"))
			if err != nil {
				t.Error(err)
				return
			}
			defer file.Close()
			if _, err := io.Copy(file, endless{}); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("filling the disk: got the error %v, want ENOSPC", err)
			}
		}, append([]string{"-dir", small}, flags...)...)
		f.refused("no space left on device", out, err)
	})

	for _, s := range append(outside(), inside(options{})...) {
		t.Run("interrupted in the stage "+s.name, func(t *testing.T) {
			f := failingStart{T: t, program: program}
			out, err := f.begin("== "+s.name, func(p *os.Process) { p.Signal(syscall.SIGINT) }, args...)
			f.refused("interrupted", out, err)
		})
	}

	t.Run("killed in the stage nodes", func(t *testing.T) {
		f := failingStart{T: t, program: program}
		if _, err := f.begin("== nodes", func(p *os.Process) { p.Kill() }, args...); err == nil {
			t.Error("got no error")
		}
		if out, err := exec.Command(program, "down", "-dir", dir).CombinedOutput(); err != nil {
			t.Errorf("cluster down: %v\n%s", err, out)
		}
		checkTraces(f.T, f.before)
	})
}

// takeInotify takes all instances of inotify of the user until the end of the test.
func takeInotify(t *testing.T) {
	t.Helper()
	for {
		fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
		if err != nil {
			return
		}
		t.Cleanup(func() { syscall.Close(fd) })
	}
}

// diskOf returns a directory of a file system of that size, with the programs of dir.
func (f *failingStart) diskOf(size, dir string) string {
	f.Helper()
	small := f.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size="+size); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { syscall.Unmount(small, syscall.MNT_DETACH) })
	if err := os.Symlink(filepath.Join(dir, "programs"), filepath.Join(small, "programs")); err != nil {
		f.Fatal(err)
	}
	return small
}

// endless is a reader of zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
