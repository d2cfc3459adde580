// Package programs builds programs that tests of this module run, into the directory bin of the
// repository.
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Build calls build for the path of a program, bin/NAME, and returns that path. module is the
// directory of module kubetest. Test binaries of several packages may call it at once: they wait for
// each other.
func Build(name string, build func(module, program string) error) (program string, err error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("locating module kubetest: %w", err)
	}
	module := filepath.Dir(strings.TrimSpace(string(mod)))
	program = filepath.Join(module, "..", "bin", name)
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return "", err
	}

	lock, err := os.Create(program + ".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	return program, build(module, program)
}
