package audit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/net/publicsuffix"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

const (
	// maxNames is the number of names of a record, and maxOfNamespace of the pods of one namespace.
	maxNames       = 20_000
	maxOfNamespace = 2_000
	// foldFrom is the number of names below one parent that are recorded as that parent.
	foldFrom = 100
	// nameBytes is about the memory of a name beyond its bytes.
	nameBytes = int64(unsafe.Sizeof(name{})) + 120
)

// A Kind is what a group would have to change for a query to pass.
type Kind uint8

const (
	Name     Kind = iota // allow the name
	Services             // see a namespace
	Transfer             // have no limit of namespaces
)

// A Record has what the groups of one server block would have denied. Its methods are safe for concurrent
// use.
type Record struct {
	claim *memory.Claim

	mu        sync.Mutex
	groups    map[string]*group
	names     int            // of all groups
	namespace map[string]int // names by namespace of the pods
	bytes     int64
}

type group struct {
	began     time.Time
	leftOut   uint64
	workloads map[workload]*needs
}

// A workload is the pods of a namespace that have a label; the zero value is clients that are not known
// as pods.
type workload struct{ namespace, key, value string }

// Needs are what a workload has queried, and how often.
type needs struct {
	names     map[wire.Name]*name
	parents   map[wire.Name]*parent
	services  map[string]uint64
	transfers uint64
}

type name struct {
	count uint64
	folds bool // the group allows it if it allows the names below its parent
}

// A parent has names below it that fold.
type parent struct {
	names  int
	folded bool
	count  uint64 // of queries, if it is folded
}

// New returns a record without names.
func New(claim *memory.Claim) *Record {
	return &Record{claim: claim, groups: map[string]*group{}, namespace: map[string]int{}}
}

// Stop implements config.Stopper.
func (r *Record) Stop() { r.claim.Release() }

// Begin has the record be one of these groups. What it has of others is forgotten.
func (r *Record) Begin(groups []string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one, g := range r.groups {
		if !slices.Contains(groups, one) {
			r.forget(g)
			delete(r.groups, one)
		}
	}
	for _, one := range groups {
		if r.groups[one] == nil {
			r.groups[one] = &group{began: now, workloads: map[workload]*needs{}}
		}
	}
	r.claim.Set(r.bytes)
}

// forget ends the use of what a group has.
func (r *Record) forget(g *group) {
	for w, n := range g.workloads {
		r.release(w.namespace, 0)
		for owner := range n.names {
			r.release(w.namespace, len(owner))
		}
		for owner, p := range n.parents {
			if p.folded {
				r.release(w.namespace, len(owner))
			}
		}
		for label := range n.services {
			r.release(w.namespace, len(label))
		}
	}
}

// Add records that a group would have denied a query. pod may be nil. owner is, in wire form and in lower
// case, the name that the group would have to allow, or the label of the namespace that it would have to
// see. line is the length of the name in the line that denies it.
func (r *Record) Add(of string, pod *cluster.Pod, kind Kind, owner []byte, line int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[of]
	if g == nil {
		return
	}

	w := workloadOf(pod)
	n := g.workloads[w]
	if n == nil {
		if !r.hasRoom(w.namespace) {
			g.leftOut++
			return
		}
		n = &needs{names: map[wire.Name]*name{}, parents: map[wire.Name]*parent{}, services: map[string]uint64{}}
		g.workloads[w] = n
		r.reserve(w.namespace, 0)
	}

	had := true
	switch kind {
	case Transfer:
		n.transfers++
	case Services:
		had = r.addService(n, w.namespace, owner)
	case Name:
		had = r.addName(n, w.namespace, owner, line)
	}
	if !had {
		g.leftOut++
	}
}

// hasRoom reports whether there is room for one more name of a namespace.
func (r *Record) hasRoom(namespace string) bool {
	return r.names < maxNames && r.namespace[namespace] < maxOfNamespace &&
		r.claim.Grow(r.bytes+nameBytes+wire.MaxName) == nil
}

// addService counts a namespace that is not seen, and reports whether there is room for it.
func (r *Record) addService(n *needs, namespace string, label []byte) bool {
	if n.services[string(label)] == 0 {
		if !r.hasRoom(namespace) {
			return false
		}
		r.reserve(namespace, len(label))
	}
	n.services[string(label)]++
	return true
}

