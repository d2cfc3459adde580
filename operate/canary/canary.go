// Package canary changes a cluster's DNS from one server to Seamark in stages, each of
// which can be reverted: the command seamark canary.
//
// A stage is a state of the cluster's objects, and nothing else records it. readState
// reads the objects, steps compares them with the objects of a stage and returns the
// missing changes, and the commands make them. So a command that was interrupted can
// be run again, or reverted, at any point.
//
// The package never changes or deletes the Service of the cluster's DNS, the old
// server's ConfigMap or pods. Of the old server's Deployment it changes the number of
// replicas and one annotation.
package canary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/sys/clock"
)

// A Stage is a state on the way from the old server to Seamark.
type Stage int

const (
	None    Stage = iota // Seamark is not installed
	Beside               // Seamark's Deployment runs, with a Service of its own
	OnePod               // one more pod is behind the cluster's DNS Service
	AllPods              // all pods are behind it
	Alone                // the old server's Deployment has no replicas
)

func (s Stage) String() string {
	return [...]string{
		"0: Seamark is not installed",
		"1: Seamark runs beside the old server, without traffic",
		"2: one pod of Seamark serves together with the old server",
		"3: all pods of Seamark serve together with the old server",
		"4: Seamark serves alone, the old Deployment has no pods",
	}[s]
}

// Options configure the commands. The fields without a comment are flags of the command
// canary, which explain them.
type Options struct {
	Namespace, Service, Deployment, Name string
	Image                                string
	Replicas                             int // 0 is the number of the old server's pods
	DryRun, Delete                       bool
	Force                                string // the reason why problems do not stop the command
	Timeout                              time.Duration
	Rule                                 Rule
	Interval                             time.Duration // between two samples of the metrics
	MetricsPort                          int           // 0 is that of the old server's metrics
	// Kubectl is the beginning of the printed commands: kubectl --context CONTEXT.
	Kubectl string
	// Poll is the time between two reads of the objects while a step waits.
	Poll time.Duration

	// Progress is called with a description of work that takes more than a second; nil for
	// none.
	Progress func(text string)

	API     *apiserver.Session
	Out     io.Writer
	Columns int // the width of Out if it is a terminal, or 0
	// Check returns the errors and warnings of a Corefile. It and the files that it imports
	// are among files, by their path in the container.
	Check func(corefile string, files map[string]string) (errs, warnings []error)
	// Convert returns the Corefile of Seamark for a Deployment of kube-dns and its ConfigMaps, objects in JSON. An
	// error has what Seamark does not serve.
	Convert func(objects [][]byte) (corefile string, err error)
	// DiffNeeds are the permissions that Diff needs.
	DiffNeeds []apiserver.Permission
	// Diff compares the answers of a pod with the objects of the cluster, as a server with
	// this Corefile answers them. If it is nil, nothing is compared.
	Diff func(ctx context.Context, pod Pod, corefile string) (Differences, error)
}

// A Pod is a pod of either server, and its port for queries.
type Pod struct {
	Namespace, Name, Address, Port string
}

// Differences are the result of a comparison of answers.
type Differences struct {
	Unexplained int    // without the intended ones
	Summary     string // in one line
}

// Start installs Seamark beside the old server.
func Start(ctx context.Context, o Options) error {
	c := command{Options: o}
	return c.run(ctx, func(s *state) (Stage, error) {
		if now := s.stage(); now > Beside {
			return 0, fmt.Errorf("the canary is at stage %v: run seamark canary promote or rollback", now)
		}
		return Beside, nil
	})
}

// Promote completes the present stage if it is incomplete, or changes to the next one.
func Promote(ctx context.Context, o Options) error {
	c := command{Options: o}
	return c.run(ctx, func(s *state) (Stage, error) {
		now := s.stage()
		switch {
		case now == None:
			return 0, errors.New("there is no Deployment of Seamark: run seamark canary start")
		case len(c.steps(s, now)) > 0:
			fmt.Fprintf(c.Out, "# This stage is not complete\n")
			return now, nil
		case now == Alone:
			return now, nil
		}
		return now + 1, nil
	})
}

// Rollback returns to the old server: with Delete to stage None, else to Beside.
func Rollback(ctx context.Context, o Options) error {
	c := command{Options: o, back: true}
	return c.run(ctx, func(s *state) (Stage, error) {
		if o.Delete || s.stage() == None {
			return None, nil
		}
		return Beside, nil
	})
}

// A command is one run of start, promote or rollback.
type command struct {
	Options
	back bool // from Seamark to the old server
}

