package directive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/processgroup"
)

const (
	// startTimeout and shutdownTimeout bound how long the server waits for a command.
	startTimeout, shutdownTimeout = 30 * time.Second, 10 * time.Second
	// backgroundTimeout is how long a command in the background may take to end.
	backgroundTimeout = 2 * time.Second
)

// SetupOn sets up the on directive, which runs commands when the server starts or stops. Its
// reference page is docs/reference/directives/on.md.
func SetupOn(b *config.Block, uses []corefile.Directive) error {
	var errs []error
	for _, d := range uses {
		errs = append(errs, setupCommand(b, d))
	}
	return errors.Join(errs...)
}

func setupCommand(b *config.Block, d corefile.Directive) error {
	if err := errors.Join(d.Arity(2, -1), d.Options()); err != nil {
		return err
	}

	words, err := splitCommand(strings.Join(d.Words()[1:], " "))
	if err != nil {
		return d.Errorf("%w", err)
	}
	background := words[len(words)-1] == "&"
	if background {
		words = words[:len(words)-1]
	}
	if len(words) == 0 {
		return d.Errorf("want a command before &")
	}

	program := words[0]
	if _, err := exec.LookPath(words[0]); err != nil {
		b.Warn(d.Errorf("%w", err))
	}
	// Arguments may be secrets: logs have the program's name alone.
	fail := func(err error) {
		if err != nil {
			b.Log.Error("on: Command failed", "command", program, "error", err)
		}
	}

	switch event := strings.ToLower(d.Args[0].Text); {
	case event == "startup" && background:
		b.OnStart(func(s *config.Start) error {
			_, err := config.Keep(s, &d, func() (*backgroundCommand, error) { return startBackground(words, fail) })
			return d.Each(err)
		})
	case event == "startup":
		b.OnStart(func(s *config.Start) error { return d.Each(runCommand(s.Context, startTimeout, words)) })
	case event == "shutdown" && background:
		b.OnShutdown(func(context.Context) {
			_, err := startBackground(words, fail) // its goroutine ends with the process
			fail(err)
		})
	case event == "shutdown":
		b.OnShutdown(func(ctx context.Context) { fail(runCommand(ctx, shutdownTimeout, words)) })
	case event == "certrenew":
		b.Warn(d.Errorf("certrenew never happens, as in CoreDNS: the command is not run"))
	default:
		return d.Args[0].Errorf(d.Path, "want the event startup, shutdown or certrenew, got %q", d.Args[0].Text)
	}
	return nil
}

// newCommand returns a command that is the leader of a process group.
func newCommand(ctx context.Context, words []string) *exec.Cmd {
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	processgroup.Set(c)
	return c
}

// runCommand runs a command, and kills its process group when ctx or the timeout ends.
func runCommand(ctx context.Context, timeout time.Duration, words []string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := newCommand(ctx, words)
	err := c.Run()
	if ctx.Err() == nil || c.Process == nil {
		return err
	}

	processgroup.Kill(c.Process.Pid)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("killed after %v", timeout)
	}
	return ctx.Err()
}

// A backgroundCommand is a command that the server does not wait for.
type backgroundCommand struct {
	*exec.Cmd
	stopping chan struct{}
	ended    chan struct{}
	gone     bool // set when ended is closed: no process of the group was left, and the kernel may reuse its ID
}

// startBackground starts a command. It calls fail with the error when it has ended, unless
// Stop has ended it.
func startBackground(words []string, fail func(error)) (*backgroundCommand, error) {
	c := &backgroundCommand{
		Cmd: newCommand(context.Background(), words), stopping: make(chan struct{}), ended: make(chan struct{}),
	}
	if err := c.Start(); err != nil {
		return nil, err
	}

	go func() {
		defer close(c.ended)
		err := c.Wait()
		c.gone = !processgroup.Exists(c.Process.Pid)
		select {
		case <-c.stopping:
		default:
			fail(err)
		}
	}()
	return c, nil
}

// Stop implements config.Stopper.
func (c *backgroundCommand) Stop() {
	close(c.stopping)
	select {
	case <-c.ended:
		if c.gone {
			return
		}
	default:
	}
	processgroup.Terminate(c.Process.Pid)
	select {
	case <-c.ended:
	case <-time.After(backgroundTimeout):
		_ = c.Cancel()
		<-c.ended
	}
	processgroup.Kill(c.Process.Pid)
}

// splitCommand splits a line into words as a shell does, without its other features: a
// backslash escapes a character, double quotes and single quotes group characters, and #
// begins a comment.
func splitCommand(line string) (words []string, err error) {
	var word []rune
	inWord, escaped, comment := false, false, false
	quote := rune(0)
	for _, r := range line + " " {
		space := strings.ContainsRune(" \t\r\n", r)
		switch {
		case comment:
			comment = r != '\n'
		case escaped:
			word, escaped = append(word, r), false
		case r == '\\' && quote != '\'':
			inWord, escaped = true, true
		case r == quote && quote != 0:
			quote = 0
		case quote != 0:
			word = append(word, r)
		case r == '"' || r == '\'':
			inWord, quote = true, r
		case space && inWord:
			words, word, inWord = append(words, string(word)), nil, false
		case space:
		case r == '#' && !inWord:
			comment = true
		default:
			word, inWord = append(word, r), true
		}
	}

	switch {
	case quote != 0:
		return nil, errors.New("missing closing quote")
	case inWord: // the added space is escaped
		return nil, errors.New(`missing character after \`)
	case len(words) == 0:
		return nil, errors.New("want a command")
	}
	return words, nil
}
