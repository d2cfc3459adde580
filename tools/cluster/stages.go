//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A cluster is one that is being started or ended. Its paths differ outside and inside its
// namespaces, where dir is inside.
type cluster struct {
	*state
	dir string
	out io.Writer // progress

	listener *net.TCPListener        // of the API server's address on the machine
	fail     context.CancelCauseFunc // ends the start inside the namespaces
}

// file returns the path of a file that only the running cluster has.
func (c *cluster) file(elem ...string) string {
	return filepath.Join(append([]string{c.dir, "run"}, elem...)...)
}

// A stage is a step of the start.
type stage struct {
	name  string
	usual string // how long it takes on two cores
	do    func(*cluster, context.Context) error
	undo  func(*cluster) error // nil if it leaves nothing, or only in the namespaces
}

// outside are the stages on the machine. The last one starts the first process of the
// cluster, which goes on with those of inside.
func outside() []stage {
	return []stage{
		{"machine", "1 s", (*cluster).checkMachine, (*cluster).removeFiles},
		{"programs", "25 minutes the first time, then 1 s", (*cluster).buildPrograms, nil},
		{"images", "40 s the first time, then 4 s", (*cluster).writeImages, nil},
		{"control groups", "1 s", (*cluster).makeGroups, (*cluster).removeGroups},
		{"namespaces", "35 s, in these stages:", (*cluster).startInit, (*cluster).killInit},
	}
}

// inside are the stages in the namespaces, which end with them.
func inside(o options) []stage {
	stages := []stage{
		{"network", "1 s", (*cluster).makeNetwork, nil},
		{"Internet", "1 s", (*cluster).startInternet, nil},
		{"certificates", "1 s", (*cluster).makeCertificates, nil},
		{"etcd", "1 s", (*cluster).startEtcd, nil},
		{"API server", "6 s", (*cluster).startAPIServer, nil},
		{"controllers", "7 s", (*cluster).startControllers, nil},
		{"nodes", "8 s, 14 s for three", (*cluster).startNodes, nil},
		{"CoreDNS", "8 s", (*cluster).installDNS, nil},
		{"clients", "3 s", (*cluster).startClients, nil},
	}
	if o.Fake > 0 {
		stages = append(stages, stage{"simulated nodes", "5 s for 100", (*cluster).startKwok, nil})
	}
	return stages
}

// run does stages, and calls begin before each.
func (c *cluster) run(ctx context.Context, stages []stage, begin func(name string) error) error {
	for _, s := range stages {
		if err := begin(s.name); err != nil {
			return err
		}

		fmt.Fprintf(c.out, "== %s (usually %s)\n", s.name, s.usual)
		start := time.Now()
		if err := s.do(c, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if d := time.Since(start); d > time.Second {
			fmt.Fprintf(c.out, "   done in %.0f s\n", d.Seconds())
		}
	}
	return nil
}

// undoAll undoes the stages that have begun, in reverse. It stops at an error. The state file, which the first
// stage has made, is then still there, so that it can be repeated.
func (c *cluster) undoAll(stages []stage) error {
	for _, s := range slices.Backward(stages) {
		if s.undo == nil || !slices.Contains(c.Begun, s.name) {
			continue
		}
		if err := s.undo(c); err != nil {
			return fmt.Errorf("removing what the stage %s has made: %w", s.name, err)
		}
	}
	return nil
}

// up starts a cluster. After an error or a signal nothing of it is left.
func up(ctx context.Context, o options) error {
	l, err := lock(o.Dir, startsOrEnds)
	if err != nil {
		return err
	}
	defer l.Close()

	switch s, err := readState(o.Dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case s.Init.runs():
		return fmt.Errorf("a cluster of %s runs already (process %d): end it with make cluster-down", o.Dir, s.Init.PID)
	default:
		fmt.Println("== removing what an interrupted start or a crash has left")
		if err := newCluster(s).undoAll(outside()); err != nil {
			return err
		}
	}

	c := newCluster(&state{Options: o})
	start := time.Now()
	err = c.run(ctx, outside(), func(name string) error {
		c.Begun = append(c.Begun, name)
		return c.write()
	})
	if err != nil {
		fmt.Println("== removing what was started")
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		return errors.Join(err, c.undoAll(outside()))
	}

	fmt.Printf("== ready after %.0f s\n%s", time.Since(start).Seconds(), c.usage())
	return nil
}

// down ends the cluster of a directory.
func down(dir string) error {
	l, err := lock(dir, startsOrEnds)
	if err != nil {
		return err
	}
	defer l.Close()

	s, err := readState(dir)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("no cluster of %s runs\n", dir)
		return nil
	}
	if err != nil {
		return err
	}
	if err := newCluster(s).undoAll(outside()); err != nil {
		return err
	}
	fmt.Println("the cluster has ended, and nothing of it is left but programs and their modules in", dir)
	return nil
}

func newCluster(s *state) *cluster {
	return &cluster{state: s, dir: s.Options.Dir, out: os.Stdout}
}

// removeFiles removes the directory of the running cluster, with the state file.
func (c *cluster) removeFiles() error {
	if c.listener != nil {
		c.listener.Close()
	}
	return os.RemoveAll(c.file())
}

// usage describes how to use the cluster.
func (c *cluster) usage() string {
	return fmt.Sprintf(`
The cluster runs in namespaces of its own. Its API server is at 127.0.0.1:%d:

  export KUBECONFIG=%s PATH=%s:$PATH
  kubectl get pods -A
  kubectl exec deploy/client-glibc -- dig kubernetes.default.svc.cluster.local
  kubectl exec deploy/client-musl -- /resolve kubernetes.default

A command on its node, where the addresses of Services and pods can be reached:

  %s exec COMMAND

Next:

  seamark doctor                                                   what a change to Seamark would meet
  seamark diff --transport port-forward                            compare CoreDNS's answers with the objects
  seamark canary start --image %s    Seamark beside CoreDNS; then promote, rollback

Logs are in %s. To end it: make cluster-down
`, c.Options.Port, c.file("kubeconfig"), c.file("bin"), filepath.Join(c.dir, "cluster"), seamarkImage, c.file("logs"))
}
