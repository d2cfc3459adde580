package secondary

import (
	"slices"
	"sync"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/wire"
)

// A registry has the catalogs of all server blocks, and the budget of their members. All plans
// of a server share it, so that a server block finds its members again after a reload,
// whatever else of it has changed.
type registry struct {
	budget budget
	checks *checks
	files  *files
	copies *copies
	memory *memory.Budget

	mu  sync.Mutex
	all []*catalogs
}

// registryKey identifies the registry across reloads.
type registryKey struct{}

// catalogsKey identifies a catalogs across reloads.
type catalogsKey struct{ *catalogs }

func newRegistry(b *memory.Budget) *registry {
	return &registry{memory: b, checks: new(checks), files: new(files), budget: budget{limit: maxMemberBytes, waiting: map[*share]waiter{}}}
}

// claim returns the catalogs for the catalogs of a server block: one of the old plan that has
// one of them and that no other server block of the new plan uses, or a new one.
func (r *registry) claim(start *config.Start, origins []wire.Name, b *config.Block) (*catalogs, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.all, func(has *catalogs) bool {
		to := has.wanted.Load()
		return has.claimed != start && to != nil &&
			slices.ContainsFunc(origins, func(origin wire.Name) bool { return to.find(origin) != nil })
	})

	var m *catalogs
	if i >= 0 {
		m = r.all[i]
	} else {
		m = &catalogs{log: b.Log, registry: r, scope: new(scope), transfers: newTransfers()}
		m.health.board = b.Health()
		m.current.Store(&zoneSet{members: map[wire.Name]*member{}})
		r.all = append(r.all, m)
	}
	m.claimed = start
	return config.Keep(start, catalogsKey{m}, func() (*catalogs, error) { return m, nil })
}

// remove forgets a catalogs.
func (r *registry) remove(m *catalogs) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(has *catalogs) bool { return has == m })
}

// Stop implements config.Stopper.
func (*registry) Stop() {}
