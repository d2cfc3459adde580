package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/audit"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// Settings are the options of objects.
type settings struct {
	objects.Settings
	widen bool
	// isOwn reports whether a name is in a zone of the cluster.
	isOwn func(name wire.Name) bool
}

// readObjects reads the option objects.
func (p *Policy) readObjects(b *config.Block, o corefile.Directive) error {
	s := &settings{Settings: objects.Settings{Directive: "policy", Noun: "names", Labels: "seamark.io/dns=policy", Show: shown}}
	s.Read = s.read
	s.isOwn = func(name wire.Name) bool {
		_, inside := p.namespaceOf([]byte(name))
		return inside
	}
	p.settings = s
	err := s.ParseOptions(b, o, []wire.Name{wire.Root}, "20000", corefile.Option{Usage: "widen", Set: corefile.Flag(&s.widen)})
	if s.API.ConfigMapLabels == "" {
		s.API.ConfigMapLabels = s.Labels
	}
	return errors.Join(err, s.CheckLocation(b))
}

// ObjectLines are the lines allow and deny of objects. Queries read them without a lock.
type objectLines struct {
	*objects.Objects
	*settings
	lines  zone.Table[objects.Entry] // by lineKey
	counts zone.Table[lineCounts]    // by namespace
}

// The kinds of lines, in their keys: for a name itself, and for those below it.
const (
	ownLine   = "o"
	belowLine = "b"
)

// lineKey returns the key of a line of an object: labels of its namespace and of its kind, and the name.
func lineKey(namespace, kind string, name wire.Name) wire.Name {
	return wire.Name(string([]byte{byte(len(namespace))})+namespace+"\x01"+kind) + name
}

// splitKey returns the parts of a key.
func splitKey(key wire.Name) (namespace, kind string, name wire.Name) {
	size := 1 + int(key[0])
	return string(key[1:size]), string(key[size+1 : size+2]), key[size+2:]
}

// shown returns the word of a line.
func shown(key wire.Name) string {
	_, kind, name := splitKey(key)
	return audit.Word(name, kind == belowLine)
}

// Get implements objects.Table.
func (l *objectLines) Get(key wire.Name) *objects.Entry { return l.lines.Get([]byte(key)) }

// Set implements objects.Table.
func (l *objectLines) Set(key wire.Name, e *objects.Entry) {
	if l.Get(key) == nil {
		l.count(key, 1)
	}
	l.lines.Set(string(key), e)
}

// Delete implements objects.Table.
func (l *objectLines) Delete(key wire.Name) {
	l.lines.Delete(string(key))
	l.count(key, -1)
}

// count adds n to the lines of a kind whose names have as many labels as that of a key.
func (l *objectLines) count(key wire.Name, n int32) {
	namespace, kind, name := splitKey(key)
	now := new(lineCounts)
	if before := l.counts.Get([]byte(namespace)); before != nil {
		*now = *before
	}
	if kind == ownLine {
		now.own += n
	} else {
		i := name.Labels()
		now.below[min(i, mostDepth)] += n
		if now.depths.remove(i); now.below[min(i, mostDepth)] > 0 {
			now.depths.add(i)
		}
	}

	if now.own == 0 && now.depths == 0 {
		l.counts.Delete(namespace)
		return
	}
	l.counts.Set(namespace, now)
}

// LineCounts are numbers of lines of one namespace, so that only names are looked up that may have one.
type lineCounts struct {
	own    int32
	below  [mostDepth + 1]int32 // by labels, as depths
	depths depths               // those of which below has some
}

// A line of an object is one that has a name. The zero value is none.
type line struct {
	action action
	length int  // of the line's name
	widens bool // it allows what the group denies
	below  bool // it is for the names below its name
	from   *objects.Object
}

// isUnread reports whether objects decide about the query's name, and have not been read yet.
func (p *Policy) isUnread(q *dns.Query, c client) bool {
	if c.pod == nil || c.group.audit || p.Ready() {
		return false
	}
	_, inside := p.namespaceOf(q.Name())
	return !inside
}

// hasLines reports whether objects of the pod's namespace have lines.
func (p *Policy) hasLines(pod *cluster.Pod) bool {
	l := p.objects.Load()
	return l != nil && pod != nil && l.counts.Get([]byte(pod.Namespace)) != nil
}

// findLine returns the longest line of the objects of the pod's namespace that has a name.
func (p *Policy) findLine(pod *cluster.Pod, name []byte) line {
	if l := p.objects.Load(); l != nil && pod != nil {
		return l.find(pod.Namespace, name)
	}
	return line{}
}

