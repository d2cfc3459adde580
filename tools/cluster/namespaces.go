//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// root is the cluster's directory in its mount namespaces. Sockets below it have short paths,
// whatever the directory of the repository is (sun_path has 108 bytes).
const root = "/run/cluster"

// ready is the line with which the control process ends its reports of progress.
const ready = "ready"

// startInit starts the first process of the cluster in new namespaces and reports its progress
// until the cluster is ready.
func (c *cluster) startInit(ctx context.Context) error {
	alive, keep, err := os.Pipe()
	if err != nil {
		return err
	}
	defer alive.Close()
	defer keep.Close()
	progress, report, err := os.Pipe()
	if err != nil {
		return err
	}
	defer progress.Close()

	l, err := c.listener.File()
	if err != nil {
		return err
	}
	defer l.Close()

	cmd := exec.Command("/proc/self/exe", "init", c.dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = alive, report, report
	cmd.ExtraFiles = []*os.File{l}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, // no signal of the terminal
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS |
			syscall.CLONE_NEWIPC,
	}
	err = cmd.Start()
	report.Close()
	if err != nil {
		return fmt.Errorf("making namespaces: %w", err)
	}
	go cmd.Wait()

	c.Init = findProcess(cmd.Process.Pid)
	if err := c.write(); err != nil {
		return err
	}

	// At the end of the context the read fails, and the caller undoes the stages.
	stop := context.AfterFunc(ctx, func() { progress.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.follow(progress); ctx.Err() == nil {
		return err
	}
	return ctx.Err()
}

// follow copies the progress of the control process until the cluster is ready.
func (c *cluster) follow(progress io.Reader) error {
	lines := bufio.NewScanner(progress)
	var failure []string
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == ready:
			return nil
		case len(failure) > 0 || strings.HasPrefix(line, "cluster: "):
			failure = append(failure, strings.TrimPrefix(line, "cluster: "))
		default:
			fmt.Fprintln(c.out, line)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return errors.New(strings.Join(append(failure, "the cluster's first process has ended"), "\n"))
}

// killInit ends the first process, and with it all others of the PID namespace
// (pid_namespaces(7)), and waits until the kernel has removed them.
func (c *cluster) killInit() error {
	deadline := time.Now().Add(time.Minute)
	for c.Init.runs() {
		if err := syscall.Kill(c.Init.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not end", c.Init.PID)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// runInit is the first process of the PID namespace: it starts the control process, and
// reaps the processes whose parents have ended, such as containers.
func runInit(args []string) error {
	if len(args) != 1 {
		return usageError{errors.New("init: want a directory")}
	}
	s, err := readState(args[0])
	if err != nil {
		return err
	}
	c := newCluster(s)
	if err := c.joinGroup("control"); err != nil {
		return err
	}
	if err := c.mount(c.file("control")); err != nil {
		return err
	}

	cmd := exec.Command("/proc/self/exe", "control")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "listener")}
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid == cmd.Process.Pid:
			return fmt.Errorf("the control process has ended with status %d", status.ExitStatus())
		}
	}
}

// runControl starts the cluster inside its namespaces, and then connects clients of the
// listener with the API server. Its end is the end of the cluster.
func runControl(ctx context.Context) error {
	s, err := readState(root)
	if err != nil {
		return err
	}
	c := &cluster{state: s, dir: root, out: os.Stdout}
	for _, dir := range []string{"logs", "tmp"} {
		if err := os.MkdirAll(c.file(dir), 0o755); err != nil {
			return err
		}
	}
	os.Setenv("TMPDIR", c.file("tmp"))
	os.Setenv("PATH", c.path()+":/usr/sbin:/usr/bin:/sbin:/bin")

	// Standard input ends when the starting process does; then the start is over.
	starting, started := context.WithCancelCause(ctx)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		started(errors.New("the starting process has ended"))
	}()
	c.fail = started
	if err := c.run(starting, inside(c.Options), func(string) error { return starting.Err() }); err != nil {
		return err
	}

	log, err := os.OpenFile(c.file("logs", "control.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	fmt.Println(ready)
	for _, fd := range []int{1, 2} {
		if err := syscall.Dup3(int(log.Fd()), fd, 0); err != nil {
			return err
		}
	}

	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	return relay(l, apiServer)
}

// relay connects each client of l with address.
func relay(l net.Listener, address string) error {
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			defer server.Close()

			// Either side may end its half first: a watch ends with the server's.
			done := make(chan struct{})
			go func() {
				defer close(done)
				io.Copy(server, client)
				server.(*net.TCPConn).CloseWrite()
			}()
			io.Copy(client, server)
			client.(*net.TCPConn).CloseWrite()
			<-done
		}()
	}
}

