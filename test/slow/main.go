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
	"slices"
	"strings"
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
	failed := false
	for _, arg := range os.Args[1:] {
		directory, file, _ := strings.Cut(arg, "=")
		suspects, err := suspects(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		for _, e := range suspects {
			slow, err := isSlow(directory, e)
			switch {
			case err != nil:
				fmt.Fprintf(os.Stderr, "%s %s: %v\n", e.Package, e.Test, err)
				failed = true
			case slow:
				fmt.Printf("%s %s takes more than a second: skip it if testing.Short()\n", e.Package, e.Test)
				failed = true
			default:
				fmt.Printf("%s %s took %.1f s, and less than a second alone\n", e.Package, e.Test, e.Elapsed)
			}
		}
	}
	if failed {
		os.Exit(1)
	}
}

// suspects returns the events of the tests in a file that took more than a second.
func suspects(file string) (slow []event, err error) {
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
			slow = append(slow, e)
		}
	}
	slices.SortFunc(slow, func(a, b event) int { return strings.Compare(a.Package, b.Package) })
	return slow, nil
}

// isSlow runs a test of the module in directory alone, and reports whether each run was slow.
func isSlow(directory string, e event) (bool, error) {
	list := exec.Command("go", "list", "-f", "{{.Dir}}", e.Package)
	list.Dir, list.Stderr = directory, os.Stderr
	out, err := list.Output()
	if err != nil {
		return false, err
	}
	packageDir := strings.TrimSpace(string(out))

	temp, err := os.MkdirTemp("", "slow")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	binary := filepath.Join(temp, "package.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Dir, build.Stderr = packageDir, os.Stderr
	if err := build.Run(); err != nil {
		return false, err
	}

	for range runs {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		test := exec.CommandContext(ctx, binary, "-test.short", "-test.run", "^"+e.Test+"$")
		test.Dir = packageDir
		began := time.Now()
		text, err := test.CombinedOutput()
		cancel()
		if err != nil {
			return false, fmt.Errorf("%w\n%s", err, text)
		}
		if test.ProcessState.UserTime()+test.ProcessState.SystemTime() < limit && time.Since(began) < maxBusy {
			return false, nil
		}
	}
	return true, nil
}
