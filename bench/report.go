//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A report is the result of a run.
type report struct {
	Date     time.Time         `json:"date"`
	Commit   string            `json:"commit"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Cluster  map[string]int    `json:"cluster"`
	Method   map[string]string `json:"method"`
	Goals    []verdict         `json:"goals"`
	Results  []*result         `json:"results"`
	Numbers  []number          `json:"numbers"`
	Missing  []string          `json:"missing"` // measurements that were not possible, and why
}

type machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Memory int64  `json:"memory_bytes"`
}

// A number is a measurement other than the CPU time of answers.
type number struct {
	Name   string    `json:"name"`
	Title  string    `json:"title"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
}

// number adds a measurement to the report, or reports it as missing if a value is none, as a quantile of nothing is:
// JSON has no form for it.
func (b *bench) number(name, title, unit string, values ...float64) {
	isNone := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
	if len(values) == 0 || slices.ContainsFunc(values, isNone) {
		b.miss("%s: no value", title)
		return
	}
	b.report.Numbers = append(b.report.Numbers, number{name, title, unit, values})
	b.series[name] = values
	fmt.Fprintf(b.out, "%-35s %s: %s\n", name, title, show(spreadOf(values), unit))
}

// megabytes adds sizes of memory to the report, in the unit of container limits: "48Mi".
func (b *bench) megabytes(name, title string, bytes int64) {
	b.number(name, title, "MB", float64(bytes)/(1<<20))
}

// miss reports a measurement that was not possible, and why.
func (b *bench) miss(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	b.report.Missing = append(b.report.Missing, text)
	b.say("not measured: %s", text)
}

// packages returns the peers with their Debian packages and programs. dnsmasq's
// package is the program without the service.
func packages() map[string][2]string {
	return map[string][2]string{
		"knot": {"knotd", "knot"}, "dnsmasq": {"dnsmasq", "dnsmasq-base"}, "unbound": {"unbound", "unbound"},
		"nsd": {"nsd", "nsd"},
	}
}

// findPeers locates the peers, and installs missing ones with -install.
func (b *bench) findPeers(ctx context.Context) {
	b.report.Versions = map[string]string{"go": runtime.Version()}
	for _, name := range b.options.peers {
		program, pkg := packages()[name][0], packages()[name][1]
		path, err := find(program)
		if err != nil && b.install {
			b.say("installing %s", pkg)
			if err := install(ctx, pkg); err != nil {
				b.miss("%s: %v", name, err)
				continue
			}
			path, err = find(program)
		}

		if err != nil {
			b.miss("%s is not installed: apt-get install %s", name, pkg)
			continue
		}

		b.paths[name] = path
		b.report.Versions[name] = version(ctx, path, map[string]string{"unbound": "-V"}[name])
	}

	if b.basePath != "" {
		b.paths["base"] = b.basePath
		b.report.Versions["base"] = version(ctx, b.basePath, "-version")
	}
	if b.corednsPath == "" {
		b.miss("CoreDNS: set COREDNS to its binary")
	} else {
		b.paths["coredns"] = b.corednsPath
		b.report.Versions["coredns"] = version(ctx, b.corednsPath, "-version")
	}
}

// find locates a server, which may not be in PATH.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", program))
}

func install(ctx context.Context, pkg string) error {
	if os.Getuid() != 0 {
		return fmt.Errorf("apt-get install %s needs root", pkg)
	}
	cmd := exec.CommandContext(ctx, "apt-get", "install", "-y", "-qq", "--no-install-recommends", pkg)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get install %s: %w: %s", pkg, err, bytes.TrimSpace(text))
	}
	return nil
}

func version(ctx context.Context, path, flag string) string {
	if flag == "" {
		flag = "--version"
	}
	text, err := exec.CommandContext(ctx, path, flag).CombinedOutput()
	if err != nil {
		return "unknown: " + err.Error()
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

// finish judges the goals and writes the two files.
func (b *bench) finish() error {
	r := &b.report
	r.Date = time.Now().UTC().Truncate(time.Second)
	r.Commit = commit(b.root)
	r.Machine = thisMachine()
	r.Cluster = map[string]int{"namespaces": b.pop.namespaces, "services": b.pop.services(),
		"endpoints": b.pop.endpoints()}
	r.Method = map[string]string{
		"rounds": fmt.Sprint(b.rounds), "run": b.time.String(), "pinned": fmt.Sprint(b.pin),
		"wildcard": fmt.Sprint(b.wildcard),
		"quick":    fmt.Sprint(b.quick), "dnsperf": fmt.Sprint(b.dnsperf),
		"cluster from": map[bool]string{true: "an API server", false: "a folder"}[b.api != nil],
	}

	r.Goals = judgeAll(goals(), b.series)
	if err := os.MkdirAll(b.results, 0o755); err != nil {
		return err
	}

	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}

	name := filepath.Join(b.results, r.Date.Format("2006-01-02T150405Z"))
	if err := os.WriteFile(name+".json", append(text, '\n'), 0o644); err != nil {
		return err
	}

	page := r.markdown()
	if err := os.WriteFile(name+".md", []byte(page), 0o644); err != nil {
		return err
	}

	fmt.Fprintf(b.out, "\n%s\nwritten to %s.json and .md\n", page, name)
	return nil
}

// commit returns the commit of the repository, with "-dirty" if files have
// changed.
func commit(root string) string {
	text, err := exec.Command("git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

func thisMachine() machine {
	m := machine{CPU: "unknown", CPUs: cpus(), Kernel: "unknown"}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	return m
}
