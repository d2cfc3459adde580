// Command oss-fuzz builds the fuzz targets of the server as programs of libFuzzer, as OSS-Fuzz runs
// them, with their seeds and a dictionary.
//
//	go run ./oss-fuzz -source .. -output ../bin/oss-fuzz [PACKAGE...]
//
// For each target it writes the program PACKAGE_TARGET, in whose name / of the package's directory
// is _, the seeds PACKAGE_TARGET_seed_corpus.zip, and PACKAGE_TARGET.dict. CC, CXX, CXXFLAGS and
// LIB_FUZZING_ENGINE are those of OSS-Fuzz's build environment. By default clang links libFuzzer.
//
// No file of the source changes: Go's overlay makes files of the package from the files of its tests,
// and adds the program's main package. A target that skips itself here is left out, and listed.
package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/seamark/seamark"

//go:embed target/*.go
var targetFiles embed.FS

//go:embed dns.dict
var dictionary []byte

func main() {
	var b builder
	flag.StringVar(&b.source, "source", "..", "directory of the module")
	flag.StringVar(&b.output, "output", "../bin/oss-fuzz", "directory for the programs")
	flag.StringVar(&b.corpus, "corpus", "oss-fuzz/corpus", "directory of the kept inputs, one ZIP file for each target")
	flag.Parse()
	if err := b.run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "oss-fuzz:", err)
		os.Exit(1)
	}
}

type builder struct {
	source, output, corpus string

	work string // a temporary directory
}

// A fuzzedPackage is a package with fuzz targets.
type fuzzedPackage struct {
	Dir, ImportPath, Name string

	TestGoFiles, XTestGoFiles []string

	targets, external []string // of the package's tests, and of those in package NAME_test
}

// run builds the targets of packages, relative to the module's directory, or of all.
func (b *builder) run(packages []string) (err error) {
	if b.source, err = filepath.Abs(b.source); err != nil {
		return err
	}
	if b.output, err = filepath.Abs(b.output); err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp("", "oss-fuzz"); err != nil {
		return err
	}
	defer os.RemoveAll(b.work)
	if err := os.MkdirAll(b.output, 0o755); err != nil {
		return err
	}

	if len(packages) == 0 {
		packages = []string{"..."}
	}
	found, err := b.find(packages)
	if err != nil {
		return err
	}

	for i, p := range found {
		fmt.Printf("[%d/%d] %s\n", i+1, len(found), p.ImportPath)
		if err := b.build(p); err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
	}
	return nil
}

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// find returns the packages with targets.
func (b *builder) find(patterns []string) ([]*fuzzedPackage, error) {
	args := []string{"list", "-json=Dir,ImportPath,Name,TestGoFiles,XTestGoFiles"}
	for _, p := range patterns {
		args = append(args, "./"+path.Clean(p)) // without ./ it would be a package of Go's library
	}
	list, err := b.goCommand(args...)
	if err != nil {
		return nil, err
	}

	var found []*fuzzedPackage
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		p := new(fuzzedPackage)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		targets := func(files []string) (names []string, err error) {
			for _, file := range files {
				text, err := os.ReadFile(filepath.Join(p.Dir, file))
				if err != nil {
					return nil, err
				}
				for _, m := range fuzzFunc.FindAllSubmatch(text, -1) {
					names = append(names, string(m[1]))
				}
			}
			return names, nil
		}
		if p.targets, err = targets(p.TestGoFiles); err != nil {
			return nil, err
		}
		if p.external, err = targets(p.XTestGoFiles); err != nil {
			return nil, err
		}
		if len(p.targets)+len(p.external) > 0 {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no fuzz targets in %s", strings.Join(patterns, " "))
	}
	return found, nil
}

