//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// startNodes starts a process for each node, in namespaces of its own, and waits until the
// API server reports them ready.
func (c *cluster) startNodes(ctx context.Context) error {
	if err := os.WriteFile(c.file("resolv.conf"), []byte("nameserver "+internet+"\n"), 0o644); err != nil {
		return err
	}

	for n := range c.Options.Nodes {
		if err := c.startNode(ctx, n+1); err != nil {
			return err
		}
	}

	err := c.await(ctx, nodeName(1), func() error { return c.countReady(ctx, c.Options.Nodes) })
	if err != nil {
		return err
	}

	// kubeadm keeps kube-proxy's configuration in a ConfigMap, where seamark doctor finds its mode.
	return c.do(ctx, "--namespace", "kube-system", "create", "configmap", "kube-proxy",
		"--from-file", "config.conf="+c.file(nodeName(1), "proxy.yaml"))
}

// countReady returns an error unless the API server reports that number of nodes ready.
func (c *cluster) countReady(ctx context.Context, want int) error {
	out, err := c.kubectl(ctx, "get", "nodes", "-o",
		"jsonpath={range .items[*]}{.status.conditions[?(@.type=='Ready')].status} {end}")
	if err != nil {
		return err
	}
	if got := strings.Count(string(out), "True"); got < want {
		return fmt.Errorf("%d of %d nodes are ready", got, want)
	}
	return nil
}

// startNode starts the process of node n, and gives it its interface.
func (c *cluster) startNode(ctx context.Context, n int) error {
	log, err := os.OpenFile(c.log(nodeName(n)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	connected, connect, err := os.Pipe()
	if err != nil {
		return err
	}
	defer connected.Close()

	cmd := exec.Command("/proc/self/exe", "node", strconv.Itoa(n))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = connected, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		err := cmd.Wait()
		c.fail(fmt.Errorf("%s has ended (%w)%s", nodeName(n), err, c.logEnds(nodeName(n))))
	}()

	// The node goes on when the pipe is closed.
	defer connect.Close()
	return c.connectNode(ctx, n, cmd.Process.Pid)
}

// runNode is the process of a node: it makes the view of the node and runs its programs.
func runNode(ctx context.Context, args []string) error {
	s, err := readState(root)
	if err != nil {
		return err
	}
	c := &cluster{state: s, dir: root, out: os.Stdout}
	n, err := strconv.Atoi(strings.Join(args, ""))
	if err != nil {
		return usageError{err}
	}

	// A namespace of control groups has the process's groups as its root. Only a thread can
	// change to a new one, so the process replaces itself by one that is in it.
	const inside = "SEAMARK_CLUSTER_NODE"
	if os.Getenv(inside) == "" {
		if err := c.joinGroup(nodeName(n)); err != nil {
			return err
		}
		runtime.LockOSThread()
		if err := syscall.Unshare(syscall.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("making a namespace of control groups: %w", err)
		}
		return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), inside+"=1"))
	}

	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	dir := c.file(nodeName(n))
	err = steps(
		func() error { return c.makeSystemGroup(n) },
		func() error { return c.mount(dir) },
		mountGroups,
		func() error { return checkOverlay(dir) },
		func() error { return syscall.Sethostname([]byte(nodeName(n))) },
		func() error { return c.makeNodeNetwork(ctx, n) },
		func() error { return c.startRuntime(ctx, n) },
		func() error { return c.startKubelet(n) },
		func() error { return os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(os.Getpid())), 0o644) },
	)
	if err != nil {
		return err
	}
	select {}
}

// checkOverlay reports whether containerd can mount its snapshots in a directory: overlayfs
// refuses some file systems, among them itself.
func checkOverlay(dir string) error {
	dir = filepath.Join(dir, "overlay")
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}

	merged := filepath.Join(dir, "merged")
	options := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", dir, dir, dir)
	if err := mountOptions("overlay", merged, "overlay", 0, options); err != nil {
		return fmt.Errorf("the file system of the repository cannot hold images: %w", err)
	}
	return errors.Join(syscall.Unmount(merged, 0), os.RemoveAll(dir))
}

// mountGroups mounts the file systems of the kernel as the node's namespaces see them.
func mountGroups() error {
	hs, err := findHierarchies()
	if err != nil {
		return err
	}
	if err := mount("sysfs", "/sys", "sysfs", 0); err != nil {
		return err
	}
	if err := mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0); err != nil {
		return err
	}
	for _, h := range hs {
		if h.controllers == "" { // version 2
			return mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0)
		}
		if err := os.MkdirAll(h.dir, 0o755); err != nil {
			return err
		}
		if err := mountOptions("cgroup", h.dir, "cgroup", 0, h.controllers); err != nil {
			return err
		}
	}
	return nil
}

// startRuntime starts containerd, and imports the images.
func (c *cluster) startRuntime(ctx context.Context, n int) error {
	cni := c.file(nodeName(n), "cni")
	config := c.file(nodeName(n), "containerd.toml")
	err := errors.Join(
		writeTemplate("containerd.toml", config, map[string]string{"Pause": pauseImage, "CNI": cni}),
		writeTemplate("cni.json", filepath.Join(cni, "pods.conflist"), map[string]any{"Pods": c.podsOfNode(n)}),
	)
	if err != nil {
		return err
	}

	name := nodeName(n) + "/containerd"
	c.start(name, "containerd", "--config", config)
	if err := c.await(ctx, name, func() error {
		_, err := output(exec.CommandContext(ctx, "ctr", "version"))
		return err
	}); err != nil {
		return err
	}

	archives, err := filepath.Glob(c.file("images", "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		cmd := exec.CommandContext(ctx, "ctr", "--namespace", "k8s.io", "images", "import", archive)
		if _, err := output(cmd); err != nil {
			return err
		}
	}
	return nil
}

// startKubelet starts the kubelet and kube-proxy.
func (c *cluster) startKubelet(n int) error {
	name := nodeName(n)
	kubelet, proxy := c.file(name, "kubelet.yaml"), c.file(name, "proxy.yaml")
	err := errors.Join(
		writeTemplate("kubelet.yaml", kubelet, map[string]string{
			"CA": c.file("pki", "ca.crt"), "DNS": dnsService, "ResolvConf": c.file("resolv.conf"),
		}),
		writeTemplate("proxy.yaml", proxy, map[string]string{
			"Kubeconfig": c.file("proxy.conf"), "Pods": c.podNetworks(), "Node": name, "Mode": c.Options.Proxy,
		}),
	)
	if err != nil {
		return err
	}
	c.start(name+"/kubelet", "kubelet", "--config", kubelet, "--kubeconfig", c.file(name+".conf"),
		"--hostname-override", name, "--node-ip", strings.Join(c.nodeAddresses(n), ","))
	c.start(name+"/kube-proxy", "kube-proxy", "--config", proxy)
	return nil
}
