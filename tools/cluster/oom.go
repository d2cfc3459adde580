//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A container is that of a DNS pod.
type container struct {
	pod, node int // process ID of its server, as the machine sees it, and number of its node
	name      string
}

// exceedMemory lets a DNS pod exceed its memory limit. A process in the container's control group fills
// a file of the node's tmpfs: its pages count as the container's and belong to no process, so that the
// kernel kills the largest one, which is the server.
func (t *conformance) exceedMemory(ctx context.Context) error {
	c, err := t.lastContainer(ctx)
	if err != nil {
		return err
	}
	group, limit, err := t.memoryGroup(c.pod)
	if err != nil {
		return err
	}

	// The writer is killed, too, when the server's memory is not enough.
	const file = "/run/fill"
	script := `echo $$ >"$1/cgroup.procs" && exec head -c "$2" /dev/zero >"$3"`
	output(t.onNode(ctx, c.node, "sh", "-c", script, "sh", group, strconv.Itoa(limit+32<<20), file))
	_, err = output(t.onNode(ctx, c.node, "rm", file))
	if err != nil {
		return err
	}

	err = t.await(ctx, "kubelet", func() error {
		reason, err := t.kubectl(ctx, "-n", "kube-system", "get", "pod", c.name,
			"-o", "jsonpath={.status.containerStatuses[0].lastState.terminated.reason}")
		if err == nil && string(reason) != "OOMKilled" {
			err = fmt.Errorf("the container of %s ended last with reason %q, want OOMKilled", c.name, reason)
		}
		return err
	})
	return errors.Join(err, pause(ctx, 10*time.Second), t.rollout(ctx, "kube-system", "coredns"))
}

// lastContainer returns the container of the last DNS pod: another operation kills that of the first
// one, and the kubelet waits before it starts one again that has ended twice.
func (t *conformance) lastContainer(ctx context.Context) (c container, err error) {
	uids, err := t.dnsPods(ctx, "metadata.uid")
	names, namesErr := t.dnsPods(ctx, "metadata.name")
	nodes, nodesErr := t.dnsPods(ctx, "spec.nodeName")
	if err := errors.Join(err, namesErr, nodesErr); err != nil {
		return c, err
	}
	last := len(uids) - 1
	if last < 0 || len(names) != len(uids) || len(nodes) != len(uids) {
		return c, errors.New("there is no DNS pod")
	}

	pids, err := t.containerProcesses(uids[last])
	if err != nil || len(pids) == 0 {
		return c, errors.Join(err, fmt.Errorf("%s has no process", names[last]))
	}
	c = container{pod: pids[0], name: names[last]}
	c.node, err = strconv.Atoi(strings.TrimPrefix(nodes[last], "node"))
	return c, err
}

// containerProcesses returns the processes of a pod but for the one that keeps its namespaces.
func (t *conformance) containerProcesses(uid string) ([]int, error) {
	return t.processes(func(pid int) bool {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		return strings.Contains(string(groups), "pod"+uid) && comm(pid) != "pause"
	})
}

// memoryGroup returns the directory of a process's memory controller, as its node sees it, and the limit.
func (t *conformance) memoryGroup(pid int) (dir string, limit int, err error) {
	hs, err := findHierarchies()
	if err != nil {
		return "", 0, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", 0, err
	}

	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, h := range hs {
			// Version 2 has one group for all controllers, without their names.
			of, file := "memory", "memory.limit_in_bytes"
			if h.controllers == "" {
				of, file = "", "memory.max"
			}
			controllers := func(names string) bool { return slices.Contains(strings.Split(names, ","), of) }
			if len(fields) < 3 || !controllers(fields[1]) || !controllers(h.controllers) {
				continue
			}

			value, err := os.ReadFile(filepath.Join(h.dir, fields[2], file))
			if err != nil {
				return "", 0, err
			}
			limit, err = strconv.Atoi(strings.TrimSpace(string(value)))

			// The node's namespace of control groups begins at its own.
			_, inside, ok := strings.Cut(fields[2], "/kubepods")
			switch {
			case err != nil || limit > 1<<30: // version 2 has the word max
				err = fmt.Errorf("the container of process %d has no memory limit: %s", pid, value)
			case !ok:
				err = fmt.Errorf("process %d is in the control group %s, not in one of a pod", pid, fields[2])
			}
			return filepath.Join(h.dir, "kubepods"+inside), limit, err
		}
	}
	return "", 0, fmt.Errorf("process %d has no memory controller", pid)
}
