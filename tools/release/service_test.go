package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/tools/build"
)

// boot starts systemd in new namespaces, with a copy-on-write root directory. Its
// arguments are a directory for the root, and a directory that is shared with it as /mnt.
// Units that change the state of the kernel are masked.
const boot = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
root=$1/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$root"
mount -t proc proc "$root/proc"
mount --bind -o ro "$root/proc/sys" "$root/proc/sys"
mount --rbind /dev "$root/dev"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$2" "$root/mnt"
if [ -d /sys/fs/cgroup/unified ]; then
	mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
	mkdir "$root/sys/fs/cgroup/systemd" "$root/sys/fs/cgroup/unified"
	mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified"
else
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
fi
units=$root/etc/systemd/system
rm -rf "$units"
mkdir -p "$units"
for unit in systemd-sysctl.service systemd-binfmt.service systemd-modules-load.service \
	systemd-remount-fs.service systemd-udevd.service systemd-udev-trigger.service \
	systemd-random-seed.service systemd-update-utmp.service systemd-hwdb-update.service \
	proc-sys-fs-binfmt_misc.automount dev-hugepages.mount sys-kernel-debug.mount \
	sys-kernel-tracing.mount sys-fs-fuse-connections.mount sys-kernel-config.mount; do
	ln -s /dev/null "$units/$unit"
