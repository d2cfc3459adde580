package simulation

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster/snapshot"
)

// sourceOptions are the options of the directive kubernetes. Another value starts another
// watch of the cluster.
type sourceOptions struct {
	ttl        uint32
	namespaces string // separated by spaces; "" is all
	labels     bool   // only objects with tier=front
	pods       string
	snapshot   bool
}

// A feed is a resource, in one namespace or in all, that the server lists and watches.
type feed struct {
	resource
	namespace string // "" is all
}

// includes reports whether an object is in the feed's namespace, or is that namespace.
func (f feed) includes(o *object) bool {
	return f.namespace == "" || f.namespace == o.namespace || o.namespace == "" && f.namespace == o.name
}

// A source is what one watch of the cluster by the server knows of it.
type source struct {
	sourceOptions
	host string

	mu    sync.Mutex
	sent  map[feed]bool // the end of a list has been sent
	marks map[feed][]mark
	doubt map[feed]time.Time // of the first list that has to be confirmed
	empty map[feed]bool      // an empty list has been sent

	passed       bool         // another process has passed its objects
	*replacement              // by which the process has begun; nil without a hand-over
	started      time.Time    // when the server that has the source was started
	saved        map[feed]int // versions up to which the snapshot has all changes; nil without a snapshot
	frozen       map[feed]int // versions up to which the snapshot may have changes, until the next list is sent
}

// A mark is a version whose changes the client has received completely.
type mark struct {
	version int
	at      time.Time
	queue   *queue // over which it was received; nil if the client has named the version
}

func newSource(host string, o sourceOptions) *source {
	return &source{sourceOptions: o, host: host, sent: map[feed]bool{}, marks: map[feed][]mark{}, doubt: map[feed]time.Time{}, empty: map[feed]bool{}, frozen: map[feed]int{}}
}

// corefile returns the options as a Corefile has them.
func (s *source) corefile(dir string) string {
	text := fmt.Sprintf("  endpoint http://%s\n  ttl %d\n  pods %s\n", s.host, s.ttl, s.pods)
	if s.namespaces != "" {
		text += "  namespaces " + s.namespaces + "\n"
	}
	if s.labels {
		text += "  labels tier=front\n"
	}
	if s.snapshot {
		text += "  snapshot " + s.file(dir) + "\n"
	}
	return text
}

// file returns the path of the snapshot.
func (s *source) file(dir string) string { return dir + "/disk/" + s.host }

// feeds returns the feeds of a resource.
func (s *source) feeds(r resource) (feeds []feed) {
	switch {
	case r == pods && s.pods != "verified":
		return nil
	case s.namespaces == "":
		return []feed{{r, ""}}
	}
	for _, namespace := range strings.Fields(s.namespaces) {
		feeds = append(feeds, feed{r, namespace})
	}
	return feeds
}

// selects reports whether the server knows of an object.
func (s *source) selects(o *object) bool {
	isNamespace := o.namespace == ""
	return (!s.labels || o.front || isNamespace) &&
		slices.ContainsFunc(s.feeds(services), func(f feed) bool { return f.includes(o) })
}

// confirmation is how long the server waits at least for a list that confirms another
// one, which lacks most objects.
const confirmation = 10 * time.Second

// doubts reports whether a list may lack so many of the objects that the server may know
// that it deletes nothing until another list confirms it.
func (s *source) doubts(c *cluster, f feed, list []*object, selects selector) bool {
	known, _ := s.known(f, time.Now())
	if known == 0 {
		return false
	}
	missing, stable := c.missing(f.resource, list, known, selects), c.stable(f.resource, known, selects)
	s.mu.Lock()
	defer s.mu.Unlock()
	most := max(2, len(list))
	if f.resource == namespaces || !slices.ContainsFunc(list, func(o *object) bool { return stable[o.key] }) {
		most = 0 // a namespace counts as many objects as it has, and all objects may be missing
	}
	if missing <= most {
		return false
	}
	if s.doubt[f].IsZero() {
		s.doubt[f] = time.Now()
	}
	return time.Since(s.doubt[f]) < confirmation
}

// isDoubtful reports whether the last list has to be confirmed.
func (s *source) isDoubtful(f feed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.doubt[f].IsZero()
}

// emptiedFirst reports whether no empty list of a feed that has objects has been sent: a
// second one could confirm the first.
func (s *source) emptiedFirst(f feed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.empty[f]
	s.empty[f] = true
	return first
}

func (s *source) listSent(f feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[f] = true
}

// received is called when the client reads the end of a list, an event or a bookmark. It
// had no doubts about the list: an earlier doubt ends, but not by a list that the client
// has not read.
func (s *source) received(f feed, version int, q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.doubt, f)
	s.marks[f] = append(s.marks[f], mark{version, time.Now(), q})
}

// processed reports whether the server has processed what it received. The virtual clock
// moves only when all goroutines wait, so everything that it received before this instant
// has been processed. A connection that it closed as soon as it received the change was
// that of a probe.
func (m mark) processed(now time.Time) bool {
	return m.at.Before(now) && (m.queue == nil || m.queue.openAfter(m.at))
}

