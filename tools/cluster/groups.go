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

	// Of version 2 the kubelet does without cpuset.
	needed := []string{"cpu", "memory", "pids"}
	if len(v2) == 0 {
		needed = append(needed, "cpuset")
	}
	for _, name := range needed {
		if !slices.Contains(have, name) {
			return nil, fmt.Errorf("the kubelet needs the controller %s of control groups, which is not mounted", name)
		}
	}
	switch {
	case len(v2) == 0:
		return v1, nil
	case len(v1) > 0:
		return nil, errors.New("some controllers of control groups are those of version 1 and some of version 2: want one version")
	}
	return []hierarchy{{dir: v2[0]}}, nil
}

// unified reports whether a control group is one of version 2.
func unified(group string) bool {
	_, err := os.Stat(filepath.Join(group, "cgroup.controllers"))
	return err == nil
}

// enableControllers enables the controllers that the kubelet and runc use for the groups below one of version 2,
// and returns those that were not enabled before. The kernel refuses it in a group with processes, except the root.
func enableControllers(group string) (enabled []string, err error) {
	available, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(group, "cgroup.subtree_control")
	before, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	for _, name := range strings.Fields(string(available)) {
		used := slices.Contains([]string{"cpu", "cpuset", "hugetlb", "io", "memory", "pids"}, name)
		if used && !slices.Contains(strings.Fields(string(before)), name) {
			enabled = append(enabled, name)
		}
	}
	if enabled == nil {
		return nil, nil
	}
	if err := os.WriteFile(file, []byte("+"+strings.Join(enabled, " +")), 0); err != nil {
		return nil, fmt.Errorf("enabling controllers of control groups: %w", err)
	}
	return enabled, nil
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

	c.Groups = nil
	for _, h := range hs {
		c.Groups = append(c.Groups, filepath.Join(h.dir, c.group()))
	}

	// A crash and the removal of the directory may have left groups, but never processes.
	if err := errors.Join(c.write(), c.removeGroups()); err != nil {
		return err
	}
	for _, base := range c.Groups {
		if root := filepath.Dir(base); unified(root) {
			if c.Enabled, err = enableControllers(root); err != nil {
				return err
			}
			if err := c.write(); err != nil {
				return err
			}
		}

		if err := makeGroup(base); err != nil {
			return err
		}
		if unified(base) {
			if _, err := enableControllers(base); err != nil {
				return err
			}
		}
		dirs := []string{"control"}
		for n := range c.Options.Nodes {
			dirs = append(dirs, nodeName(n+1))
		}
		for _, dir := range dirs {
			if err := makeGroup(filepath.Join(base, dir)); err != nil {
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
	if unified(dir) {
		return nil
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

// makeSystemGroup moves the process, which is the first one of node n, from the node's group into one of its own. With
// version 2 a group that has processes cannot enable controllers for the groups below it (cgroups(7)), as those of pods.
func (c *cluster) makeSystemGroup(n int) error {
	base := c.Groups[0]
	if !unified(base) {
		return nil
	}
	name := filepath.Join(nodeName(n), "system")
	if err := errors.Join(makeGroup(filepath.Join(base, name)), c.joinGroup(name)); err != nil {
		return err
	}
	_, err := enableControllers(filepath.Join(base, nodeName(n)))
	return err
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

// removeGroups removes the subtrees of control groups, and disables the controllers that were enabled for them,
// unless others use them meanwhile.
func (c *cluster) removeGroups() error {
	var errs []error
	for _, base := range c.Groups {
		errs = append(errs, removeGroup(base, time.Now().Add(10*time.Second)))
		if len(c.Enabled) > 0 {
			file := filepath.Join(filepath.Dir(base), "cgroup.subtree_control")
			err := os.WriteFile(file, []byte("-"+strings.Join(c.Enabled, " -")), 0)
			if !errors.Is(err, syscall.EBUSY) {
				errs = append(errs, err)
			}
		}
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