// addName counts a name, and reports whether there is room for it.
func (r *Record) addName(n *needs, namespace string, owner []byte, line int) bool {
	above := owner[min(len(owner)-1, int(1+owner[0])):]
	p := n.parents[wire.Name(above)]
	// A line that denies the name alone, or names of a lower parent, is longer than one that allows all
	// names below the parent.
	folds := len(above) > 1 && line <= len(above)
	if folds && p != nil && p.folded {
		p.count++
		return true
	}
	if known := n.names[wire.Name(owner)]; known != nil {
		known.count++
		return true
	}
	if !r.hasRoom(namespace) {
		return false
	}

	n.names[wire.Name(owner)] = &name{count: 1, folds: folds}
	r.reserve(namespace, len(owner))
	if !folds {
		return true
	}
	if p == nil {
		p = new(parent)
		n.parents[wire.Name(above)] = p
	}
	if p.names++; p.names >= foldFrom && !isPublicSuffix(wire.Name(above)) {
		r.fold(n, namespace, wire.Name(above), p)
	}
	return true
}

// fold replaces the names below a parent by one for all of them.
func (r *Record) fold(n *needs, namespace string, above wire.Name, p *parent) {
	for owner, known := range n.names {
		if known.folds && owner[1+owner[0]:] == above {
			p.count += known.count
			delete(n.names, owner)
			r.release(namespace, len(owner))
		}
	}
	p.folded = true
	r.reserve(namespace, len(above))
}

// reserve adds a name to what is in use, and release removes it.
func (r *Record) reserve(namespace string, size int) {
	r.names++
	r.namespace[namespace]++
	r.bytes += nameBytes + int64(size)
}

func (r *Record) release(namespace string, size int) {
	r.names--
	if r.namespace[namespace]--; r.namespace[namespace] == 0 {
		delete(r.namespace, namespace)
	}
	r.bytes -= nameBytes + int64(size)
}

// isPublicSuffix reports whether the names below a name belong to different owners, as those below co.uk.
func isPublicSuffix(above wire.Name) bool {
	text := strings.TrimSuffix(above.String(), ".")
	suffix, _ := publicsuffix.PublicSuffix(text)
	return suffix == text
}

// workloadLabels are labels that name the workload of a pod; the first that a pod has does.
var workloadLabels = [...]string{"app.kubernetes.io/name", "k8s-app", "app", "run"}

func workloadOf(pod *cluster.Pod) workload {
	if pod == nil {
		return workload{}
	}
	for _, key := range workloadLabels {
		if value, ok := pod.Labels.Get(key); ok {
			return workload{pod.Namespace, key, value}
		}
	}
	return workload{namespace: pod.Namespace}
}

// compare orders workloads by namespace, and those of one so that the label that names a workload comes
// before the labels that a pod may have beside it.
func (w workload) compare(o workload) int {
	rank := func(w workload) int {
		if i := slices.Index(workloadLabels[:], w.key); i >= 0 {
			return i
		}
		return len(workloadLabels)
	}
	return cmp.Or(cmp.Compare(w.namespace, o.namespace), cmp.Compare(rank(w), rank(o)), cmp.Compare(w.value, o.value))
}

// Groups returns what has been recorded, by the names of groups.
func (r *Record) Groups() (all []Group) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range slices.Sorted(maps.Keys(r.groups)) {
		g := r.groups[one]
		shown := Group{Name: one, Began: g.began, LeftOut: g.leftOut}
		for _, w := range slices.SortedFunc(maps.Keys(g.workloads), workload.compare) {
			shown.Workloads = append(shown.Workloads, g.workloads[w].shown(w))
		}
		all = append(all, shown)
	}
	return all
}

// shown returns the needs of a workload.
func (n *needs) shown(w workload) Workload {
	s := Workload{Namespace: w.namespace, Key: w.key, Value: w.value, Names: Counts{}, Services: Counts{}, Transfers: n.transfers}
	for owner, known := range n.names {
		s.Names[word(owner)] += known.count
	}
	for owner, p := range n.parents {
		if p.folded {
			s.Names[below+word(owner)] += p.count
		}
	}
	for label, count := range n.services {
		s.Services[label] += count
	}
	return s
}

// below begins a word that stands for the names below another.
const below = "*."

// Word returns the word of a line allow or deny for a name, or for those below it.
func Word(owner wire.Name, isBelow bool) string {
	switch {
	case isBelow && owner == wire.Root:
		return "*"
	case isBelow:
		return below + word(owner)
	}
	return word(owner)
}

// word returns a name as a word of a Corefile, with escapes for all that is special there, or in a line
// allow.
func word(owner wire.Name) string {
	if owner == wire.Root {
		return "."
	}
	var out strings.Builder
	for rest := owner; rest != wire.Root; rest = rest[1+rest[0]:] {
		if out.Len() > 0 {
			out.WriteByte('.')
		}
		for _, c := range []byte(rest[1 : 1+rest[0]]) {
			if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' {
				out.WriteByte(c)
				continue
			}
			out.Write([]byte{'\\', '0' + c/100, '0' + c/10%10, '0' + c%10})
		}
	}
	return out.String()
}
