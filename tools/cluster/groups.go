//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A hierarchy is one of the mounted trees of control groups: several with cgroup v1, one
// with v2.
type hierarchy struct {
	dir         string // mount point
	controllers string // mount options of v1, "" for v2
}

// findHierarchies returns the hierarchies of the machine that nodes need.
func findHierarchies() ([]hierarchy, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseHierarchies(string(text), func(dir string) string {
		text, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		return string(text)
	})
}

// otherOptions are the mount options of a hierarchy that name no controller.
var otherOptions = []string{"rw", "ro", "xattr", "clone_children", "noprefix", "cpuset_v2_mode", "nsdelegate"}

// parseHierarchies reads mountinfo (proc_pid_mountinfo(5)). A machine with v1 may have a tree of
// v2 without controllers beside, which is left alone.
func parseHierarchies(mountinfo string, controllers func(dir string) string) ([]hierarchy, error) {
	var v1 []hierarchy
	var v2, have []string
	for line := range strings.Lines(mountinfo) {
		mount, super, ok := strings.Cut(line, " - ")
		from, of := strings.Fields(mount), strings.Fields(super)
		if !ok || len(from) < 5 || len(of) < 3 {
			continue
		}

		switch dir := from[4]; of[0] {
		case "cgroup2":
			if names := strings.Fields(controllers(dir)); slices.Contains(names, "memory") {
				v2, have = append(v2, dir), append(have, names...)
			}
		case "cgroup":
			names := slices.DeleteFunc(strings.Split(of[2], ","), func(option string) bool {
				return slices.Contains(otherOptions, option) || strings.HasPrefix(option, "release_agent=")
			})
			v1, have = append(v1, hierarchy{dir, strings.Join(names, ",")}), append(have, names...)
		}
	}

	for _, name := range []string{"cpu", "cpuset", "memory", "pids"} {
		if !slices.Contains(have, name) {
			return nil, fmt.Errorf("the kubelet needs the controller %s of control groups, which is not mounted", name)
		}
	}
	if len(v2) > 0 {
		return nil, errors.New("control groups of version 2: not tried, want version 1")
	}
	return v1, nil
}

// group returns the name of the subtree of control groups. Clusters of several directories on
// one machine differ in their ports.
func (c *cluster) group() string { return fmt.Sprintf("seamark-cluster-%d", c.Options.Port) }

// makeGroups makes a group for the control plane and one for each node in every hierarchy.
func (c *cluster) makeGroups(context.Context) error {
	hs, err := findHierarchies()
	if err != nil {
		return err
	}

	for _, h := range hs {
		base := filepath.Join(h.dir, c.group())
		c.Groups = append(c.Groups, base)
	}

	// A crash and the removal of the directory may have left groups, but never processes.
	if err := errors.Join(c.write(), c.removeGroups()); err != nil {
		return err
	}
	for _, base := range c.Groups {
		dirs := []string{base, filepath.Join(base, "control")}
		for n := range c.Options.Nodes {
			dirs = append(dirs, filepath.Join(base, nodeName(n+1)))
		}
		for _, dir := range dirs {
			if err := makeGroup(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeGroup makes a control group. One of cpuset v1 has no processors and no memory at first,
// and refuses processes.
func makeGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0); err != nil {
			return err
		}
	}
	return nil
}

// joinGroup moves the process to the group of a name in every hierarchy.
func (c *cluster) joinGroup(name string) error {
	for _, base := range c.Groups {
		if err := os.WriteFile(filepath.Join(base, name, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("joining a control group: %w", err)
		}
	}
	return nil
}

// removeGroups removes the subtrees of control groups.
func (c *cluster) removeGroups() error {
	var errs []error
	for _, base := range c.Groups {
		errs = append(errs, removeGroup(base, time.Now().Add(10*time.Second)))
	}
	return errors.Join(errs...)
}

// removeGroup removes a group and those below it. The kernel may hold a group for a moment
// after its last process has ended.
func removeGroup(dir string, deadline time.Time) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(filepath.Join(dir, e.Name()), deadline); err != nil {
				return err
			}
		}
	}

	for {
		err := os.Remove(dir)
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
