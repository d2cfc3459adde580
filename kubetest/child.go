package kubetest

import (
	"context"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/seamark/seamark/kubetest/control"
	"github.com/seamark/seamark/kubetest/programs"
)

// defaultTimeout bounds a command whose context has no deadline.
const defaultTimeout = time.Minute

// A child is a running cmd/api control.
type child struct {
	cmd    *exec.Cmd
	client *rpc.Client
	stop   sync.Once
}

// startChild builds cmd/api if necessary and starts it.
func startChild(ctx context.Context) (*child, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	program, err := build()
	if err != nil {
		return nil, err
	}
	p := &child{cmd: exec.Command(program, "control")}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.client = rpc.NewClient(struct {
		io.ReadCloser
		io.Writer
	}{out, in})
	return p, nil
}

// call runs a command of a service. When ctx ends, it returns at once.
func (p *child) call(ctx context.Context, service, command string, args, reply any) error {
	done := p.client.Go(service+"."+command, args, reply, make(chan *rpc.Call, 1)).Done
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", command, ctx.Err())
	case c := <-done:
		if c.Error != nil {
			return fmt.Errorf("%s: %w", command, c.Error)
		}
		return nil
	}
}

// Stop ends the process and everything in it, and returns when it has ended. The
// caller removes the directory. A second Stop does nothing.
func (p *child) Stop() {
	p.stop.Do(func() {
		_ = p.cmd.Process.Kill() // The data are discarded.
		p.client.Close()
		_ = p.cmd.Wait() // "signal: killed"
	})
}

// wait returns the time that ctx leaves to a command.
func wait(ctx context.Context) control.Wait {
	if deadline, ok := ctx.Deadline(); ok {
		return control.Wait{Timeout: time.Until(deadline)}
	}
	return control.Wait{Timeout: defaultTimeout}
}

// build builds cmd/api, without the race detector, and returns the path of the
// program. The go command does nothing if the program is up to date. make test
// has built it before the tests run; the first build takes minutes.
var build = sync.OnceValues(func() (string, error) {
	return programs.Build("kubetest-api", func(module, program string) error {
		cmd := exec.Command("go", "build", "-o", program, "./cmd/api")
		cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building kubetest/cmd/api: %w: %s", err, text)
		}
		return nil
	})
})
