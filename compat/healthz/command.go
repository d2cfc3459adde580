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

	"github.com/seamark/seamark/sys/processgroup"
)

const (
	// maxOutput limits the bytes of a command's output that are kept.
	maxOutput = 64 << 10
	// exitTimeout limits, after the end of a command, how long its output is read: a
	// process that left the group may keep the pipe open.
	exitTimeout = time.Second
)

// A command runs until its end or the end of ctx and returns the first maxOutput
// bytes of its output. It is not safe for concurrent use.
type command func(ctx context.Context) (output []byte, err error)

// newCommand returns a command with the effect of sh -c text. If there is no shell
// and text needs one, it returns an error.
func newCommand(text string) (command, error) {
	s, parseErr := parse(text) // an error states why text needs a shell
	if errors.Is(parseErr, errEmpty) {
		return nil, parseErr
	}

	_, noShell := exec.LookPath("sh")
	if noShell != nil && parseErr != nil {
		return nil, fmt.Errorf("no shell (sh) found: %w", parseErr)
	}

	if parseErr == nil {
		_, notFound := exec.LookPath(s.words[0])
		switch {
		case s.words[0] == "nslookup" && notFound != nil:
			l, err := parseLookup(s.words[1:])
			return s.redirected(l.run), err
		case s.words[0] == "echo" && noShell != nil && notFound != nil:
			return s.redirected(echo(s.words[1:])), nil
		}
	}

	if noShell != nil {
		return func(ctx context.Context) ([]byte, error) {
			return process(ctx, s.stdout, s.stderr, s.words[0], s.words[1:]...)
		}, nil
	}
	return func(ctx context.Context) ([]byte, error) {
		return process(ctx, true, true, "sh", "-c", text)
	}, nil
}

// A builtin is a command that this program implements. Its output is short.
type builtin func(ctx context.Context, stdout io.Writer) error

// program returns the name of the program that newCommand runs. The rest of a command may be secret,
// and assignments before the name, too.
func program(text string) string {
	if s, err := parse(text); err == nil {
		return s.words[0]
	}
	return "sh"
}

// redirected returns a command that runs b with the redirections of s. Like other
// programs, it writes the error to standard error.
func (s simple) redirected(b builtin) command {
	return func(ctx context.Context) ([]byte, error) {
		var output bytes.Buffer
		var stdout io.Writer = &output
		if !s.stdout {
			stdout = io.Discard
		}
		err := b(ctx, stdout)
		if err != nil && s.stderr {
			fmt.Fprintf(&output, "%s: %v\n", s.words[0], err)
		}
		return output.Bytes(), err
	}
}

func echo(words []string) builtin {
	return func(_ context.Context, stdout io.Writer) error {
		_, err := fmt.Fprintln(stdout, strings.Join(words, " "))
		return err
	}
}

// process runs a program in a process group of its own and kills the group when the
// program or ctx ends. stdout and stderr select the output to keep.
func process(ctx context.Context, stdout, stderr bool, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, name, args...)
	processgroup.Set(c)

	// With a pipe of package exec, Wait would block until every process that the
	// program left behind has closed it.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("creating a pipe: %w", err)
	}
	defer r.Close()
	if stdout {
		c.Stdout = w
	}
	if stderr {
		c.Stderr = w
	}

	err = c.Start()
	_ = w.Close()
	if err != nil {
		return nil, err
	}

	output := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(r, maxOutput))
		output <- text
		_, _ = io.Copy(io.Discard, r)
		close(output)
	}()

	err = c.Wait()
	processgroup.Kill(c.Process.Pid)
	_ = r.SetReadDeadline(time.Now().Add(exitTimeout))
	text := <-output
	<-output
	return text, err
}