// known returns the version up to which the server has processed all changes. Without a complete list known is zero, and listed
// reports whether a list may just have been completed.
func (s *source) known(f feed, now time.Time) (version int, listed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.marks[f] {
		if m.version > version && m.processed(now) {
			version = m.version
		}
	}
	return version, s.sent[f]
}

// A knowledge is the state that the server may know of the objects of one resource.
type knowledge struct {
	first, last   int  // versions
	listed, maybe bool // all feeds have been listed, or may have been
}

// ready reports whether the server has objects of each kind in any case: it has taken over, which waits for
// them while the old process answers.
func (s *source) ready() bool { return s.replacement != nil && !s.oldDied() }

// knows returns what the server may know of the objects in a namespace.
func (s *source) knows(r resource, namespace string, from time.Time, now int) knowledge {
	k := knowledge{last: now, listed: true, maybe: true}
	for _, f := range s.feeds(r) {
		version, sent := s.known(f, from)
		k.listed, k.maybe = k.listed && version > 0, k.maybe && sent
		if f.namespace == "" || f.namespace == namespace {
			k.first = version
			s.mu.Lock()
			if frozen, ok := s.frozen[f]; ok {
				k.last = frozen
			}
			s.mu.Unlock()
		}
	}
	k.listed, k.maybe = k.listed || s.ready(), k.maybe || s.ready()
	return k
}

// isCurrent reports whether the server had processed at a time what it received since it was
// started.
func (s *source) isCurrent(m mark, at time.Time) bool {
	return m.at.After(s.started) && m.processed(at)
}

// complete reports whether the server had received all lists since it was started.
func (s *source) complete(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range resources {
		for _, f := range s.feeds(r) {
			if !slices.ContainsFunc(s.marks[f], func(m mark) bool { return s.isCurrent(m, at) }) {
				return false
			}
		}
	}
	return true
}

// forget is called when the snapshot has been lost.
func (s *source) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = nil
}

// save is called when the server has written a snapshot, at a time before the present one.
func (s *source) save(at time.Time) {
	saved := map[feed]int{}
	for r := range resources {
		for _, f := range s.feeds(r) {
			saved[f], _ = s.known(f, at)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = saved
}

// restart is called when the server has stopped. The next one starts from the snapshot,
// which has no changes after a version. It returns false if there is none.
func (s *source) restart(version int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved == nil || !s.snapshot {
		return false
	}
	s.started = time.Now()
	clear(s.doubt)
	for f, saved := range s.saved {
		s.marks[f], s.frozen[f] = []mark{{version: saved}}, version
	}
	return true
}

// listBegins is called before the objects of a list are sent. The first one that the server
// receives after a restart may be older than the snapshot.
func (s *source) listBegins(f feed, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.frozen, f)
	if !slices.ContainsFunc(s.marks[f], func(m mark) bool { return s.isCurrent(m, time.Now()) }) {
		for i := range s.marks[f] {
			s.marks[f][i].version = min(s.marks[f][i].version, version)
		}
	}
}

// inherit is called when a process passes its objects to a new one, whose source s is: if it is ready. version
// is the newest one. Otherwise it passes nothing: see inheritFile.
func (s *source) inherit(old *source, version int) {
	now := time.Now()
	old.mu.Lock()
	frozen := maps.Clone(old.frozen)
	old.mu.Unlock()
	for f := range old.all() {
		if known, _ := old.known(f, now); known == 0 {
			return
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.started, s.passed = now, true
	for f := range old.all() {
		s.sent[f], s.marks[f] = true, old.history(f, now)
		if s.frozen[f] = version; frozen[f] > 0 {
			s.frozen[f] = frozen[f]
		}
	}
}

// inheritFile is called when the new process has received all that the old one has passed. Without objects it
// loads the file of the snapshot.
func (s *source) inheritFile(old *source, w *world) {
	if s.passed {
		return
	}
	version, _ := w.api.cluster.now()
	var written time.Time
	data, err := os.ReadFile(s.file(w.dir))
	if header, e := snapshot.Read(bytes.NewReader(data)); err == nil && e == nil && s.snapshot {
		written = header.Written
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = time.Now()
	for f := range old.all() {
		_, sent := old.known(f, s.started)
		s.sent[f] = sent || !written.IsZero() // it may have been ready when it passed its objects
		if !written.IsZero() {
			s.marks[f], s.frozen[f] = old.history(f, written), version
		}
	}
}

// all returns the feeds of all resources.
func (s *source) all() iter.Seq[feed] {
	return func(yield func(feed) bool) {
		for r := range resources {
			for _, f := range s.feeds(r) {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// history returns the marks of a feed that were processed at a time.
func (s *source) history(f feed, at time.Time) (marks []mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.marks[f] {
		if m.processed(at) {
			marks = append(marks, mark{version: m.version, at: m.at})
		}
	}
	return marks
}