// build builds the programs of p.
func (b *builder) build(p *fuzzedPackage) error {
	overlay := filepath.Join(b.work, "overlay.json")
	replace := map[string]string{}
	add := func(name string, text []byte) error {
		file := filepath.Join(b.work, fmt.Sprint(len(replace), ".go"))
		replace[name] = file
		return os.WriteFile(file, text, 0o600)
	}

	// The overlay does not have names that end in _test.go, and no name of a system.
	for _, file := range p.TestGoFiles {
		replace[filepath.Join(p.Dir, "ossfuzz_"+file+"_.go")] = filepath.Join(p.Dir, file)
	}
	if err := add(filepath.Join(p.Dir, "ossfuzz_.go"), targetList(p.Name, p.targets)); err != nil {
		return err
	}
	if len(p.external) > 0 {
		dir := filepath.Join(p.Dir, "ossfuzz", "external")
		for _, file := range p.XTestGoFiles {
			replace[filepath.Join(dir, file+"_.go")] = filepath.Join(p.Dir, file)
		}
		if err := add(filepath.Join(dir, "ossfuzz_.go"), targetList(p.Name+"_test", p.external)); err != nil {
			return err
		}
	}

	// The main package is below the package, which may be an internal one. Cgo needs its directory.
	main := filepath.Join(p.Dir, "ossfuzz")
	if err := os.Mkdir(main, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	defer os.Remove(main)
	err := fs.WalkDir(targetFiles, "target", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := targetFiles.ReadFile(name)
		return errors.Join(err, add(filepath.Join(b.source, "ossfuzz", filepath.FromSlash(name)), text))
	})
	if err != nil {
		return err
	}
	if err := add(filepath.Join(main, "main.go"), b.mainFile(p)); err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return err
	}

	archive := filepath.Join(b.work, "target.a")
	if _, err := b.goCommand("build", "-overlay", overlay, "-buildmode", "c-archive", "-trimpath", "-tags", "libfuzzer",
		"-gcflags", module+"/...=-d=libfuzzer", "-o", archive, p.ImportPath+"/ossfuzz"); err != nil {
		return err
	}
	program := filepath.Join(b.work, "target")
	link := []string{cmp.Or(os.Getenv("CXX"), "clang")}
	link = append(link, strings.Fields(os.Getenv("CXXFLAGS"))...)
	link = append(link, strings.Fields(cmp.Or(os.Getenv("LIB_FUZZING_ENGINE"), "-fsanitize=fuzzer"))...)
	link = append(link, archive, "-lresolv", "-o", program)
	if _, err := command(b.work, nil, link...); err != nil {
		return err
	}

	var errs []error
	for _, target := range slices.Concat(p.targets, p.external) {
		errs = append(errs, b.install(p, target, program))
	}
	return errors.Join(errs...)
}

// targetList returns a file that lists the targets of a package.
func targetList(name string, targets []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "package %s\n\nimport \"testing\"\n\nvar OSSFuzzTargets = []testing.InternalFuzzTarget{\n", name)
	for _, t := range targets {
		fmt.Fprintf(&b, "\t{Name: %q, Fn: %s},\n", t, t)
	}
	b.WriteString("}\n")
	return b.Bytes()
}

//go:embed main.go.tmpl
var mainTemplate string

// mainFile returns the main package of the targets of p.
func (b *builder) mainFile(p *fuzzedPackage) []byte {
	external := p.ImportPath
	if len(p.external) > 0 {
		external = path.Join(p.ImportPath, "ossfuzz", "external")
	}
	return []byte(strings.NewReplacer("PACKAGE", p.ImportPath, "EXTERNAL", external, "MODULE", module).Replace(mainTemplate))
}

// install writes the files of a target.
func (b *builder) install(p *fuzzedPackage, target, program string) error {
	dir, err := filepath.Rel(b.source, p.Dir)
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(filepath.ToSlash(dir), "/", "_") + "_" + target
	out := filepath.Join(b.output, name)
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, data, 0o755); err != nil {
		return err
	}

	// It writes its seeds and ends. Seeds may come from files that are relative to the package.
	seeds := filepath.Join(b.work, name)
	if err := os.Mkdir(seeds, 0o755); err != nil {
		return err
	}
	if text, err := command(p.Dir, []string{"OSS_FUZZ_SEEDS=" + seeds}, out); err != nil {
		fmt.Printf("  %s: left out: %s\n", target, bytes.TrimSpace(text))
		return os.Remove(out)
	}
	n, err := b.writeSeeds(out+"_seed_corpus.zip", seeds, filepath.Join(b.corpus, name+".zip"))
	if err != nil {
		return err
	}
	fmt.Printf("  %s: %d inputs\n", target, n)
	return os.WriteFile(out+".dict", dictionary, 0o644)
}

// writeSeeds writes the files of a directory and of a ZIP file, which may not exist, to another ZIP
// file, and returns their number.
func (b *builder) writeSeeds(file, dir, kept string) (n int, err error) {
	f, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	w := zip.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	n = len(entries)

	r, err := zip.OpenReader(kept)
	if err == nil {
		defer r.Close()
		for _, file := range r.File {
			if err := w.Copy(file); err != nil {
				return 0, err
			}
			n++
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s: %w", kept, err)
	}
	return n, errors.Join(w.Close(), f.Close())
}

func (b *builder) goCommand(args ...string) ([]byte, error) {
	return command(b.source, []string{"CGO_ENABLED=1", "CC=" + cmp.Or(os.Getenv("CC"), "clang")}, append([]string{"go"}, args...)...)
}

// command runs a command and returns its output. The error has its messages.
func command(dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return append(out, stderr.Bytes()...), fmt.Errorf("%s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return out, nil
}
