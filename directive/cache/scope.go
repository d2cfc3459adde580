package cache

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

// A scope holds the entries of the server blocks that have the same zones and
// view, and the same directives below cache.
type scope struct {
	salt     uint64
	queues   [2]queue // success, denial
	memory   int      // bytes of the entries; zero means no limit of its own
	inserted uint64
	evicted  uint64 // before they expired
}

// scopeName returns a text that is equal for server blocks whose answers are
// equal: it contains the block's zones and view, the folder of its files, and
// the directives whose handlers stand below position step of its chain.
func scopeName(b *config.Block, step int) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%q %s %q", b.Chain.View, wire.JoinNames(b.Zones, ","), b.Path(""))

	written := map[string]bool{}
	for _, s := range b.Chain.Steps()[step+1:] {
		if written[s.Name] {
			continue
		}
		written[s.Name] = true
		for _, d := range b.Source.Directives {
			if d.Text == s.Name {
				for _, h := range config.Find[scoper](b) {
					d = h.CacheScope(d)
				}
				writeDirective(&text, d)
			}
		}
	}
	return text.String()
}

// A scoper is a handler whose answers do not depend on some options of its directive, or carry what they
// depend on as their dns.Query.Variant: CacheScope returns its directive without these, and others as
// they are.
type scoper interface {
	CacheScope(corefile.Directive) corefile.Directive
}

// writeDirective writes d without its position.
func writeDirective(text *strings.Builder, d corefile.Directive) {
	text.WriteString("\n" + strconv.Quote(d.Text))
	for _, a := range d.Args {
		text.WriteString(" " + strconv.Quote(a.Text))
	}
	text.WriteString("{")
	for _, o := range d.Body {
		writeDirective(text, o)
	}
	text.WriteString("}")
}

// scope returns the scope of that name. A new one has the limits given.
func (st *Store) scope(name string, limits [2]int) *scope {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.scopes[name]
	if s == nil {
		s = &scope{salt: maphash.String(st.seed, name)}
		for i := range s.queues {
			s.queues[i].limit = limits[i]
		}
		st.scopes[name] = s
	}
	return s
}

// bytes returns the bytes of the entries. The caller holds the store's lock.
func (s *scope) bytes() int { return s.queues[0].bytes + s.queues[1].bytes }

// largestQueue returns the queue that uses most bytes. The caller holds the store's lock.
func (s *scope) largestQueue() *queue {
	if s.queues[0].bytes < s.queues[1].bytes {
		return &s.queues[1]
	}
	return &s.queues[0]
}

// A scopePlan collects the scopes of a plan's server blocks, with the number of
// entries in each queue, and the option memory.
type scopePlan struct {
	limits    map[*scope][2]int
	memory    map[*scope]int
	committed bool
}

func newScopePlan() *scopePlan {
	return &scopePlan{limits: map[*scope][2]int{}, memory: map[*scope]int{}}
}

// Stop implements config.Stopper.
func (*scopePlan) Stop() {}

// add adds a server block. Blocks that share a scope get the highest of their
// limits.
func (p *scopePlan) add(s *scope, limits [2]int, bytes int) {
	p.memory[s] = max(p.memory[s], bytes)
	for i, n := range p.limits[s] {
		limits[i] = max(limits[i], n)
	}
	p.limits[s] = limits
}

// commit applies the limits of the plan that starts to serve and drops the
// scopes that it does not use.
func (st *Store) commit(p *scopePlan) {
	if p.committed {
		return
	}
	p.committed = true

	st.mu.Lock()
	defer st.mu.Unlock()
	now, bytes := st.clock(time.Now()), 0
	for name, s := range st.scopes {
		limits, used := p.limits[s]
		if !used {
			delete(st.scopes, name) // put rejects later entries: the limits are zero
		}
		for i := range s.queues {
			q := &s.queues[i]
			q.limit = limits[i]
			for q.len() > q.limit {
				q.evict(st, now)
			}
		}

		s.memory = p.memory[s]
		bytes += s.memory
		for s.memory > 0 && s.bytes() > s.memory {
			s.largestQueue().evict(st, now)
		}
	}

	// The entries may use as many bytes as the option memory of all server blocks together, if that is more than usual.
	st.limit = max(st.standard, bytes)
	st.memory.Raise(memory.Cache, int64(bytes))
}
