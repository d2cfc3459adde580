package objects

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/wire"
)

// Faults has what is wrong with objects. The owner of an object sees it in an Event; the operator sees
// it in the log and in one condition of the server.
type faults struct {
	directive, noun string

	log      *slog.Logger
	board    *health.Board
	recorder Recorder // may be nil
	all      map[*Object]fault
	shown    *Object // whose fault is part of the condition; nil if there is none
	crowded  map[string]bool

	window time.Time      // in which lines were logged
	logged map[string]int // lines in the window, by namespace
}

func newFaults(directive, noun string, b *config.Block) faults {
	return faults{
		directive: directive, noun: noun,
		log: b.Log, board: b.Health(), all: map[*Object]fault{}, crowded: map[string]bool{},
	}
}

// close ends the condition and the Events.
func (f *faults) close() {
	if f.recorder != nil {
		f.recorder.Close()
	}
	f.board.Forget(f)
}

// A fault has what is wrong with the content of an object, and what is told: that, or that others
// have its names.
type fault struct{ content, told string }

// A Recorder writes Events about objects.
type Recorder interface {
	Warn(kind cluster.Kind, key cluster.Key, version, reason, message string)
	Close()
}

// NewRecorder returns a Recorder for objects of an API server; nil for a plan that only observes.
func NewRecorder(s *config.Start, api cluster.Options, b *config.Block) Recorder {
	if s.Observes {
		return nil
	}
	return sources.NewRecorder(api, b.Log, b.Metrics, b.Dial)
}

const (
	// faultLimit is the size of the longest text.
	faultLimit = 500
	// lineLimit is the number of lines about objects of a namespace that are logged in lineWindow.
	lineLimit  = 20
	lineWindow = time.Minute
)

// reason is that of the Events.
func (f *faults) reason() string { return "Invalid" + strings.ToUpper(f.noun[:1]) + f.noun[1:] }

// contentOf returns what is wrong with the content of an object.
func (f *faults) contentOf(o *Object) string { return f.all[o].content }

func (f *faults) count() int { return len(f.all) }

// set tells what is wrong with an object, unless that is told already.
func (f *faults) set(o *Object, now fault) {
	if now.told == "" {
		f.clear(o)
		return
	}
	now.told = shorten(now.told)
	before := f.all[o].told
	f.all[o] = now
	if before != now.told {
		f.objectLine(o, "Object with an error", "error", now.told)
		if f.recorder != nil {
			f.recorder.Warn(o.Kind(), o.Key(), "", f.reason(), now.told)
		}
	}
	if f.shown == nil || f.shown == o {
		f.shown = o
	}
	f.condition()
}

// shorten returns the beginning of a text that an object's writer can make long.
func shorten(text string) string {
	if len(text) <= faultLimit {
		return text
	}
	return strings.ToValidUTF8(text[:faultLimit], "") + "..."
}

// clear ends what is wrong with an object.
func (f *faults) clear(o *Object) {
	if _, ok := f.all[o]; !ok {
		return
	}
	delete(f.all, o)
	f.objectLine(o, "Object without errors now")
	if f.shown == o {
		f.shown = nil
		for f.shown = range f.all {
			break
		}
	}
	f.condition()
}

// condition sets or clears the condition of the server.
func (f *faults) condition() {
	if f.shown == nil {
		f.board.Clear(f, f.reason())
		return
	}
	f.board.Set(f, f.reason(), health.Condition{
		Severity: health.Warning, Object: f.shown.String(), Text: f.text(), Next: "seamark check --from-cluster",
	})
}

// text describes one of the objects with an error, and has the number of the others; "" without any.
func (f *faults) text() string {
	if f.shown == nil {
		return ""
	}
	text := fmt.Sprintf("%s has an error in its DNS %s: %s", f.shown, f.noun, f.all[f.shown].told)
	if n := len(f.all) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more objects)", n)
	}
	return text
}

// full tells once that objects of a namespace are ignored since it has too many.
func (f *faults) full(namespace string) {
	if !f.crowded[namespace] {
		f.crowded[namespace] = true
		f.line(namespace, "Ignored the youngest objects of a namespace with too many, until they change", "namespace", namespace)
	}
}

// objectLine logs a line about an object.
func (f *faults) objectLine(o *Object, message string, args ...any) {
	key := o.Key()
	f.line(key.Namespace, message, append([]any{"kind", o.Kind().ObjectKind(), "namespace", key.Namespace, "name", key.Name}, args...)...)
}

// line logs a line about an object of a namespace, whose writers may make many.
func (f *faults) line(namespace, message string, args ...any) {
	now := time.Now()
	if now.Sub(f.window) > lineWindow {
		f.window, f.logged = now, map[string]int{}
	}
	f.logged[namespace]++
	switch n := f.logged[namespace]; {
	case n <= lineLimit:
		f.log.Warn(f.directive+": "+message, args...)
	case n == lineLimit+1:
		f.log.Warn(f.directive+": Further lines about objects of a namespace are left out for a minute", "namespace", namespace)
	}
}

// report tells what is wrong with an object: its content, that its namespace has no room, or that the
// Corefile or older objects have its names.
func (x *Objects) report(o *Object, content string) {
	told := content
	switch first, more := x.conflict(o); {
	case content != "":
	case !o.admitted:
		told = x.noRoom()
	case more > 0:
		told = fmt.Sprintf("%s; so are %d more of its names", first, more)
	default:
		told = first
	}
	x.faults.set(o, fault{content, told})
}

// conflict returns the first name of an object that is another's, and whose, as a text, and the
// number of further ones.
func (x *Objects) conflict(o *Object) (first string, more int) {
	for owner := range Owners(o.packed()) {
		by := ""
		if x.corefile.has(owner) {
			by = "the Corefile"
		} else if e := x.table.Get(owner); e != nil && e.From != o {
			by = e.From.String() + ", which is older"
		}
		switch {
		case by == "":
		case first == "":
			first = fmt.Sprintf("%s is in %s", x.settings.shown(owner), by)
		default:
			more++
		}
	}
	return first, more
}

// shown returns a name as objects write it.
func (s *Settings) shown(owner wire.Name) string {
	if s.Show != nil {
		return s.Show(owner)
	}
	return owner.String()
}
