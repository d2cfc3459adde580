//go:build unix

package process

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

var coredns = flag.String("coredns", "", "the path of CoreDNS's program, which runs the scripts with coredns: same")

func TestMain(m *testing.M) { program.Main(m) }

// Every script of testdata/process; its README has the format.
func TestProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("starts hundreds of processes")
	}
	files, err := filepath.Glob("../../testdata/process/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d scripts and error %v, want some", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			run(t, file)
		})
	}
}

// setting is the line with which a script is also for CoreDNS.
const setting = "\ncoredns: same\n"

// A script is one running script.
type script struct {
	t    *testing.T
	file string
	dir  string
	vars map[string]string

	environment []string // NAME=VALUE, of the servers that are started

	program string   // the path of CoreDNS's program, or "" for this one
	process *process // the one of the part Corefile
	mark    int      // where the output of the current step begins

	received sinks
	sent     []chan error // the results of queries in the background
}

func run(t *testing.T, file string) {
	s, archive := read(t, file)
	if s.program = *coredns; s.program != "" && !strings.Contains("\n"+string(archive.Comment), setting) {
		t.Skip("the script is not for CoreDNS")
	}
	s.parts(archive)
}

// read reads a script, and gives its variables values.
func read(t *testing.T, file string) (*script, *txtar.Archive) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	s := &script{t: t, file: file, dir: t.TempDir()}
	s.vars = map[string]string{"$DIR": s.dir}
	for _, name := range variable.FindAllString(string(text), -1) {
		if s.vars[name] == "" {
			s.vars[name] = freeport.Reserve(t)
		}
	}
	s.certificates(string(text))
	return s, txtar.Parse(text)
}

// parts runs the parts of a script.
func (s *script) parts(archive *txtar.Archive) {
	line := 1 + strings.Count(string(archive.Comment), "\n")
	for _, part := range archive.Files {
		line++
		s.part(part.Name, string(part.Data), line)
		line += strings.Count(string(part.Data), "\n")
	}
}

// part runs one part of a script, whose text begins at a line of the file.
func (s *script) part(name, text string, line int) {
	verb, argument, _ := strings.Cut(name, " ")
	switch verb {
	case "file":
		path := filepath.Join(s.dir, argument)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(s.expand(text)), 0o644); err != nil {
			s.t.Fatal(err)
		}
	case "remove":
		if err := os.Remove(filepath.Join(s.dir, argument)); err != nil {
			s.t.Fatal(err)
		}
	case "Corefile":
		s.process = s.start(s.expand(text))
		s.process.awaitServing()
	case "database":
		s.database(argument, text)
	case "environment":
		s.environment = append(s.environment, strings.Fields(s.expand(text))...)
	case "sinks":
		for line := range strings.SplitSeq(text, "\n") {
			s.sink(strings.TrimSpace(line))
		}
	case "steps":
		for i, step := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
			s.step(strings.TrimSpace(step), line+i)
		}
	case "accepted", "refused":
		s.corefiles(text, line, verb == "accepted")
	default:
		s.t.Fatalf("%s:%d: unknown part %q", s.file, line-1, name)
	}
}

// variable matches the names of variables.
var variable = regexp.MustCompile(`\$(DIR\b|PORT\d*)`)

func (s *script) expand(text string) string {
	return variable.ReplaceAllStringFunc(text, func(name string) string { return s.vars[name] })
}

// corefiles checks groups of lines, each of which is one server block's directives, or a Corefile if it
// has its port.
func (s *script) corefiles(text string, line int, accepted bool) {
	port := freeport.Reserve(s.t)
	for group := range strings.SplitSeq(text, "\n\n") {
		at := line
		line += strings.Count(group, "\n") + 2
		text := s.expand(group) + "\n"
		if !strings.Contains(group, "$PORT") {
			text = ".:" + port + " {\n" + text + "}\n"
		}

		p := s.start(text)
		if got := p.startsOrEnds(); got != accepted {
			s.t.Errorf("%s:%d: accepted %t, want %t\n%s\n%s", s.file, at, got, accepted, text, p.output())
		}
		p.stop()
	}
}

// start starts the server with a Corefile, in the directory of the script.
func (s *script) start(corefile string) *process {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "Corefile"), []byte(corefile), 0o644); err != nil {
		s.t.Fatal(err)
	}
	c := program.Command(s.t, s.dir, "-conf", "Corefile")
	if s.program != "" {
		c = exec.CommandContext(s.t.Context(), s.program, "-conf", "Corefile")
		c.Dir = s.dir
	}
	c.Env = append(c.Environ(), s.environment...)
	return startProcess(s.t, c)
}
