//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// An api is an API server that serves the population: one started by the
// benchmark, or the one of a kubeconfig.
type api struct {
	kubeconfig string
	program    string   // kubetest/cmd/api, built
	server     *command // nil with a kubeconfig
}

// A command is a process with a line protocol on its standard input and output.
type command struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // its output; closed at its end
	ended chan struct{}
}

func newCommand(argv ...string) (*command, error) {
	c := &command{cmd: exec.Command(argv[0], argv[1:]...), lines: make(chan string, 1<<16), ended: make(chan struct{})}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}

	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}

	go func() {
		defer close(c.ended)
		defer close(c.lines)
		for text := bufio.NewScanner(out); text.Scan(); {
			c.lines <- text.Text()
		}
		_ = c.cmd.Wait() // its standard error has the reason
	}()
	return c, nil
}

// line returns the next line of output.
func (c *command) line(ctx context.Context) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case text, ok := <-c.lines:
		if !ok {
			return "", errors.New("the command has ended: see its errors above")
		}
		return text, nil
	}
}

// stop closes the process's input, and kills it if it does not end soon.
func (c *command) stop() {
	c.in.Close()
	late := time.After(10 * time.Second)
	for {
		select {
		case _, ok := <-c.lines:
			if !ok {
				<-c.ended
				return
			}
		case <-late:
			_ = c.cmd.Process.Kill() // it may have ended already
		}
	}
}

// startAPI builds the command, starts a server if there is no kubeconfig, and
// creates the population's objects.
func (b *bench) startAPI(ctx context.Context, kubeconfig string) error {
	b.say("building kubetest/cmd/api (the first time takes minutes)")
	program := filepath.Join(b.dir, "api")
	if err := b.build(ctx, "kubetest", "-o", program, "./cmd/api"); err != nil {
		return err
	}

	a := &api{kubeconfig: kubeconfig, program: program}
	b.api = a
	if kubeconfig == "" {
		dir := filepath.Join(b.dir, "etcd")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		var err error
		if a.server, err = newCommand(program, "serve", dir); err != nil {
			return err
		}
		if a.kubeconfig, err = a.server.line(ctx); err != nil {
			return fmt.Errorf("starting the API server: %w", err)
		}
	}

	b.say("writing %d Services with %d endpoints into the API server", b.pop.services(), b.pop.endpoints())
	apply := exec.CommandContext(ctx, program, "apply", a.kubeconfig, b.folder())
	if text, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("writing the cluster: %w: %s", err, text)
	}
	return nil
}

// stopAPI deletes the objects and stops the server.
func (b *bench) stopAPI() {
	switch {
	case b.api == nil:
	case b.api.server != nil:
		b.api.server.stop()
	default:
		if text, err := exec.Command(b.api.program, "clear", b.api.kubeconfig).CombinedOutput(); err != nil {
			b.say("deleting the namespaces ns-0 and following failed: %v: %s", err, text)
		}
	}
	b.api = nil
}

// restart stops the API server, drops its history and starts it again.
func (a *api) restart(ctx context.Context) error {
	if _, err := fmt.Fprintln(a.server.in, "restart"); err != nil {
		return err
	}
	text, err := a.server.line(ctx)
	if err == nil && text != "ready" {
		err = fmt.Errorf("got %q, want ready", text)
	}
	if err != nil {
		return fmt.Errorf("restarting the API server: %w", err)
	}
	return nil
}
