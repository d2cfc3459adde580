package objects

import (
	"slices"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/wire"
)

// Corefiles has the names that the Corefile has itself, of all server blocks with these objects.
type corefiles struct {
	plan   *config.Start // the present plan; nil before one is served
	tables []Table

	next       *config.Start // the last plan that has been started
	nextTables []Table
}

// has reports whether the Corefile has a name.
func (c *corefiles) has(owner wire.Name) bool {
	return slices.ContainsFunc(c.tables, func(t Table) bool { return t.Get(owner) != nil })
}

// AddCorefile has the objects know which names a server block of a plan has in the Corefile. That holds
// from the call of swap on, when the plan is served.
func (x *Objects) AddCorefile(plan *config.Start, own Table) (swap func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := &x.corefile
	if c.next != plan {
		c.next, c.nextTables = plan, nil
	}
	c.nextTables = append(c.nextTables, own)
	return func() { x.swapCorefile(plan) }
}

// swapCorefile begins to use the names of a plan. The first call for a plan has an effect.
func (x *Objects) swapCorefile(plan *config.Start) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := &x.corefile
	if c.plan == plan || c.next != plan {
		return
	}
	c.plan, c.tables, c.nextTables = plan, c.nextTables, nil
	for o := range x.known() {
		x.report(o, x.faults.contentOf(o))
	}
}