// mount gives the process's mount namespace a view of its own: the cluster's directory at
// root, and /run, /var/lib and /var/log of a node, which are in dir on the disk.
func (c *cluster) mount(dir string) error {
	base, err := os.Open(c.dir)
	if err != nil {
		return err
	}
	defer base.Close()
	for _, name := range []string{"lib", "log"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	own, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer own.Close()

	// Private first: nothing must propagate to the machine. Then shared among the processes
	// of this namespace, for volumes with mountPropagation.
	if err := mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE); err != nil {
		return err
	}
	if err := mount("none", "/", "", syscall.MS_REC|syscall.MS_SHARED); err != nil {
		return err
	}

	// The open directories are found even if they are below /run or /var/lib.
	at := func(f *os.File, name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), name) }
	for _, m := range []struct{ source, target, kind string }{
		{at(own, "lib"), "/var/lib", ""},
		{at(own, "log"), "/var/log", ""},
		{"tmpfs", "/run", "tmpfs"},
		{at(base, "."), root, ""},
		{"proc", "/proc", "proc"},
	} {
		flags := uintptr(0)
		if m.kind == "" {
			flags = syscall.MS_BIND
		}
		if m.target == root {
			if err := os.MkdirAll(root, 0o755); err != nil {
				return err
			}
		}
		if err := mount(m.source, m.target, m.kind, flags); err != nil {
			return err
		}
	}
	return hideSysctls()
}

// hideSysctls covers the sysctls of the whole machine that a kubelet sets, by files with the
// values that it wants.
func hideSysctls() error {
	for name, value := range map[string]string{
		"kernel/panic": "10", "kernel/panic_on_oops": "1", "vm/overcommit_memory": "1", "vm/panic_on_oom": "0",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		file := filepath.Join("/run/sysctl", strings.ReplaceAll(name, "/", "."))
		if err := errors.Join(
			os.MkdirAll("/run/sysctl", 0o755),
			os.WriteFile(file, []byte(value+"\n"), 0o644),
			mount(file, "/proc/sys/"+name, "", syscall.MS_BIND),
		); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, kind string, flags uintptr) error {
	return mountOptions(source, target, kind, flags, "")
}

func mountOptions(source, target, kind string, flags uintptr, options string) error {
	if err := syscall.Mount(source, target, kind, flags, options); err != nil {
		return &os.PathError{Op: "mounting " + source + " at", Path: target, Err: err}
	}
	return nil
}

// enter replaces the process by a command in the namespaces of a node.
func enter(args []string) error {
	dir, n, args, err := splitCommand(args)
	if err != nil {
		return err
	}
	s, err := readState(dir)
	if err != nil || !s.Init.runs() {
		return fmt.Errorf("no cluster of %s runs: start it with make cluster", dir)
	}

	c := &cluster{state: s, dir: root}
	nsenter := find("nsenter")
	os.Setenv("KUBECONFIG", c.file("admin.conf"))
	os.Setenv("PATH", c.file("bin")+":"+c.path()+":"+os.Getenv("PATH"))
	command := []string{"nsenter", "--target", strconv.Itoa(s.Init.PID), "--mount", "--pid", "--ipc"}
	if n == 0 {
		command = append(command, "--net", "--uts", "--")
		return syscall.Exec(nsenter, append(command, args...), os.Environ())
	}

	// The first process has the PID namespace, in whose /proc the node's process is found.
	node, err := os.ReadFile(filepath.Join(dir, "run", nodeName(n), "pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return usageError{fmt.Errorf("-node %d: the cluster has %d", n, s.Options.Nodes)}
	}
	if err != nil {
		return err
	}
	command = append(command, "--", "nsenter", "--target", string(node), "--mount", "--net", "--uts", "--")
	return syscall.Exec(nsenter, append(command, args...), os.Environ())
}

// splitCommand separates the flags of exec from the command, a shell if there is none.
func splitCommand(args []string) (dir string, node int, command []string, err error) {
	f := newFlagSet("exec", &dir)
	f.IntVar(&node, "node", 1, "number of the node, 0 for the control plane")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return "", 0, nil, err
	case err != nil:
		return "", 0, nil, usageError{err}
	}

	command = f.Args()
	if len(command) == 0 {
		command = []string{"/bin/sh"}
	}
	dir, err = filepath.Abs(dir)
	return dir, node, command, err
}
