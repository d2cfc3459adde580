// Package build makes the binaries of a release, their lists of modules and the modules'
// licenses. Images, archives and packages contain them.
package build

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A Release describes a build. Builds of equal releases by one version of Go are
// equal byte by byte.
type Release struct {
	Source  string    // root directory of the repository
	Version string    // semantic, without a v at its start
	Commit  string    // hash
	Date    time.Time // of the commit; every time in an artifact is this one
	PGO     string    // the flag of go build
}

// Main calls run with the arguments of the process. After an error it exits with
// status 1.
func Main(command string, run func(args []string) error) {
	log.SetFlags(0)
	log.SetPrefix(command + ": ")
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal(err)
	}
}

// Parse parses args, which must be flags.
func Parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("want no arguments, got %q", f.Arg(0))
	}
	return nil
}

// Replace replaces directory by one that write fills. After an error of write, directory
// is unchanged.
func Replace(directory string, write func(temporary string) error) error {
	parent := filepath.Dir(directory)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(parent, filepath.Base(directory))
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	if err := write(temporary); err != nil {
		return err
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	return os.Rename(temporary, directory)
}

// Flags adds the flags of a release to f.
func (r *Release) Flags(f *flag.FlagSet) {
	f.StringVar(&r.Source, "source", ".", "root directory of the repository")
	f.StringVar(&r.Version, "version", "0.0.0-dev", "semantic version")
	f.StringVar(&r.Commit, "commit", "", "hash of the commit")
	f.StringVar(&r.PGO, "pgo", "auto", "go build's -pgo")
	r.Date = time.Unix(0, 0).UTC()
	f.Func("date", "time of the commit, RFC 3339 (default 1970-01-01T00:00:00Z); every time in an artifact is this one", func(text string) (err error) {
		if r.Date, err = time.Parse(time.RFC3339, text); err != nil {
			return fmt.Errorf("want a time such as 2026-11-22T21:00:00Z")
		}
		r.Date = r.Date.UTC()
		return nil
	})
}

// Platforms parses a list of platforms, separated by commas.
func Platforms(list string) ([]v1.Platform, error) {
	var platforms []v1.Platform
	for text := range strings.SplitSeq(list, ",") {
		p, err := v1.ParsePlatform(text)
		if err != nil || p.OS == "" || p.Architecture == "" {
			return nil, fmt.Errorf("want OS/ARCHITECTURE[/VARIANT], got %q", text)
		}
		platforms = append(platforms, *p)
	}
	return platforms, nil
}

// binary builds the server for p.
func (r Release) binary(p v1.Platform) ([]byte, error) {
	directory, err := os.MkdirTemp("", "build")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	output := filepath.Join(directory, "seamark")
	linked := fmt.Sprintf("-s -w -X main.version=%s -X main.commit=%s -X main.date=%s", r.Version, r.Commit,
		r.Date.Format(time.RFC3339))
	env := []string{"GOOS=" + p.OS, "GOARCH=" + p.Architecture}
	if p.Architecture == "arm" {
		env = append(env, "GOARM="+strings.TrimPrefix(p.Variant, "v"))
	}
	if err := r.Go(env, "build", "-tags", "grpcnotrace", "-trimpath", "-buildvcs=false", "-pgo="+r.PGO, "-ldflags",
		linked, "-o", output, "./cmd/seamark"); err != nil {
		return nil, err
	}
	return os.ReadFile(output)
}

// settings are those of Go that change a program's bytes, with Go's defaults: what a user has set for
// other programs, in the environment or with go env -w, is no part of a release.
var settings = []string{
	"CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOEXPERIMENT=", "GOFIPS140=off",
	"GOAMD64=v1", "GOARM64=v8.0", "GOPPC64=power8", "GORISCV64=rva20u64",
}

// Go runs the go command in the repository, with the same settings on every machine.
func (r Release) Go(env []string, args ...string) error {
	c := exec.Command("go", args...)
	c.Dir, c.Stderr = r.Source, os.Stderr
	c.Env = slices.Concat(os.Environ(), settings, env)
	if err := c.Run(); err != nil {
		return fmt.Errorf("go %s: %w", args[0], err)
	}
	return nil
}
