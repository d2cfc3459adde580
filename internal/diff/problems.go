package diff

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// patience is the time from the first problem with the API server to the error, so that the
// error also has the problems that follow.
const patience = 3 * time.Second

// problems collects the warnings that the source logs while it reads the objects, for one
// error. Afterwards they are logged.
type problems struct {
	mu      sync.Mutex
	since   time.Time
	errors  []string
	started bool
}

// A problemLog is a handler that passes records to problems, and later to another handler.
type problemLog struct {
	slog.Handler
	*problems
}

func (l problemLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || l.Handler.Enabled(ctx, level)
}

func (l problemLog) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	started := l.started
	l.mu.Unlock()
	if !started && r.Level >= slog.LevelWarn {
		l.add(r)
		return nil
	}
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

func (p *problems) add(r slog.Record) {
	kind, cause := "", ""
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "kind":
			kind = a.Value.String()
		case "error":
			cause = a.Value.String()
		}
		return true
	})
	text := strings.TrimSuffix(r.Message, ", retrying") // the comparison ends
	if kind != "" {
		text = "reading objects of the kind " + kind
	}
	if cause != "" {
		text += ": " + cause
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.errors) == 0 {
		p.since = time.Now()
	}
	if len(p.errors) < 10 {
		p.errors = append(p.errors, text)
	}
}

// err returns the problems as an error once the first is older than patience.
func (p *problems) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.errors) == 0 || time.Since(p.since) < patience {
		return nil
	}
	return errors.New(p.text())
}

// text returns the problems, and what to do about them. p.mu is held.
func (p *problems) text() string {
	text := strings.Join(p.errors, "\n")
	switch {
	case text == "":
		return "the API server has not sent them: look for a slow connection or an overloaded API server, and repeat the comparison"
	case strings.Contains(text, "forbidden"):
		text += "\nGrant the verbs list and watch on namespaces, services and endpointslices.discovery.k8s.io: " +
			"kubectl create clusterrole seamark-diff --verb=list,watch --resource=namespaces,services,endpointslices.discovery.k8s.io"
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
