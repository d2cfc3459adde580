package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/race"
)

var (
	startsProcess = regexp.MustCompile(`exec\.Command(Context)?\(|ForkExec\(|StartProcess\(|"github\.com/seamark/seamark/test/(program|debian|chromium)"`)
	// The modules tools and bench do not depend on this one, and the tests here run the go command for a moment.
	independent   = regexp.MustCompile(`^(tools|bench|test/archtest|test/orphans)(/|$)`)
	endsProcesses = regexp.MustCompile(`func TestMain\(m \*testing\.M\) \{[^}]*\b(orphans|program)\.Main\(m\)|orphans\.Main\(m\)`)
)

// Processes that tests start do not outlive the test binary, however that ends: TestMain of each package that starts
// some calls orphans.Main.
func TestProcessesEndWithTests(t *testing.T) {
	race.Skip(t)
	texts := map[string]string{} // of the tests of a directory
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		dir, err := filepath.Rel("../..", filepath.Dir(path))
		if err != nil || independent.MatchString(dir) || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		texts[dir] += string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	starting := 0
	for dir, text := range texts {
		if !startsProcess.MatchString(text) {
			continue
		}
		if starting++; !endsProcesses.MatchString(text) {
			t.Errorf("the tests of %s start processes: want a TestMain that calls orphans.Main", dir)
		}
	}
	if starting < 15 {
		t.Errorf("got %d packages whose tests start processes, want those of this repository", starting)
	}
}
