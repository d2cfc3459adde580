package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A workflow is what the tests read of a workflow's file.
type workflow struct {
	Name        string
	On          any
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions    map[string]string
		TimeoutMinutes int `json:"timeout-minutes"`
		Strategy       struct{ Matrix map[string][]string }
		Steps          []step
	}
}

type step struct {
	Uses, Run string
	With      map[string]any
}

// mayWrite lists the jobs with a permission to write, and the permissions.
var mayWrite = map[string][]string{
	"codeql.yml analyze":    {"security-events"},
	"scorecard.yml analyze": {"id-token", "security-events"},
	"release.yml publish":   {"contents", "id-token", "packages"},
}

// authors are the accounts whose actions workflows may use. Only ossf is not GitHub's own.
var authors = []string{"actions", "github", "ossf"}

// workflows calls check with each workflow of the project.
func workflows(t *testing.T, check func(t *testing.T, file, text string, w workflow)) {
	t.Helper()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 6 {
		t.Fatalf("got workflows %v and error %v, want 6", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var w workflow
		// Strict YAML has no key twice. A key on is not the value true here.
		if err := yaml.UnmarshalStrict(text, &map[string]any{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		check(t, filepath.Base(name), string(text), w)
	}
}

// TestWorkflowPermissions checks that a workflow may read the repository, a job may write only what
// the table has, and that each job ends.
func TestWorkflowPermissions(t *testing.T) {
	seen := 0
	workflows(t, func(t *testing.T, file, _ string, w workflow) {
		if w.Name == "" || len(w.Jobs) == 0 || !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) {
			t.Errorf("%s: got permissions %v and %d jobs, want contents: read and a job", file, w.Permissions, len(w.Jobs))
		}
		for name, job := range w.Jobs {
			var writes []string
			for scope, access := range job.Permissions {
				if access != "read" {
					writes = append(writes, scope)
				}
			}
			slices.Sort(writes)
			if !slices.Equal(writes, mayWrite[file+" "+name]) {
				t.Errorf("%s, job %s: may write %v, want %v", file, name, writes, mayWrite[file+" "+name])
			}
			if len(writes) > 0 {
				seen++
			}
			if job.TimeoutMinutes == 0 {
				t.Errorf("%s, job %s: no timeout-minutes", file, name)
			}
		}
	})
	if seen != len(mayWrite) {
		t.Errorf("%d jobs may write, the table has %d", seen, len(mayWrite))
	}
}

// TestWorkflowGo checks that each job that builds has the newest patch release of Go: vulnerabilities of the
// standard library are repaired there. The version of go.mod is the first that works, so it is no choice.
func TestWorkflowGo(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	minor := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(text)
	if minor == nil {
		t.Fatal("go.mod: got no version of Go")
	}

	found := 0
	workflows(t, func(t *testing.T, file, _ string, w workflow) {
		for name, job := range w.Jobs {
			for _, s := range job.Steps {
				if !strings.HasPrefix(s.Uses, "actions/setup-go@") {
					continue
				}
				found++
				if s.With["go-version"] != string(minor[1]) || s.With["check-latest"] != true {
					t.Errorf("%s, job %s: got %v, want go-version %q and check-latest", file, name, s.With, minor[1])
				}
			}
		}
	})
	if found < 6 {
		t.Errorf("found Go in %d jobs, want 6 or more", found)
	}
}

// TestWorkflowActions checks that an action is of a known author, and pinned to a commit or listed in
// unpinned.txt, which has no other lines; and that no token stays in a checkout.
func TestWorkflowActions(t *testing.T) {
	text, err := os.ReadFile("../../.github/unpinned.txt")
	if err != nil {
		t.Fatal(err)
	}
	unpinned := map[string]bool{} // true if it is used
	for line := range strings.Lines(string(text)) {
		unpinned[strings.TrimSpace(line)] = false
	}

	workflows(t, func(t *testing.T, file, text string, w workflow) {
		steps := 0
		for _, job := range w.Jobs {
			for _, s := range job.Steps {
				if s.Uses == "" {
					continue
				}
				steps++
				action, version, _ := strings.Cut(s.Uses, "@")
				author, _, _ := strings.Cut(action, "/")
				if !slices.Contains(authors, author) {
					t.Errorf("%s: %s is of %s, want an action of %v", file, s.Uses, author, authors)
				}
				if _, listed := unpinned[s.Uses]; listed {
					unpinned[s.Uses] = true
				} else if !commit.MatchString(version) {
					t.Errorf("%s: %s is neither pinned to a commit nor in unpinned.txt", file, s.Uses)
				}
				if action == "actions/checkout" && s.With["persist-credentials"] != false {
					t.Errorf("%s: %s keeps its token, want persist-credentials: false", file, s.Uses)
				}
			}
		}
		// What the program finds in the text is what a runner finds in the YAML.
		if found := len(uses.FindAllString(text, -1)); found != steps {
			t.Errorf("%s: the program finds %d actions, want %d", file, found, steps)
		}
	})
	for action, used := range unpinned {
		if !used {
			t.Errorf("unpinned.txt: no workflow uses %q", action)
		}
	}
}

var (
	expression = regexp.MustCompile(`\$\{\{ *matrix\.([\w-]+) *\}\}`)
	script     = regexp.MustCompile(`\.ci/\S+`)
	makeLine   = regexp.MustCompile(`(?m)\bmake((?: [^\s;&|]+)+)`)
	target     = regexp.MustCompile(`^[a-z][a-z/-]*$`)
)

// TestWorkflowCommands checks that commands have correct syntax, that the targets of make and the
// scripts exist, and that no expression is part of a command but one of the job's own matrix: names
// of branches and titles are text of strangers.
func TestWorkflowCommands(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	check := func(file, command string) {
		if strings.Contains(command, "${{") {
			t.Errorf("%s: an expression in the command %q, want it in env", file, command)
		}
		if out, err := exec.Command("bash", "-n", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %q: %v\n%s", file, command, err, out)
		}
		for _, script := range script.FindAllString(command, -1) {
			if _, err := os.Stat(filepath.Join("../..", script)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		for _, m := range makeLine.FindAllStringSubmatch(command, -1) {
			for _, word := range strings.Fields(m[1]) {
				if !target.MatchString(word) {
					continue // NAME=value
				}
				found++
				if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(word) + `:`).Match(makefile) {
					t.Errorf("%s: the Makefile has no target %s", file, word)
				}
			}
		}
	}

	workflows(t, func(t *testing.T, file, _ string, w workflow) {
		for _, job := range w.Jobs {
			for _, s := range job.Steps {
				m := expression.FindStringSubmatch(s.Run)
				if m == nil {
					check(file, s.Run)
					continue
				}
				for _, value := range job.Strategy.Matrix[m[1]] {
					check(file, strings.ReplaceAll(s.Run, m[0], value))
				}
			}
		}
	})
	if found < 10 {
		t.Errorf("found %d targets of make, too few", found)
	}
}
