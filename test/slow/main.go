// Slow finds the tests that take more than a second and that -short does not skip: make quick
// runs it after the tests. Its arguments are DIRECTORY=FILE, where FILE has the events of go
// test -json -short in the module in DIRECTORY.
//
// On a busy machine every test is slow. So a test that took more than a second is run again by
// itself, three times, and is reported if each run used a second of processor time, or ended
// after more than three seconds. It also prints the time that the others took.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	limit   = time.Second     // of a test on a quiet machine
	maxBusy = 3 * time.Second // of such a test on a busy one
	runs    = 3
)

// An event is what go test -json prints (cmd/test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // in seconds
}

func main() {
	var failed atomic.Bool
	var running sync.WaitGroup
	atOnce := make(chan struct{}, 2) // a linker uses one processor
	for _, arg := range os.Args[1:] {
		directory, file, _ := strings.Cut(arg, "=")
		suspects, err := suspects(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		for _, tests := range suspects {
			running.Go(func() {
				atOnce <- struct{}{}
				defer func() { <-atOnce }()
				if !judge(directory, tests) {
					failed.Store(true)
				}
			})
		}
	}

	running.Wait()
	if failed.Load() {
		os.Exit(1)
	}
}

// suspects returns the events of the tests in a file that took more than a second, by package.
func suspects(file string) (slow map[string][]event, err error) {
	slow = map[string][]event{}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var e event
		if err := d.Decode(&e); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if e.Action == "pass" && e.Test != "" && !strings.Contains(e.Test, "/") && e.Elapsed > limit.Seconds() {
			slow[e.Package] = append(slow[e.Package], e)
		}
	}
	return slow, nil
}

// judge runs the tests of a package of the module in directory again, each alone, and prints which of them are slow. It
// reports whether none is.
func judge(directory string, suspects []event) (quick bool) {
	name := suspects[0].Package
	dir, binary, err := build(directory, name)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return false
	}
	defer func() { _ = os.RemoveAll(filepath.Dir(binary)) }()

	quick = true
	for _, e := range suspects {
		slow, err := isSlow(dir, binary, e.Test)
		switch {
		case err != nil:
			fmt.Fprintf(os.Stderr, "%s %s: %v\n", name, e.Test, err)
			quick = false
		case slow:
			fmt.Printf("%s %s takes more than a second: skip it if testing.Short()\n", name, e.Test)
			quick = false
		default:
			fmt.Printf("%s %s took %.1f s, and less than a second alone\n", name, e.Test, e.Elapsed)
		}
	}
	return quick
}

// build builds the tests of a package, and returns the directory of the package and the path of the binary, in a
// directory of its own.
func build(directory, name string) (dir, binary string, err error) {
	list := exec.Command("go", "list", "-f", "{{.Dir}}", name)
	list.Dir, list.Stderr = directory, os.Stderr
	out, err := list.Output()
	if err != nil {
		return "", "", err
	}

	temp, err := os.MkdirTemp("", "slow")
	if err != nil {
		return "", "", err
	}
	dir, binary = strings.TrimSpace(string(out)), filepath.Join(temp, "package.test")
	compile := exec.Command("go", "test", "-c", "-o", binary, ".")
	compile.Dir, compile.Stderr = dir, os.Stderr
	if err := compile.Run(); err != nil {
		return "", "", errors.Join(err, os.RemoveAll(temp))
	}
	return dir, binary, nil
}

// isSlow runs a test alone, and reports whether each run was slow.
func isSlow(dir, binary, test string) (bool, error) {
	for range runs {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		run := exec.CommandContext(ctx, binary, "-test.short", "-test.run", "^"+test+"$")
		run.Dir = dir
		began := time.Now()
		text, err := run.CombinedOutput()
		cancel()
		if err != nil {
			return false, fmt.Errorf("%w\n%s", err, text)
		}
		if run.ProcessState.UserTime()+run.ProcessState.SystemTime() < limit && time.Since(began) < maxBusy {
			return false, nil
		}
	}
	return true, nil
}
