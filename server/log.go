package server

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
)

// NewLog makes a logger that writes lines as CoreDNS does, without a time:
//
//	[WARNING] relisting resource=services
func NewLog(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(&lines{mu: new(sync.Mutex), w: w, level: level})
}

type lines struct {
	mu    *sync.Mutex
	w     io.Writer
	level slog.Leveler
	group string
	attrs string
}

func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level.Level() }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	switch {
	case r.Level >= slog.LevelError:
		b.WriteString("[ERROR] ")
	case r.Level >= slog.LevelWarn:
		b.WriteString("[WARNING] ")
	case r.Level >= slog.LevelInfo:
		b.WriteString("[INFO] ")
	default:
		b.WriteString("[DEBUG] ")
	}
	b.WriteString(r.Message + l.attrs)
	r.Attrs(func(a slog.Attr) bool { attr(&b, l.group, a); return true })
	b.WriteByte('\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(l.w, b.String())
	return err
}

func (l *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, a := range attrs {
		attr(&b, l.group, a)
	}
	with := *l
	with.attrs += b.String()
	return &with
}

func (l *lines) WithGroup(name string) slog.Handler {
	with := *l
	with.group += name + "."
	return &with
}

// attr writes " key=value".
func attr(b *strings.Builder, group string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, inner := range v.Group() {
			attr(b, group, inner)
		}
		return
	}
	text := v.String()
	if text == "" || strings.ContainsAny(text, " \"=\n\t") {
		text = strconv.Quote(text)
	}
	b.WriteString(" " + group + a.Key + "=" + text)
}
