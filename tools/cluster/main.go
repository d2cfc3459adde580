//go:build linux

// Command cluster starts a real Kubernetes cluster on one machine, as a laboratory and for
// tests: etcd, the control plane, and nodes with containerd, kubelet and kube-proxy, with
// CoreDNS installed by kubeadm. It needs Linux, root, Go and a few Debian packages, but no
// container daemon and no registry: the programs are built from Go modules and the images
// are written as archives.
//
//	cluster up [FLAGS]            start it; see options.go for the flags
//	cluster programs [FLAGS]      build its programs and those of tests, the flags being those of up
//	cluster exec COMMAND          run a command on its first node
//	cluster conformance [FLAGS]   run tests on it; see conformance.go for the flags
//	cluster down                  end it, and remove what it made
//
// `make cluster`, `make conformance` and `make cluster-down` call it.
//
// The cluster is the descendants of one process, the first of a PID namespace, with network,
// mount, UTS and cgroup namespaces of their own (namespaces.go). No route leads out of them:
// the API server is reached through a listening socket of 127.0.0.1 that the process has
// inherited. When the process is killed, the kernel ends all others and removes their
// interfaces, rules and mounts. Outside remain a directory and a subtree of control groups.
//
// Each step of the start is a row of a table (stages.go). Rows that leave something outside
// the namespaces have an undo; the state file (state.go) names the rows that have begun, so
// that the end is the start in reverse, also after a crash.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()

	err := run(ctx, os.Args[1:])
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(2)
	case errors.As(err, new(machineError)):
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(77)
	default:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// A usageError is a mistake in the command line.
type usageError struct{ error }

// A machineError is what the machine lacks for a cluster.
type machineError struct{ error }

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usageError{errors.New("want up, programs, exec, conformance or down")}
	}

	switch name, args := args[0], args[1:]; name {
	case "up", "programs":
		o, err := parse(name, args)
		if err != nil {
			return err
		}
		if name == "programs" {
			return prepare(ctx, o)
		}
		return up(ctx, o)
	case "down":
		dir, err := parseDir("down", args)
		if err != nil {
			return err
		}
		return down(dir)
	case "exec":
		return enter(args)
	case "conformance":
		return runConformance(ctx, args)

	// The processes of a cluster, and the programs of the images pause and load.
	case "init":
		return runInit(args)
	case "control":
		return runControl(ctx)
	case "node":
		return runNode(ctx, args)
	case "load":
		return runLoad(ctx, args)
	case "probe":
		return runProbe(ctx, args)
	case "pause":
		<-ctx.Done()
		return nil
	default:
		return usageError{fmt.Errorf("unknown command %q: want up, programs, exec, conformance or down", name)}
	}
}