// find returns the longest line of objects of a namespace that has a name, in wire form and in lower case.
func (l *objectLines) find(namespace string, name []byte) (found line) {
	var space [64]byte
	counts := l.counts.Get(append(space[:0], namespace...))
	if counts == nil || len(name) == 0 {
		return line{}
	}

	// The front of a key is written before each name, over labels that are not looked up any more.
	var room [1 + 64 + 2 + wire.MaxName]byte
	at := len(room) - len(name)
	copy(room[at:], name)
	get := func(kind string) *objects.Entry {
		start := at - 2 - len(namespace) - 1
		room[start] = byte(len(namespace))
		copy(room[start+1:], namespace)
		room[at-2], room[at-1] = 1, kind[0]
		return l.lines.Get(room[start:])
	}

	labels := wire.Labels(name)
	var e *objects.Entry
	if counts.own > 0 {
		e = get(ownLine)
	}
	for e == nil {
		if found.below && room[at] == 0 {
			return line{}
		}
		if room[at] != 0 { // else the name is the root, which * has
			at += 1 + int(room[at])
			labels--
		}
		found.below = true
		if counts.depths.has(labels) {
			e = get(belowLine)
		}
	}
	found.action, found.length, found.from = action(e.Value[0]), len(room)-at, e.From
	found.widens = found.action == allow && l.widen && found.length >= l.Rules().ZoneOf(name)
	return found
}

// read reads a ConfigMap. Valid lines of one with errors are read, too.
func (s *settings) read(o cluster.Object, most int) *objects.Content {
	c := &content{settings: s, namespace: o.Key().Namespace, most: most, lines: map[wire.Name]action{}}
	if m, ok := o.(*cluster.ConfigMap); ok {
		c.EachLine(m, "policy", most, c.readLine)
	}

	var packed []byte
	for _, key := range slices.Sorted(maps.Keys(c.lines)) {
		packed = objects.AppendName(packed, key, []byte{byte(c.lines[key])})
	}
	c.Packed, c.Count = string(packed), len(c.lines)
	return &c.Content
}

// A content is the lines of a ConfigMap, and what is wrong with it.
type content struct {
	objects.Content
	settings  *settings
	namespace string
	most      int
	lines     map[wire.Name]action
}

// readLine reads the words of a line: allow NAME..., or deny NAME....
func (c *content) readLine(key string, number int, words []string) {
	a := map[string]action{"allow": allow, "deny": deny}[words[0]]
	if a == 0 {
		c.Fail(key, number, fmt.Errorf("want allow NAME... or deny NAME..., got %q", words[0]))
		return
	}
	for _, word := range words[1:] {
		if c.Used++; c.Used > c.most {
			return
		}
		if err := c.add(word, a); err != nil {
			c.Fail(key, number, err)
		}
	}
}

// add adds a word of a line.
func (c *content) add(word string, a action) error {
	name, below, err := audit.ParseWord(word)
	if err != nil {
		return fmt.Errorf("want a name, *.NAME for the names below it, or *, got %q", word)
	}
	if err := c.settings.Rules().Check(c.namespace, name); err != nil {
		return err
	}
	if c.settings.isOwn(name) {
		return fmt.Errorf("%s is in a zone of the cluster, where namespaces decide", word)
	}

	kind := ownLine
	if below {
		kind = belowLine
	}
	key := lineKey(c.namespace, kind, name)
	if before := c.lines[key]; before != 0 && before != a {
		return fmt.Errorf("%s is allowed and denied", word)
	}
	c.lines[key] = a
	return nil
}

// startObjects has the objects watched.
func (p *Policy) startObjects(b *config.Block) {
	s := p.settings
	if s == nil {
		return
	}
	b.OnStart(func(start *config.Start) error {
		own := slices.Sorted(maps.Keys(p.zones.All())) // which no line may name
		kept, err := config.Keep(start, objectsKey{s.Key(), s.widen, wire.JoinNames(own, " ")}, func() (*objectLines, error) {
			l := s.newLines(b)
			return l, l.Start(start, b, l)
		})
		if err == nil { // before the first query, and before WaitUntilReady asks
			p.objects.Store(kept)
		}
		return err
	})
}

// An objectsKey identifies objects that a reload keeps.
type objectsKey struct {
	objects.Key
	widen bool
	own   string // the zones of the cluster
}

func (s *settings) newLines(b *config.Block) *objectLines {
	l := &objectLines{settings: s}
	l.Objects = objects.New(s.Settings, l, b)
	return l
}
