package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// A tutorial is a page whose steps the test performs in order: files to save, changes of
// files, and commands with the output that follows them.
type tutorial struct {
	t       *testing.T
	dir     string // working directory
	address string // in place of 127.0.0.1, so that port 1053 is free
	server  *process
}

// A step: a file to save, a change, or a block of commands.
var step = regexp.MustCompile("(?s)Save this as `([^`]+)`:\n\n```corefile\n(.*?)```|Change `([^`]+)` in\\s`([^`]+)` to\\s`([^`]+)`|```console\n(.*?)```")

// TestTutorials performs the tutorials of docs/tutorials.
func TestTutorials(t *testing.T) {
	long(t)
	for name, steps := range map[string]int{"folder.md": 9, "corefile.md": 9} {
		t.Run(name, func(t *testing.T) {
			pid := os.Getpid() // another process may run the same test
			u := tutorial{t: t, dir: t.TempDir(), address: fmt.Sprintf("127.79.%d.%d", pid>>8&255, pid&255)}
			if err := os.CopyFS(filepath.Join(u.dir, "examples"), os.DirFS("../examples")); err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(read(t, "../docs/tutorials/"+name), "127.0.0.1", u.address)
			found := step.FindAllStringSubmatch(text, -1)
			if len(found) != steps {
				t.Errorf("got %d steps, want %d", len(found), steps)
			}
			for _, m := range found {
				switch {
				case m[1] != "":
					write(t, filepath.Join(u.dir, m[1]), m[2])
				case m[3] != "":
					u.change(m[3], m[4], m[5])
				default:
					u.commands(m[6])
				}
			}
			if u.server == nil {
				t.Fatal("the tutorial starts no server")
			}
			u.server.stop()
		})
	}
}

// change replaces old in a file by new.
func (u *tutorial) change(old, file, new string) {
	u.t.Helper()
	file = filepath.Join(u.dir, file)
	text := read(u.t, file)
	if !strings.Contains(text, old) {
		u.t.Fatalf("%s: no %q in\n%s", file, old, text)
	}
	write(u.t, file, strings.ReplaceAll(text, old, new))
}

// commands runs the commands of a block. The lines up to the next command are the
// expected output; without any, the command must succeed.
func (u *tutorial) commands(block string) {
	u.t.Helper()
	for _, command := range strings.Split("\n"+block, "\n$ ")[1:] {
		line, want, _ := strings.Cut(command, "\n")
		words := strings.Fields(strings.TrimPrefix(line, "bin/"))
		switch {
		case line == "make run":
			u.serve("serve", "--manifests", "examples", "--listen", u.address+":1053")
		case words[0] == "seamark" && words[1] == "serve":
			u.serve(words[1:]...)
		case words[0] == "seamark":
			out, stderr, code := run(u.t, u.dir, "", words[1:]...)
			if out == "" {
				out = stderr
			}
			if want != "" && fields(out) != fields(want) || want == "" && code != 0 {
				u.t.Errorf("%s: exit status %d, got\n%s\nwant\n%s", line, code, out, want)
			}
		case words[0] == "mkdir":
			if err := os.Mkdir(filepath.Join(u.dir, words[1]), 0o755); err != nil {
				u.t.Fatal(err)
			}
		case words[0] == "kubectl": // there is no cluster: an empty list, as kubectl prints it
			_, file, _ := strings.Cut(line, " > ")
			write(u.t, filepath.Join(u.dir, file), `{"apiVersion": "v1", "items": [], "kind": "List", "metadata": {"resourceVersion": ""}}`)
		case words[0] == "dig":
			u.dig(words[1:], want)
		default:
			u.t.Fatalf("the test cannot run %q", line)
		}
	}
}

// serve starts the server, or replaces it.
func (u *tutorial) serve(args ...string) {
	u.t.Helper()
	if u.server != nil {
		u.server.stop()
	}
	u.server = serve(u.t, u.dir, "", args...)
}

// dig sends the query of a dig command line until the answer is want, since a change may
// not have been applied yet. If want is empty, any reply will do.
func (u *tutorial) dig(args []string, want string) {
	u.t.Helper()
	name, qtype := "", dns.TypeA
	for i, arg := range args {
		switch t, isType := dns.StringToType[arg]; {
		case isType:
			qtype = t
		case strings.HasPrefix(arg, "@"), strings.HasPrefix(arg, "+"), arg == "-p", i > 0 && args[i-1] == "-p":
		default:
			name = dns.Fqdn(arg)
		}
	}
	deadline := time.Now().Add(time.Minute)
	for {
		reply, err := ask("udp", u.address+":1053", name, qtype)
		got := fmt.Sprint(err)
		if err == nil {
			got = ""
			for _, rr := range reply.Answer {
				got += rr.String() + "\n"
			}
			if want == "" || fields(got) == fields(want) {
				return
			}
		}
		if time.Now().After(deadline) {
			u.t.Fatalf("dig %s: got\n%s\nwant\n%s", strings.Join(args, " "), got, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func fields(text string) string { return strings.Join(strings.Fields(text), " ") }
