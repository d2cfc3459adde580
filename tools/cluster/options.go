//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Versions of the programs that are the same for every version of Kubernetes.
const (
	containerdVersion = "2.4.2"
	etcdVersion       = "3.7.3"
	corednsVersion    = "1.15.0"
	kwokVersion       = "0.8.0"
)

// kubernetes has the tried version of each minor version.
func kubernetes() map[string]string {
	return map[string]string{"1.34": "1.34.4", "1.35": "1.35.4", "1.36": "1.36.3", "1.37": "1.37.2"}
}

// Bounds of what has been tried. With five nodes, one was not ready after three minutes.
const (
	maxNodes = 3
	maxFake  = 100
)

// options are the properties of a cluster. They are in the state file.
type options struct {
	Dir        string // absolute; programs, images, and the directory run of the running cluster
	Source     string // root of the repository
	Kubernetes string // version, without v
	Proxy      string // mode of kube-proxy
	DualStack  bool
	Nodes      int
	Fake       int           // simulated nodes of kwok
	Port       int           // of 127.0.0.1, for the API server
	Patience   time.Duration // how long a step may take
}

// parse returns the options that the args of a command select.
func parse(command string, args []string) (options, error) {
	var o options
	f := newFlagSet(command, &o.Dir)
	o.addFlags(f)
	if err := parseFlags(f, args); err != nil {
		return o, err
	}
	return o, o.check()
}

// addFlags adds the flags of a cluster to f.
func (o *options) addFlags(f *flag.FlagSet) {
	f.StringVar(&o.Source, "source", ".", "root of the repository")
	f.StringVar(&o.Kubernetes, "kubernetes", "1.37", "version of Kubernetes")
	f.StringVar(&o.Proxy, "proxy", "iptables", "mode of kube-proxy: iptables, ipvs or nftables")
	f.BoolVar(&o.DualStack, "dual-stack", false, "give nodes, pods and Services IPv6 addresses, too")
	f.IntVar(&o.Nodes, "nodes", 1, "number of nodes")
	f.IntVar(&o.Fake, "kwok", 0, "number of further nodes that kwok simulates")
	f.IntVar(&o.Port, "port", 16443, "port of 127.0.0.1 for the API server")
	f.DurationVar(&o.Patience, "patience", 3*time.Minute, "how long a step may take, such as a node's start")
}

// check completes the options. Every value that it accepts has been tried.
func (o *options) check() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	versions := kubernetes()
	wanted := strings.TrimPrefix(o.Kubernetes, "v")
	if version, ok := versions[wanted]; ok {
		o.Kubernetes = version
	} else if o.Kubernetes = wanted; !slices.Contains(slices.Collect(maps.Values(versions)), wanted) {
		tried := strings.Join(slices.Sorted(maps.Values(versions)), ", ")
		refuse("-kubernetes %s: not tried: want one of %s", wanted, tried)
	}

	if !slices.Contains([]string{"iptables", "ipvs", "nftables"}, o.Proxy) {
		refuse("-proxy %s: not tried: want iptables, ipvs or nftables", o.Proxy)
	}
	if o.Nodes < 1 || o.Nodes > maxNodes {
		refuse("-nodes %d: not tried: want 1 to %d", o.Nodes, maxNodes)
	}
	if o.Fake < 0 || o.Fake > maxFake {
		refuse("-kwok %d: not tried: want 0 to %d", o.Fake, maxFake)
	}
	if o.Port < 1 || o.Port > 65535 {
		refuse("-port %d: want 1 to 65535", o.Port)
	}
	if o.Patience < time.Second {
		refuse("-patience %v: want 1s at least", o.Patience)
	}
	if len(errs) > 0 {
		return usageError{errors.Join(errs...)}
	}

	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err == nil {
		o.Source, err = filepath.Abs(o.Source)
	}
	return err
}

// String describes the cluster.
func (o options) String() string {
	families := "IPv4"
	if o.DualStack {
		families = "dual stack"
	}
	return fmt.Sprintf("Kubernetes %s, nodes: %d, simulated nodes: %d, kube-proxy %s, %s",
		o.Kubernetes, o.Nodes, o.Fake, o.Proxy, families)
}

// parseDir returns the directory of a command that has no other option.
func parseDir(command string, args []string) (string, error) {
	var dir string
	if err := parseFlags(newFlagSet(command, &dir), args); err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

func newFlagSet(command string, dir *string) *flag.FlagSet {
	f := flag.NewFlagSet("cluster "+command, flag.ContinueOnError)
	f.SetOutput(io.Discard) // main prints the error
	f.StringVar(dir, "dir", "bin/cluster", "directory for programs, images and the running cluster")
	return f
}

func parseFlags(f *flag.FlagSet, args []string) error {
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		f.SetOutput(os.Stdout)
		f.Usage()
		return err
	case err != nil:
		return usageError{err}
	case f.NArg() > 0:
		return usageError{fmt.Errorf("want flags, got the argument %q", f.Arg(0))}
	}
	return nil
}
