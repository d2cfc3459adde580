//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// required has the Debian package of each program and file that the cluster needs.
var required = map[string]string{
	"/usr/include/stdlib.h": "libc6-dev",
	"/usr/lib/cni/bridge":   "containernetworking-plugins",
	"conntrack":             "conntrack",
	"curl":                  "curl",
	"dig":                   "bind9-dnsutils",
	"gcc":                   "gcc",
	"getent":                "libc-bin",
	"ip":                    "iproute2",
	"iptables":              "iptables",
	"ldd":                   "libc-bin",
	"mount":                 "mount",
	"musl-gcc":              "musl-tools",
	"nft":                   "nftables",
	"nsenter":               "util-linux",
	"runc":                  "runc",
}

// Free bytes that a start needs: for the files of the running cluster, and for each program that
// is missing, with its modules and packages in Go's caches.
const (
	runSpace     = 2 << 30
	programSpace = 600 << 20
)

// Instances of inotify that the programs of the control plane and those of a node take, with some for pods. The
// bound, 128 by default, is for each user of the whole machine.
const (
	controlInotify = 16
	nodeInotify    = 16
)

// checkMachine reports everything that the machine lacks for a cluster at once, and listens on
// the port of the API server.
func (c *cluster) checkMachine(context.Context) error {
	return c.check(c.requiredPrograms(), c.modules())
}

// checkBeforeBuild reports what the machine lacks for a cluster and for tests with these programs. To build others takes
// long.
func (c *cluster) checkBeforeBuild(tests map[string]string) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}

	programs, modules := c.requiredPrograms(), c.modules()
	if tests != nil {
		maps.Copy(programs, tests)
		modules = append(modules, c.testModule())
	}
	if err := c.check(programs, modules); err != nil {
		return machineError{err}
	}

	return c.listener.Close()
}

// requiredPrograms returns the programs that a cluster with the options needs.
func (c *cluster) requiredPrograms() map[string]string {
	programs := maps.Clone(required)
	if c.Options.Proxy == "ipvs" {
		programs["ipset"] = "ipset"
	}
	return programs
}

// check checks for programs, the kernel's parts, and the room for the programs of modules.
func (c *cluster) check(programs map[string]string, modules []module) error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root, to make namespaces: sudo make cluster")
	}

	errs := []error{checkPrograms(programs, find)}
	if text, err := os.ReadFile("/proc/filesystems"); err == nil && !strings.Contains(string(text), "\toverlay\n") {
		errs = append(errs, errors.New("the kernel has no overlayfs, which containerd needs: try modprobe overlay"))
	}
	// Nodes cannot load a module of the machine's kernel.
	if _, err := os.Stat("/proc/sys/net/bridge"); err != nil {
		errs = append(errs, errors.New("the kernel has no br_netfilter, without which a pod does not reach a Service on its node: "+
			"try modprobe br_netfilter"))
	}
	if _, err := os.Stat("/proc/net/ip_vs"); c.Options.Proxy == "ipvs" && err != nil {
		errs = append(errs, errors.New("the kernel has no ip_vs, which kube-proxy needs in mode ipvs: try modprobe -a ip_vs ip_vs_rr"))
	}
	if _, err := findHierarchies(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, checkSpace(c.dir, c.needs(modules)), checkInotify(controlInotify+c.Options.Nodes*nodeInotify))

	// The listener stays open, so that nothing else can take the port during a long build.
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.Options.Port))
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("port %d of 127.0.0.1 is in use, perhaps by another cluster: try make cluster PORT=%d",
			c.Options.Port, c.Options.Port+1)
	}
	if err == nil {
		c.listener = l.(*net.TCPListener)
	}
	return errors.Join(append(errs, err)...)
}

// checkPrograms reports the programs and files that find does not find, with their Debian packages.
func checkPrograms(programs map[string]string, find func(string) string) error {
	var names, packages []string
	for name, debian := range programs {
		if find(name) == "" {
			names = append(names, name)
			packages = append(packages, debian)
		}
	}
	if len(names) == 0 {
		return nil
	}

	slices.Sort(names)
	slices.Sort(packages)
	return fmt.Errorf("programs are missing: %s; on Debian: apt-get install %s",
		strings.Join(names, ", "), strings.Join(slices.Compact(packages), " "))
}

// find returns the path of a file, or of a program, also in the directories of administrators.
func find(name string) string {
	if _, err := os.Stat(name); filepath.IsAbs(name) && err == nil {
		return name
	}
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			return path
		}
	}
	return ""
}

// needs returns the bytes that have to be free for a cluster and the programs of modules.
func (c *cluster) needs(modules []module) uint64 {
	needs := uint64(runSpace)
	for _, m := range modules {
		for _, p := range m.programs {
			if _, err := os.Stat(c.program(m, p.name)); err != nil {
				needs += programSpace
			}
		}
	}
	return needs
}

func checkSpace(dir string, needs uint64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < needs {
		return fmt.Errorf("%s: %.1f GB are free, and a start needs %.1f GB", dir, float64(free)/1e9, float64(needs)/1e9)
	}
	return nil
}

// checkInotify makes n instances of inotify and closes them. Without, containerd and kube-proxy do not start.
func checkInotify(n int) error {
	var made []int
	defer func() {
		for _, fd := range made {
			syscall.Close(fd)
		}
	}()

	for range n {
		fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("%d of %d instances of inotify are left (%w): end programs that watch files, or raise "+
				"the bound, as with sysctl fs.inotify.max_user_instances=1024", len(made), n, err)
		}
		made = append(made, fd)
	}
	return nil
}
