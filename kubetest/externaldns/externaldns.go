// Package externaldns builds ExternalDNS, for tests in which it is a client: [Build] returns its
// program, and [CRD] the definition of its kind DNSEndpoint, which [kubetest.Server.Define] installs.
// The program has the providers rfc2136 and inmemory alone, and all sources.
//
//	program, err := externaldns.Build()
//	crd, err := externaldns.CRD()
//	err = api.Define(ctx, crd)
//	e := externaldns.Command(ctx, program, kubeconfig, "--source=crd", "--provider=rfc2136", ...)
package externaldns

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/seamark/seamark/kubetest/programs"
)

// Version is the version of ExternalDNS.
const Version = "0.23.0"

const (
	module    = "sigs.k8s.io/external-dns"
	moduleDir = module + "@v" + Version + "/" // in its archive
	crdFile   = "config/crd/standard/dnsendpoints.externaldns.k8s.io.yaml"
)

// Build builds the program, unless bin/externaldns has it, and returns its path. The first build
// takes minutes and needs Go's module proxy.
func Build() (program string, err error) {
	return programs.Build(filepath.Join("externaldns", Version), func(_, program string) error {
		if _, err := os.Stat(program); err == nil {
			return nil
		}
		return build(program)
	})
}

// build builds the program from a copy of its source, which it removes.
func build(program string) error {
	dir, err := os.MkdirTemp("", "externaldns")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	if err := copySource(dir); err != nil {
		return err
	}
	if err := run(dir, "build", "-mod=mod", "-o", program+".new", "."); err != nil {
		return err
	}
	return os.Rename(program+".new", program)
}

// CRD returns the CustomResourceDefinition of DNSEndpoint, in YAML, from the module. It builds
// nothing, but the first call needs Go's module proxy.
func CRD() ([]byte, error) {
	return programs.ReadModule(module, Version, crdFile)
}

// Command returns a command that runs the program with the API server of a kubeconfig. Add flags for
// its sources and its provider. It ends with ctx.
func Command(ctx context.Context, program, kubeconfig string, flags ...string) *exec.Cmd {
	return exec.CommandContext(ctx, program, append([]string{"--kubeconfig=" + kubeconfig}, flags...)...)
}

// run runs the go command in dir.
func run(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
