package secondary

import (
	"container/list"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/seamark/seamark/sys/health"
)

// conditions are where a zoneCopy reports what is wrong with it: a health.Board, or memberConditions.
type conditions interface {
	Set(owner, name any, c health.Condition)
	Clear(owner, name any)
	Forget(owner any)
}

// memberConditions report what is wrong with the members of catalogs: for each severity one condition,
// that of the first member, with the number of others. A primary that is away would otherwise lead to
// as many conditions as there are members, and each is a line of status, log and page.
type memberConditions struct {
	board *health.Board

	mu     sync.Mutex
	failed map[any]*failedMember
	first  [2]list.List // of *failedMember: critical ones, others
}

// A failedMember has the conditions of a member by name.
type failedMember struct {
	all   map[any]health.Condition
	rank  int           // the list of memberConditions that it is in
	place *list.Element // nil before it is in one
}

// worst returns the worst condition and its rank.
func (f *failedMember) worst() (c health.Condition, rank int) {
	all := slices.Collect(maps.Values(f.all))
	health.Sort(all)
	if all[0].Severity != health.Critical {
		rank = 1
	}
	return all[0], rank
}

// Set adds or replaces a condition of a member.
func (m *memberConditions) Set(owner, name any, c health.Condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		m.failed = map[any]*failedMember{}
	}
	f := m.failed[owner]
	if f == nil {
		f = &failedMember{all: map[any]health.Condition{}}
		m.failed[owner] = f
	}
	f.all[name] = c
	m.update(owner, f)
}

// Clear removes a condition of a member.
func (m *memberConditions) Clear(owner, name any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.failed[owner]; f != nil {
		delete(f.all, name)
		m.update(owner, f)
	}
}

// Forget removes all conditions of a member.
func (m *memberConditions) Forget(owner any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.failed[owner]; f != nil {
		clear(f.all)
		m.update(owner, f)
	}
}

// update moves a member whose conditions have changed to the list of its worst one.
func (m *memberConditions) update(owner any, f *failedMember) {
	rank := -1
	if len(f.all) > 0 {
		_, rank = f.worst()
	}
	if f.place != nil && f.rank != rank {
		m.first[f.rank].Remove(f.place)
		f.place = nil
	}

	switch {
	case rank < 0:
		delete(m.failed, owner)
	case f.place == nil:
		f.rank, f.place = rank, m.first[rank].PushBack(f)
	}
	m.publish()
}

// publish reports the first member of each list.
func (m *memberConditions) publish() {
	for rank := range m.first {
		of := &m.first[rank]
		if of.Len() == 0 {
			m.board.Clear(m, rank)
			continue
		}
		c, _ := of.Front().Value.(*failedMember).worst()
		if n := of.Len() - 1; n > 0 {
			c.Text = fmt.Sprintf("%s; %d more zones of catalogs are as bad", c.Text, n)
		}
		m.board.Set(m, rank, c)
	}
}