// run reads the state, checks whether it may change, and changes it.
func (c *command) run(ctx context.Context, target func(*state) (Stage, error)) error {
	s, err := c.readState(ctx)
	if err != nil {
		return err
	}
	now := s.stage()
	fmt.Fprintf(c.Out, "# Stage %v\n", now)

	to, err := target(s)
	if err != nil {
		return err
	}

	steps := c.steps(s, to)
	if len(steps) == 0 {
		fmt.Fprintf(c.Out, "# Nothing to do\n")
		return nil
	}
	if c.DryRun {
		for _, step := range steps {
			step.print(c.Out)
		}
		return nil
	}

	err = c.mayChange(ctx, s, to)
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing was changed")
	}
	if err != nil {
		return err
	}

	for _, step := range steps {
		step.print(c.Out)
		err := c.do(ctx, step)
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		if err != nil {
			return fmt.Errorf("%s: %w\nNothing else was changed. Run the same command again to continue,"+
				" or seamark canary rollback to return to the old server", step.purpose, err)
		}
	}

	corefile := s.corefile // which mayChange has read
	if s, err = c.readState(ctx); err != nil {
		return err
	}
	s.corefile = corefile
	fmt.Fprintf(c.Out, "# Stage %v\n", s.stage())

	if to == Beside && !c.back {
		return c.compareBeside(ctx, s)
	}
	return nil
}

// compareBeside compares the answers of Seamark before it has traffic.
func (c *command) compareBeside(ctx context.Context, s *state) error {
	problems := c.differences(ctx, s)
	if ctx.Err() != nil {
		return errors.New("interrupted: the answers were not compared." +
			" Seamark runs without traffic, and promote compares them again")
	}
	if problems != nil {
		return fmt.Errorf("%s\nSeamark runs without traffic; promote needs a comparison"+
			" without such differences, or --force REASON", strings.Join(problems, "\n"))
	}
	return nil
}

// differences compares the answers of one pod of each server, and returns the problems that
// stop the canary.
func (c *command) differences(ctx context.Context, s *state) (problems []string) {
	if c.Diff == nil {
		fmt.Fprintln(c.Out, "# warning: the answers of the servers were not compared")
		return nil
	}
	sides := []side{oldSide, seamarkSide}
	if s.old.kubeDNS() >= 0 {
		fmt.Fprintln(c.Out, "# The answers of kube-dns are not compared: docs/reference/kube-dns.md has what they differ in")
		sides = sides[1:]
	}
	for _, which := range sides {
		pods := s.ready(which)
		if len(pods) == 0 {
			continue
		}
		pod := Pod{pods[0].Metadata.Namespace, pods[0].Metadata.Name, pods[0].Status.PodIP, s.dnsPort()}
		d, err := c.Diff(ctx, pod, s.corefile)
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("comparing the answers of %s: %v", pod.Name, err))
		case d.Unexplained > 0:
			problems = append(problems, fmt.Sprintf("%d answers of %s are not those of the cluster's objects,"+
				" without a documented reason: %s", d.Unexplained, pod.Name, d.Summary))
		default:
			fmt.Fprintf(c.Out, "# Answers of %s: %s\n", pod.Name, d.Summary)
		}
	}
	return problems
}

// do sends the requests of a step, and waits until the step is done.
func (c *command) do(ctx context.Context, step step) error {
	if step.done == nil {
		return step.send(ctx)
	}

	deadline, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	last := ""
	for {
		var err error
		if step.send != nil {
			err = step.send(deadline)
		}
		var s *state
		if err == nil {
			s, err = c.readState(deadline)
		}

		progress, ok := "", false
		if err != nil {
			progress = err.Error() // the API server may be back before the deadline
		} else {
			progress, ok = step.done(s)
		}

		if progress != last && deadline.Err() == nil {
			fmt.Fprintf(c.Out, "#   %s\n", strings.ReplaceAll(progress, "\n", "\n#   "))
			last = progress
		}

		if ok {
			return nil
		}
		if !clock.Sleep(deadline, c.Poll) {
			return fmt.Errorf("not complete after %v: %s", c.Timeout, last)
		}
	}
}

// mayChange checks the conditions of a change to a stage, and prints warnings.
func (c *command) mayChange(ctx context.Context, s *state, to Stage) error {
	if c.back {
		return nil // a rollback has no conditions
	}
	if err := c.checkPermissions(ctx); err != nil {
		return err
	}
	problems, warnings := c.problems(ctx, s, to)
	for _, w := range warnings {
		fmt.Fprintf(c.Out, "# warning: %s\n", w)
	}
	if len(problems) == 0 {
		return nil
	}
	if c.Force != "" {
		for _, p := range problems {
			fmt.Fprintf(c.Out, "# ignored: %s\n", p)
		}
		fmt.Fprintf(c.Out, "# --force: %s\n", strings.Join(strings.Fields(c.Force), " "))
		return nil
	}
	return fmt.Errorf("%s\nNothing was changed. Remove the cause, or repeat with --force REASON",
		strings.Join(problems, "\n"))
}

// Selector returns labels as a label selector of the API.
func Selector(labels map[string]string) string {
	var terms []string
	for key, value := range labels {
		terms = append(terms, key+"="+value)
	}
	slices.Sort(terms)
	return strings.Join(terms, ",")
}
