package diff

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// patience is the time from the first problem with the API server to the error, in which the
// source repeats the request. The error also has the problems that follow.
const patience = 3 * time.Second

// problems collects the failed requests that the source logs while it reads the objects, for
// one error. Afterwards they are logged.
type problems struct {
	mu      sync.Mutex
	errors  []problem // the oldest first
	started bool
}

// A problem is a warning about the objects of a kind, or of all kinds if it has none.
type problem struct {
	kind, text string
	since      time.Time
}

// A problemLog is a handler that passes records to problems, and later to another handler.
type problemLog struct {
	slog.Handler
	*problems
}

func (l problemLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || l.Handler.Enabled(ctx, level)
}

func (l problemLog) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	if !l.started && l.note(r) {
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	if !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

func (l problemLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return problemLog{l.Handler.WithAttrs(attrs), l.problems}
}

func (l problemLog) WithGroup(name string) slog.Handler {
	return problemLog{l.Handler.WithGroup(name), l.problems}
}

// note adds the problem that r reports, or removes problems that have ended. It reports whether
// r has no other purpose. p.mu is held.
func (p *problems) note(r slog.Record) bool {
	kind, cause, failed := "", "", false
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "kind":
			kind = a.Value.String()
		case "error":
			cause, failed = a.Value.String(), true
		case "duration": // of a request that stalls
			cause, failed = "no progress for "+a.Value.String()+
				": look for a slow connection or an overloaded API server", true
		}
		return true
	})

	switch {
	case r.Level < slog.LevelWarn: // the request that failed was repeated, and succeeded
		p.errors = slices.DeleteFunc(p.errors, func(e problem) bool { return e.kind == kind })
		return false
	case !failed: // about an object
		return false
	case kind == "ServiceImport" && strings.HasPrefix(r.Message, "Resource not defined"): // there are none
		return false
	}

	text := strings.TrimSuffix(r.Message, ", retrying") // the comparison ends
	if kind != "" {
		text = "reading objects of the kind " + kind
	}
	if cause != "" {
		text += ": " + cause
	}

	if len(p.errors) < 10 {
		p.errors = append(p.errors, problem{kind, text, time.Now()})
	}
	return true
}

// err returns the problems as an error if one has lasted longer than patience.
func (p *problems) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.errors) == 0 || time.Since(p.errors[0].since) < patience {
		return nil
	}
	return errors.New(p.text())
}

// text returns the problems with advice. p.mu is held.
func (p *problems) text() string {
	var lines []string
	for _, e := range p.errors {
		lines = append(lines, e.text)
	}
	text := strings.Join(lines, "\n")
	switch {
	case text == "":
		return "the API server has not sent them: look for a slow connection or an overloaded API server," +
			" and repeat the comparison"
	case strings.Contains(text, "could not find the requested resource"):
		text += "\nThe API server lacks this kind: Seamark needs discovery.k8s.io/v1, of Kubernetes 1.21 or later"
	case strings.Contains(text, "forbidden"):
		const resources = "namespaces,services,endpointslices.discovery.k8s.io"
		text += "\nGrant the verbs list and watch on namespaces, services and endpointslices.discovery.k8s.io: " +
			"kubectl create clusterrole seamark-diff --verb=list,watch --resource=" + resources
	}
	return text
}

// start has later warnings passed to the other handler.
func (p *problems) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
}

// timeout returns the error for objects that have not been read within limit.
func (p *problems) timeout(limit time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("reading the objects of the cluster: not complete within %v: %s", limit, p.text())
}
