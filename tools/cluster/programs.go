//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// A module has the source of programs.
type module struct {
	name     string // of the directory of its programs
	path     string
	version  string
	flags    string // for the linker
	programs []program
}

type program struct{ name, path, usual string }

// modules returns the modules of the programs that the cluster runs.
func (c *cluster) modules() []module {
	v := c.Options.Kubernetes
	numbers := strings.Split(v, ".")
	// Without it programs say v0.0.0, and clients refuse what that version lacks.
	stamp := fmt.Sprintf("-X %[1]sgitVersion=v%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s",
		"k8s.io/component-base/version.", v, numbers[0], numbers[1])

	all := []module{
		{"kubernetes", "k8s.io/kubernetes", v, stamp,
			[]program{
				{"kubectl", "k8s.io/kubernetes/cmd/kubectl", "2 minutes"},
				{"kubeadm", "k8s.io/kubernetes/cmd/kubeadm", "2 minutes"},
				{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "5 minutes"},
				{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "2 minutes"},
				{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "1 minute"},
				{"kubelet", "k8s.io/kubernetes/cmd/kubelet", "3 minutes"},
				{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy", "1 minute"},
			}},
		{"etcd", "go.etcd.io/etcd/server/v3", etcdVersion, "",
			[]program{{"etcd", "go.etcd.io/etcd/server/v3", "1 minute"}}},
		{"containerd", "github.com/containerd/containerd/v2", containerdVersion, "",
			[]program{
				{"containerd", "github.com/containerd/containerd/v2/cmd/containerd", "2 minutes"},
				{"containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
					"1 minute"},
				{"ctr", "github.com/containerd/containerd/v2/cmd/ctr", "1 minute"},
			}},
		{"coredns", "github.com/coredns/coredns", corednsVersion, "",
			[]program{{"coredns", "github.com/coredns/coredns", "4 minutes"}}},
	}
	if c.Options.Fake > 0 {
		all = append(all, module{"kwok", "sigs.k8s.io/kwok", kwokVersion, "",
			[]program{{"kwok", "sigs.k8s.io/kwok/cmd/kwok", "2 minutes"}}})
	}
	return all
}

// path returns the directories of all programs, as in PATH.
func (c *cluster) path() string {
	var dirs []string
	for _, m := range c.modules() {
		dirs = append(dirs, filepath.Dir(c.program(m, "any")))
	}
	return strings.Join(dirs, ":")
}

func (c *cluster) program(m module, name string) string {
	return filepath.Join(c.dir, "programs", m.name+"-"+m.version, name)
}

// prepare checks the machine, and builds the programs of a cluster and those of tests, so that a start takes
// seconds.
func prepare(ctx context.Context, o options) error {
	l, err := lock(o.Dir, startsOrEnds)
	if err != nil {
		return err
	}
	defer l.Close()

	c := newCluster(&state{Options: o})
	if err := c.checkBeforeBuild(testPrograms); err != nil {
		return err
	}
	if err := c.buildTests(ctx); err != nil {
		return interruption(ctx, err)
	}
	return interruption(ctx, c.buildAll(ctx, c.modules()))
}

// buildPrograms builds the programs of the cluster that are missing.
func (c *cluster) buildPrograms(ctx context.Context) error {
	return errors.Join(c.buildAll(ctx, c.modules()), c.copyStages(ctx))
}

// buildAll builds the programs of modules that are missing.
func (c *cluster) buildAll(ctx context.Context, modules []module) error {
	for _, m := range modules {
		for _, p := range m.programs {
			target := c.program(m, p.name)
			if _, err := os.Stat(target); err == nil {
				continue
			}
			fmt.Fprintf(c.out, "   %s %s (usually %s the first time)\n", p.name, m.version, p.usual)
			start := time.Now()
			if err := c.build(ctx, m, p, target); err != nil {
				return fmt.Errorf("building %s: %w", p.name, err)
			}
			fmt.Fprintf(c.out, "      %.0f s\n", time.Since(start).Seconds())
		}
	}
	return nil
}

// copyStages copies what kwok simulates, which its module has as files: the states of nodes and
// of pods, and the changes between them.
func (c *cluster) copyStages(ctx context.Context) error {
	if c.Options.Fake == 0 {
		return nil
	}
	d, err := downloadModule(ctx, module{path: "sigs.k8s.io/kwok", version: kwokVersion})
	if err != nil {
		return err
	}

	var all []byte
	for _, name := range []string{
		"node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease",
		"pod/fast/pod-ready", "pod/fast/pod-complete", "pod/fast/pod-delete",
	} {
		text, err := os.ReadFile(filepath.Join(d.Dir, "kustomize", "stage", name+".yaml"))
		if err != nil {
			return err
		}
		all = append(append(all, "---\n"...), text...)
	}
	return os.WriteFile(c.file("kwok-stages.yaml"), all, 0o644)
}

// build builds a program in a module that only requires the program's.
func (c *cluster) build(ctx context.Context, m module, p program, target string) error {
	dir := filepath.Join(c.dir, "modules", m.name+"-"+m.version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, "go.mod")
	if _, err := os.Stat(file); err != nil {
		d, err := downloadModule(ctx, m)
		if err != nil {
			return err
		}
		own, err := os.ReadFile(d.GoMod)
		if err != nil {
			return err
		}
		if err := replaceFile(file, []byte(requirement(m, string(own))), 0o644); err != nil {
			return err
		}
	}

	// An interrupted build must not leave a file that the next start takes for the program.
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	defer os.Remove(target + ".tmp")
	command := []string{"build"}
	if strings.HasSuffix(p.name, ".test") {
		// go test vets every package otherwise, some 1,900 of Kubernetes.
		command = []string{"test", "-c", "-vet=off"}
	}
	command = append(command, "-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w "+m.flags,
		"-o", target+".tmp", p.path)
	if _, err := goCommand(ctx, dir, command...); err != nil {
		return err
	}
	return os.Rename(target+".tmp", target)
}

// A download is a module in the cache of modules.
type download struct{ GoMod, Dir string }

func downloadModule(ctx context.Context, m module) (d download, err error) {
	out, err := goCommand(ctx, "", "mod", "download", "-json", m.path+"@v"+m.version)
	if err == nil {
		err = json.Unmarshal(out, &d)
	}
	return d, err
}

// staging matches the modules that Kubernetes has in its own repository.
var staging = regexp.MustCompile(`(?m)^\s*(?:replace )?(k8s\.io/\S+) => \./staging/`)

// requirement returns a go.mod that requires m, whose own is given. Kubernetes requires its
// staging modules without a version, and replaces them by directories that its module lacks:
// their versions are those of Kubernetes with v0.
func requirement(m module, own string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "module programs\n\ngo 1.26.0\n\nrequire %s v%s\n", m.path, m.version)
	_, patch, _ := strings.Cut(m.version, ".")
	for _, match := range staging.FindAllStringSubmatch(own, -1) {
		fmt.Fprintf(&b, "\nreplace %s => %s v0.%s\n", match[1], match[1], patch)
	}
	return b.String()
}

// goCommand runs go and returns its standard output. The error has its last messages.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return output(cmd)
}

// output runs a command and returns its standard output. At the end of its context the command and
// its children are interrupted, so that they can remove their temporary files.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if cmd.Cancel != nil {
		interruptible(cmd)
	}
	if err := cmd.Run(); err != nil {
		if messages.Len() == 0 { // go mod download -json has its error in the output
			messages = out
		}
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, lastLines(messages.String(), 15))
	}
	return out.Bytes(), nil
}

// interruptible has the end of its context interrupt a command and its children.
func interruptible(cmd *exec.Cmd) {
	// A signal of the terminal reaches the children of go run, one of kill only this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