done
printf '[Unit]\nRequires=basic.target\nAfter=basic.target\n' >"$units/test.target"
ip link set lo up
exec chroot "$root" /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	/lib/systemd/systemd --unit=test.target --show-status=0 --log-target=null
`

// A host runs systemd in namespaces of its own.
type host struct {
	t   *testing.T
	pid string
}

// startHost boots a host with directory mounted at /mnt, and ends it with the test. It
// needs root, systemd, ip of iproute2, and unshare and nsenter of util-linux.
func startHost(t *testing.T, directory string) host {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to make namespaces")
	}
	missing := ""
	for _, program := range []string{"/lib/systemd/systemd", "ip", "unshare", "nsenter", "dpkg"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = program
		}
	}
	if missing != "" {
		if os.Getenv("SEAMARK_TEST_COMPLETE") != "" {
			t.Fatalf("%s is missing", missing)
		}
		t.Skipf("needs %s", missing)
	}
	var out bytes.Buffer
	c := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup",
		"sh", "-c", boot, "boot", t.TempDir(), directory)
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
	})
	// unshare has one child, the first process of the namespace.
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", c.Process.Pid)
	h := host{t: t}
	waitFor(t, "systemd has started", func() error {
		select {
		case <-ended: // in a container without the right to mount, for example
			t.Skipf("systemd cannot run in namespaces of its own here: %s", out.String())
		default:
		}
		pid, err := os.ReadFile(children)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out.String())
		}
		h.pid = strings.TrimSpace(string(pid))
		if name, err := os.ReadFile("/proc/" + h.pid + "/comm"); err != nil || string(name) != "systemd\n" {
			return fmt.Errorf("the first process is %q, error %v\n%s", name, err, out.String())
		}
		if state, err := h.run("systemctl", "is-active", "test.target"); err != nil {
			return fmt.Errorf("test.target: %s", state)
		}
		return nil
	})
	return h
}

// run runs a command on the host and returns its output.
func (h host) run(args ...string) (string, error) {
	out, err := exec.Command("nsenter", append([]string{"--target", h.pid, "--all", "--root", "--wd"}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// must runs a command on the host, which must succeed.
func (h host) must(args ...string) string {
	h.t.Helper()
	out, err := h.run(args...)
	if err != nil {
		logs, _ := h.run("journalctl", "--no-pager", "--unit=seamark.service", "--unit=seamark.socket")
		h.t.Fatalf("%s: %v\n%s\n%s", strings.Join(args, " "), err, out, logs)
	}
	return out
}

// waitFor waits until check returns nil.
func waitFor(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestPackageService installs the Debian package on a host with systemd, starts the
// service, queries it, changes its Corefile, upgrades it, and removes it.
func TestPackageService(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	source := repository(t)
	directory := t.TempDir()
	h := startHost(t, directory)
	old, new := debs(t, source, directory)
	if err := os.CopyFS(filepath.Join(directory, "examples"), os.DirFS(filepath.Join(source, "examples"))); err != nil {
		t.Fatal(err)
	}

	h.must("dpkg", "--install", old)
	h.must("seamark", "check", "/etc/seamark/Corefile")
	h.must("systemd-analyze", "verify", "/usr/lib/systemd/system/seamark.service", "/usr/lib/systemd/system/seamark.socket")
	if state, err := h.run("systemctl", "is-active", "seamark.service"); err == nil {
		t.Errorf("after the installation: the service is %s, want inactive", state)
	}
	h.must("systemctl", "enable", "--now", "seamark.service")
	if got := h.must("systemctl", "show", "--property=ActiveState,NRestarts", "seamark.service"); got != "NRestarts=0\nActiveState=active" {
		t.Errorf("service: got %q, want it active and not restarted", got)
	}
	// The host reaches no nameserver: the server answers SERVFAIL.
	reply, _ := h.run("seamark", "query", "example.org.", "A", "--server", "127.0.0.1")
	if !strings.Contains(reply, "SERVFAIL") {
		t.Errorf("the Corefile of the package: got %q, want SERVFAIL", reply)
	}

	corefile := ".:53 {\n\tbind 127.0.0.1\n\tkubernetes cluster.local {\n\t\tmanifests /etc/seamark/examples\n\t}\n}\n"
	if err := os.WriteFile(filepath.Join(directory, "Corefile"), []byte(corefile), 0o644); err != nil {
		t.Fatal(err)
	}
	h.must("cp", "-r", "/mnt/Corefile", "/mnt/examples", "/etc/seamark/")
	h.must("systemctl", "reload", "seamark.service")
	answers := func() error {
		reply, err := h.run("seamark", "query", "web.shop.svc.cluster.local.", "A", "--server", "127.0.0.1")
		if err != nil || !strings.Contains(reply, "10.96.10.10") {
			return fmt.Errorf("got %q, want 10.96.10.10", reply)
		}
		return nil
	}
	waitFor(t, "answer with the changed Corefile", answers)

	nodeService(t, h, source, directory)

	before := h.must("systemctl", "show", "--property=MainPID", "seamark.service")
	h.must("dpkg", "--install", new)
	if got := h.must("seamark", "version"); !strings.Contains(got, "Seamark-1.2.4\n") {
		t.Errorf("version after the upgrade: got %q, want 1.2.4", got)
	}
	if after := h.must("systemctl", "show", "--property=MainPID", "seamark.service"); after == before {
		t.Errorf("service after the upgrade: got %s as before, want it restarted", after)
	}
	waitFor(t, "answer after the upgrade, which keeps the changed Corefile", answers)

	h.must("dpkg", "--remove", "seamark")
	if got := h.must("sh", "-c", "ss -Hlntu 'sport = 53'"); got != "" {
		t.Errorf("sockets after the removal: got %s, want none", got)
	}
	if _, err := h.run("systemctl", "cat", "seamark.service"); err == nil {
		t.Error("service after the removal: got a unit, want none")
	}
	h.must("test", "-e", "/etc/seamark/Corefile")
	h.must("rm", "-r", "/etc/seamark/examples")
	h.must("dpkg", "--purge", "seamark")
	h.must("test", "!", "-e", "/etc/seamark")
}

// nodeService starts the cache of a node as docs/how-to/node-systemd.md describes it. The unit in the
// kubelet's place, which is ordered after it, gets an answer at once, and again after the process that
// answers has been killed.
func nodeService(t *testing.T, h host, source, directory string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(source, "deploy/systemd/Corefile.node"))
	if err != nil {
		t.Fatal(err)
	}
	hosts := "    hosts {\n        192.0.2.1 node.test\n        fallthrough\n    }\n    errors\n"
	for name, text := range map[string]string{
		"Corefile.node": strings.Replace(string(text), "    errors\n", hosts, 1),
		"kubelet.service": "[Unit]\nWants=seamark-node.service\n[Service]\nType=oneshot\n" +
			"ExecStart=/usr/bin/seamark query node.test. A --server 169.254.20.10\n",
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h.must("cp", "/mnt/Corefile.node", "/etc/seamark/Corefile.node")
	h.must("mkdir", "-p", "/etc/systemd/system")
	h.must("cp", "/mnt/kubelet.service", "/etc/systemd/system/")
	h.must("systemctl", "daemon-reload")
	h.must("systemd-analyze", "verify", "/usr/lib/systemd/system/seamark-node.service")

	started := func(when string) {
		t.Helper()
		if out, err := h.run("systemctl", "start", "kubelet.service"); err != nil {
			logs, _ := h.run("journalctl", "--no-pager", "--unit=seamark-node.service", "--unit=kubelet.service")
			t.Fatalf("%s: what is ordered after the cache fails: %v\n%s\n%s", when, err, out, logs)
		}
	}
	started("at the start")
	h.must("seamark", "status", "--admin", "unix:/run/seamark-node/admin.sock")
	h.must("sh", "-c", "kill -9 $(pgrep -P $(systemctl show --value --property=MainPID seamark-node.service))")
	started("after the worker was killed")

	h.must("systemctl", "stop", "seamark-node.service")
	if out, err := h.run("ip", "link", "show", "nodelocaldns"); err == nil {
		t.Errorf("after the stop the interface is there: %s", out)
	}
	h.must("rm", "/etc/systemd/system/kubelet.service")
}

// debs writes two versions of the Debian package to directory, which the host has at
// /mnt, and returns their names there.
func debs(t *testing.T, source, directory string) (old, new string) {
	t.Helper()
	platform, err := build.Platforms("linux/" + architecture(t))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, version := range []string{"1.2.3", "1.2.4"} {
		r := build.Release{Source: source, Version: version, Date: date, PGO: "off"}
		manual, err := manualFiles(r)
		if err != nil {
			t.Fatal(err)
		}
		files, err := platformFiles(r, platform[0], manual)
		if err != nil {
			t.Fatal(err)
		}
		a, err := newPackage(r, platform[0], "deb", files)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, a.name), a.data, 0o644); err != nil {
			t.Fatal(err)
		}
		names = append(names, "/mnt/"+a.name)
	}
	return names[0], names[1]
}
