package ossfuzz

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/debian"
	"github.com/seamark/seamark/test/race"
)

// targets returns the targets of the module, each with the directory of its package.
func targets(t *testing.T) (list []string) {
	t.Helper()
	fuzz := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	err := fs.WalkDir(os.DirFS("../.."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "bin" || name == "dist" || name == "tools"):
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}

		text, err := os.ReadFile(filepath.Join("../..", name))
		for _, m := range fuzz.FindAllSubmatch(text, -1) {
			list = append(list, path.Dir(name)+" "+string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// The page lists all targets and no others.
func TestPageListsTargets(t *testing.T) {
	text, err := os.ReadFile("../../tools/oss-fuzz/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile("`([a-z0-9/]+)`((?:,? Fuzz\\w+)+)").FindAllStringSubmatch(string(text), -1) {
		for _, name := range strings.Split(m[2], ",") {
			listed = append(listed, m[1]+" "+strings.TrimSpace(name))
		}
	}
	slices.Sort(listed)

	if want := targets(t); !slices.Equal(listed, want) {
		for _, target := range want {
			if !slices.Contains(listed, target) {
				t.Errorf("the page lacks %s", target)
			}
		}
		for _, target := range listed {
			if !slices.Contains(want, target) {
				t.Errorf("the page has %s, which does not exist", target)
			}
		}
	}
}

// The script builds the targets of packages as programs that reach code from their seeds: a package
// with several targets, one whose tests are in a package of their own, and an internal one.
func TestBuildAndRun(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs with libFuzzer")
	}
	race.Skip(t)
	debian.Program(t, "clang")
	debian.Program(t, "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a")
	out := t.TempDir()
	build := exec.Command("../../tools/oss-fuzz/build.sh", "wire/grpcmessage", "zone", "./directive/internal/expression")
	build.Env = append(os.Environ(), "OUT="+out)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}

	for _, name := range []string{"wire_grpcmessage_FuzzParse", "zone_FuzzZone", "directive_internal_expression_FuzzCondition"} {
		t.Run(name, func(t *testing.T) {
			seeds := filepath.Join(t.TempDir(), "seeds")
			r, err := zip.OpenReader(filepath.Join(out, name+"_seed_corpus.zip"))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if err := os.CopyFS(seeds, r); err != nil {
				t.Fatal(err)
			}

			// OSS-Fuzz runs the programs without the source.
			run := exec.Command(filepath.Join(out, name), "-runs=500", "-timeout=60", "-dict="+filepath.Join(out, name+".dict"), seeds)
			run.Dir = t.TempDir()
			text, err := run.CombinedOutput()
			if err != nil || !strings.Contains(string(text), "Done 500 runs") || !regexp.MustCompile(`INITED cov: \d\d+`).Match(text) {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
	if left, _ := filepath.Glob("../../zone/ossfuzz*"); len(left) > 0 {
		t.Errorf("the build has left %v in the source", left)
	}
}
