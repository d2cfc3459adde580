//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A state is what outlives the process that starts a cluster: the file run/state.json.
type state struct {
	Options options
	Begun   []string // stages, in their order
	Groups  []string // directories of control groups
	Enabled []string // controllers of version 2 that were not enabled before
	Init    process  // the first process of the cluster, zero before its start
}

func stateFile(dir string) string { return filepath.Join(dir, "run", "state.json") }

// readState returns the state of the cluster of dir. The error is fs.ErrNotExist if there is none.
func readState(dir string) (*state, error) {
	text, err := os.ReadFile(stateFile(dir))
	if err != nil {
		return nil, err
	}
	s := new(state)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("reading %s: %w", stateFile(dir), err)
	}
	return s, nil
}

// write replaces the state file, so that a crash leaves the old or the new one.
func (s *state) write() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	file := stateFile(s.Options.Dir)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return replaceFile(file, text, 0o600)
}

// replaceFile writes a file under a temporary name and renames it.
func replaceFile(name string, text []byte, mode fs.FileMode) error {
	temporary := name + ".tmp"
	if err := os.WriteFile(temporary, text, mode); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return os.Rename(temporary, name)
}

// A process is identified by its number and its start: numbers are used again.
type process struct {
	PID   int
	Start string // ticks since the boot, field 22 of /proc/PID/stat
	Boot  string // /proc/sys/kernel/random/boot_id
}

// findProcess returns the process with a number, zero if there is none.
func findProcess(pid int) process {
	fields := readStat(pid)
	if fields == nil || fields[0] == "Z" || fields[0] == "X" {
		return process{}
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return process{PID: pid, Start: fields[19], Boot: strings.TrimSpace(string(boot))}
}

// readStat returns the fields of a process from field 3 on, its status, nil if there is none.
func readStat(pid int) []string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")

	// The name in parentheses may have spaces and parentheses itself (proc_pid_stat(5)).
	_, rest, _ := cutLast(string(text), ")")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return nil
	}
	return fields
}

func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

// runs reports whether p is a process that has not ended.
func (p process) runs() bool { return p.PID > 0 && findProcess(p.PID) == p }

// startsOrEnds is the use of the lock of a cluster's directory.
const startsOrEnds = "starts or ends the cluster of"

// lock returns the lock of a directory, which the process holds until it closes the file or ends.
// The use is what another process that holds it does.
func lock(dir, use string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another command %s %s: wait for it", use, dir)
	}
	return f, nil
}
