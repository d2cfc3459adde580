package server

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
)

// NewLog returns a logger that writes lines in the format of CoreDNS, without the
// time:
//
//	[WARNING] Corefile warning file=Corefile line=3
func NewLog(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(&handler{mu: new(sync.Mutex), w: w, level: level})
}

// NewJSONLog returns a logger that writes each message as a JSON object with its time, as CoreDNS
// does with -log-format=json. Attributes are members, and durations text such as "1.5s".
func NewJSONLog(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration {
				a.Value = slog.StringValue(a.Value.String())
			}
			return a
		},
	}))
}

type handler struct {
	mu    *sync.Mutex
	w     io.Writer
	level slog.Leveler
	group string
	attrs string
}

func (l *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level.Level() }

func (l *handler) Handle(_ context.Context, r slog.Record) error {
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
	r.Attrs(func(a slog.Attr) bool { writeAttr(&b, l.group, a); return true })
	b.WriteByte('\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(l.w, b.String())
	return err
}

func (l *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, a := range attrs {
		writeAttr(&b, l.group, a)
	}
	with := *l
	with.attrs += b.String()
	return &with
}

func (l *handler) WithGroup(name string) slog.Handler {
	with := *l
	with.group += name + "."
	return &with
}

// writeAttr writes " key=value".
func writeAttr(b *strings.Builder, group string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, inner := range v.Group() {
			writeAttr(b, group, inner)
		}
		return
	}
	text := v.String()
	if text == "" || strings.ContainsAny(text, " \"=\n\t") {
		text = strconv.Quote(text)
	}
	b.WriteString(" " + group + a.Key + "=" + text)
}
