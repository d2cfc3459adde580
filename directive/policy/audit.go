package policy

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/audit"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

// An auditor has the record of what the groups of a server block would deny.
type auditor struct {
	zones, text string                        // see audit.Report
	record      *atomic.Pointer[audit.Record] // nil before the start, and if no group audits
}

// startAudit has a record kept if a group audits.
func (p *Policy) startAudit(b *config.Block, d corefile.Directive) {
	var groups []string
	for _, g := range p.groups.all {
		if g.audit {
			groups = append(groups, g.name)
		}
	}
	p.audit.record = new(atomic.Pointer[audit.Record])
	if len(groups) == 0 {
		return
	}

	p.audit.zones = wire.JoinNames(b.Zones, " ")
	p.audit.text, _ = corefile.Format([]corefile.Server{{Keys: []corefile.Token{{Text: "."}}, Directives: []corefile.Directive{d}}})
	b.OnStart(func(s *config.Start) error {
		r, _ := config.Keep(s, p.audit.zones+fmt.Sprint(b.Addresses()), func() (*audit.Record, error) {
			return audit.New(b.Memory.Claim(memory.Records)), nil
		})
		b.OnSwap(func() {
			r.Begin(groups, time.Now())
			p.audit.record.Store(r)
		})
		return nil
	})
}

// Audit returns what the groups that audit would have denied; ok is false if none does.
func (p *Policy) Audit() (report audit.Report, ok bool) {
	r := p.audit.record.Load()
	if r == nil {
		return report, false
	}
	return audit.Report{Zones: p.audit.zones, Policy: p.audit.text, Time: time.Now(), Groups: r.Groups()}, true
}

// note records a query that a group would deny.
func (p *Policy) note(q *dns.Query, c client, why reason) {
	if !c.group.audit {
		return
	}
	if why == bySight && !p.mayExist(q) {
		return
	}
	p.noteName(q.Name(), c, why, p.wouldTrust(q, c.group))
}

// noteName records a name that a group would deny. Once the names are allowed that have been recorded,
// some are trusted, and deny * does not apply to them.
func (p *Policy) noteName(name []byte, c client, why reason, trusted bool) {
	r := p.audit.record.Load()
	if r == nil {
		return
	}
	switch why {
	case bySight:
		label, _ := p.namespaceOf(name)
		r.Add(c.group.name, c.pod, audit.Services, label, 0)
	case byCopy:
		r.Add(c.group.name, c.pod, audit.Transfer, nil, 0)
	case byLine:
		action, line := c.group.find(name)
		if !action.denies(len(line), trusted) { // an object denies it, which a group cannot change
			return
		}
		r.Add(c.group.name, c.pod, audit.Name, name, len(line))
	}
}

// noteTargets records the targets of an answer that a group would deny, if it allowed the query's name.
func (p *Policy) noteTargets(q *dns.Query, c client) {
	g := c.group
	if !g.audit {
		return
	}
	trusted := p.wouldLead(q.Name(), g, p.wouldTrust(q, g))
	p.walkTargets(q, func(target []byte, t wire.Type) bool {
		if why := p.decideName(target, c, false); why == bySight || why == byLine && t != wire.TypePTR {
			p.noteName(target, c, why, trusted)
		}
		trusted = p.wouldLead(target, g, trusted)
		return true
	})
}

// wouldTrust is isTrusted once the names are allowed that have been recorded.
func (p *Policy) wouldTrust(q *dns.Query, g *group) bool {
	parent := q.Parent()
	return leads(parent) && p.wouldLead(parent.Name(), g, p.wouldTrust(parent, g))
}

// wouldLead is trusts once the names are allowed that have been recorded.
func (p *Policy) wouldLead(name []byte, g *group, before bool) bool {
	if _, inside := p.namespaceOf(name); inside {
		return false
	}
	action, _ := g.find(name)
	return action != 0 || before
}
