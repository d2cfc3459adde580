package healthz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	// maxOutput is how many bytes of what a command writes are kept.
	maxOutput = 64 << 10
	// lastWords is how long, when a command has ended, its output is still read, and
	// the end of those whom it left behind waited for: somebody who left its process
	// group may hold the one open for ever, and the kernel may hold up the other.
	lastWords = time.Second
)

// A command runs until ctx ends at the latest and gives the first maxOutput bytes
// of what it wrote. It may be called again when it has returned.
type command func(ctx context.Context) (output []byte, err error)

// newCommand is what a shell would do with text. Where there is no shell, and text
// needs one, that is the error.
func newCommand(text string) (command, error) {
	s, needs := parse(text)
	if errors.Is(needs, errEmpty) {
		return nil, needs
	}
	_, noShell := exec.LookPath("sh")
	if noShell != nil && needs != nil {
		return nil, fmt.Errorf("there is no shell (sh) here: %w", needs)
	}
	if needs == nil {
		_, absent := exec.LookPath(s.words[0])
		switch {
		case s.words[0] == "nslookup" && absent != nil:
			look, err := parseLookup(s.words[1:])
			return s.does(look.run), err
		case s.words[0] == "echo" && noShell != nil && absent != nil:
			return s.does(echo(s.words[1:])), nil
		}
	}
	if noShell != nil {
		return func(ctx context.Context) ([]byte, error) {
			return process(ctx, s.out, s.errs, s.words[0], s.words[1:]...)
		}, nil
	}
	return func(ctx context.Context) ([]byte, error) {
		return process(ctx, true, true, "sh", "-c", text)
	}, nil
}

// A builtin is done by this program itself. What it writes is short.
type builtin func(ctx context.Context, out io.Writer) error

// does is a builtin with the redirections of a command, whose errors it writes as
// programs do.
func (s simple) does(what builtin) command {
	return func(ctx context.Context) ([]byte, error) {
		var all bytes.Buffer
		var out io.Writer = &all
		if !s.out {
			out = io.Discard
		}
		err := what(ctx, out)
		if err != nil && s.errs {
			fmt.Fprintf(&all, "%s: %v\n", s.words[0], err)
		}
		return all.Bytes(), err
	}
}

func echo(words []string) builtin {
	return func(_ context.Context, out io.Writer) error {
		_, err := fmt.Fprintln(out, strings.Join(words, " "))
		return err
	}
}

// process runs a program in a process group of its own. When it ends, or ctx does,
// everyone in the group is killed. out and errs say whether its standard output and
// its standard error are kept.
func process(ctx context.Context, out, errs bool, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	ownGroup(c)
	// A pipe of our own: with one of the library's Wait would wait for everyone
	// whom the program left behind.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	defer r.Close()
	if out {
		c.Stdout = w
	}
	if errs {
		c.Stderr = w
	}
	err = c.Start()
	_ = w.Close()
	if err != nil {
		return nil, err
	}
	head := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(r, maxOutput))
		head <- text
		_, _ = io.Copy(io.Discard, r)
		close(head)
	}()
	err = c.Wait()
	endGroup(c.Process.Pid)
	_ = r.SetReadDeadline(time.Now().Add(lastWords))
	text := <-head
	<-head
	return text, err
}
