package secondary

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/memory"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A catalogs keeps the members of the catalog zones (RFC 9432) of one server block up to
// date. Reloads of the Corefile keep it: see server.
type catalogs struct {
	log       *slog.Logger
	server    *server
	claimed   *config.Start // the last start that uses it
	followers zone.Followers
	transfers *slots.Pool // limits concurrent transfers, by primary
	health    memberConditions
	tasks     sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	scope   *scope

	wanted  atomic.Pointer[scope] // of the plan that serves, for configure
	current atomic.Pointer[zoneSet]
}

// A scope is the configuration of a catalogs. It is immutable.
type scope struct {
	zones   []wire.Name        // of the server block
	origins []wire.Name        // of the Secondary, from the Corefile
	taken   map[wire.Name]bool // origins, and zones of other handlers of the server block
	all     []*catalog
	accept  map[wire.Name][]wire.Name // by catalog: members must be within one of them; empty for any member
}

// find returns the catalog with a name, or nil.
func (s *scope) find(origin wire.Name) *catalog {
	for _, c := range s.all {
		if c.origin == origin {
			return c
		}
	}
	return nil
}

// maxTransfers is the number of members that are transferred at the same time, and
// maxFromPrimary those of one primary: a slow one does not delay the members of others.
const maxTransfers, maxFromPrimary = 16, 12

// A catalog is one catalog zone. It belongs to a zoneCopy.
type catalog struct {
	options // of its own copy
	clients []*client
	metrics *zoneMetrics

	list    map[wire.Name]entry // of the last version that is not broken
	dropped []wire.Name         // members of versions before, which were never served
	refused string              // the last refusals that were logged, and their number
	count   int
}

// A member is a zone that a catalog lists.
type member struct {
	catalog *catalog
	label   string
	copy    *zoneCopy
	before  *zoneCopy // whose data a new member takes over, or nil
}

// A zoneSet is an immutable set of the zones of a Secondary.
type zoneSet struct {
	members map[wire.Name]*member
	zones   wire.ZoneMap[struct{}] // members and the zones in the Corefile
}

// update applies a new version of a catalog. An error reports that it is broken. The members
// stay then.
func (m *catalogs) update(c *catalog, z *zone.Zone) error {
	list, err := parseCatalog(z)
	if err != nil {
		return fmt.Errorf("broken catalog: %w", err)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil
	}

	before := c.list
	c.list = list
	if !slices.Contains(m.scope.all, c) { // not yet, or not any more
		// The version of the file may be replaced before its members are served: their files stay otherwise.
		for name := range before {
			if _, listed := list[name]; !listed {
				c.dropped = append(c.dropped, name)
			}
		}
		return nil
	}

	old := m.current.Load().members
	members := maps.Clone(old)
	m.apply(c, members)
	for _, other := range m.scope.all {
		if other != c { // it may have a zone that c has released
			m.apply(other, members)
		}
	}
	m.replace(old, members)
	return nil
}

// isNew reports whether no plan has had these catalogs.
func (m *catalogs) isNew() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.scope.all) == 0
}

// configure applies the configuration of the plan that serves. Members whose catalog has the
// same options keep their zones.
func (m *catalogs) configure() {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := m.wanted.Load()
	if m.stopped || to == m.scope {
		return
	}

	from := m.scope
	m.scope = to

	old := m.current.Load().members
	members := maps.Clone(old)
	for name, has := range old {
		c := to.find(has.catalog.origin)
		switch {
		case c == nil:
			delete(members, name)
		case c != has.catalog:
			add := &member{catalog: c, label: has.label}
			if c.from == has.catalog.from {
				add.before = has.copy
			}
			members[name] = add
		}
	}

	for _, c := range to.all {
		if had := from.find(c.origin); c.list == nil && had != nil {
			c.list = had.list // until it is transferred
		}
	}
	for _, c := range to.all {
		m.apply(c, members)
		for _, name := range c.dropped {
			if _, listed := c.list[name]; !listed {
				m.deleteFile(name, memberFile(c.file, name))
			}
		}
		c.dropped = nil
	}
	m.replace(old, members)
}

// apply adds, replaces and removes members so that they agree with a catalog's list. New
// members have no copy yet.
func (m *catalogs) apply(c *catalog, members map[wire.Name]*member) {
	maps.DeleteFunc(members, func(name wire.Name, has *member) bool {
		_, listed := c.list[name]
		return has.catalog == c && !listed
	})

	var refused []string
	for _, name := range slices.Sorted(maps.Keys(c.list)) {
		e, has := c.list[name], members[name]
		add := &member{catalog: c, label: e.label}

		// RFC 9432 §4.4.1: a zone moves if its catalog names the other one in its property coo.
		switch why := m.refusal(c, name); {
		case why != "":
			refused = append(refused, fmt.Sprintf("%s %s", name, why))
			if has != nil && has.catalog == c {
				delete(members, name)
			}
			continue
		case has == nil:
		case has.catalog == c: // with another label the zone is reset (RFC 9432 §5.6)
			if has.label == e.label {
				continue
			}
		case e.coo == has.catalog.origin: // c has released the zone to that catalog
			continue
		case has.catalog.list[name].coo != c.origin:
			refused = append(refused, fmt.Sprintf("%s is in catalog %s", name, has.catalog.origin))
			continue
		case has.label == e.label: // its data moves with it, unless it is reset
			add.before = cmp.Or(has.copy, has.before)
		}
		members[name] = add
	}
	c.logRefused(m.log, refused)
}

// refusal returns why a zone cannot be a member of a catalog, or "".
func (m *catalogs) refusal(c *catalog, name wire.Name) string {
	accept := m.scope.accept[c.origin]
	switch {
	case m.scope.taken[name]:
		return "is a zone of the Corefile"
	case !slices.ContainsFunc(m.scope.zones, name.Within):
		return "is outside the server block's zones"
	case len(accept) > 0 && !slices.ContainsFunc(accept, name.Within):
		return "is outside the zones of the option catalog"
	}
	return ""
}

// logRefused logs the first refused zones of a catalog, unless they were logged before.
func (c *catalog) logRefused(log *slog.Logger, refused []string) {
	n := len(refused)
	text := strings.Join(refused[:min(n, 10)], "; ")
	if n > 0 && (text != c.refused || n != c.count) {
		log.Warn("secondary: Refused zones of catalog", "catalog", c.origin, "count", n, "error", text)
	}
	c.refused, c.count = text, n
}

// replace serves other members. It stops the copies of removed ones, deletes their files,
// and starts those of new ones.
func (m *catalogs) replace(old, members map[wire.Name]*member) {
	set := &zoneSet{members: members}
	for _, name := range m.scope.origins {
		set.zones.Set(name, struct{}{})
	}

	var added, removed []*zoneCopy
	for name, has := range members {
		set.zones.Set(name, struct{}{})
		if has.copy == nil {
			has.copy = m.newCopy(name, has)
			added = append(added, has.copy)
		}
	}

	m.current.Store(set)
	for name, had := range old {
		if members[name] != had {
			removed = append(removed, had.copy)
		}
		if members[name] == nil {
			m.log.Info("secondary: Removed zone", "zone", name, "catalog", had.catalog.origin)
		}
	}

	// A new copy may take over the data of a removed one, and write the same file.
	stopAll(removed)
	for _, c := range removed {
		if has := members[c.origin]; has == nil || has.before == nil || has.copy.file != c.file {
			m.deleteFile(c.origin, c.file)
		}
	}
	for _, c := range added {
		has, message := members[c.origin], "secondary: Added zone"
		if old[c.origin] != nil {
			if message = "secondary: Reset zone"; has.before != nil {
				message = "secondary: Moved zone"
			}
		}
		m.log.Info(message, "zone", c.origin, "catalog", has.catalog.origin)
		has.before = nil
		c.start()
	}
}

// deleteFile deletes the file of a removed member, if there is one.
func (m *catalogs) deleteFile(origin wire.Name, file string) {
	if file == "" {
		return
	}
	done, ok := m.server.files.begin()
	if !ok { // a member of the process that replaces this one
		return
	}
	defer done()

	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("secondary: Failed to delete file", "zone", origin, "file", file, "error", err)
	}
}

// newCopy returns the copy of a new member.
func (m *catalogs) newCopy(origin wire.Name, from *member) *zoneCopy {
	o := from.catalog.options
	o.origin = origin
	o.file = memberFile(o.file, origin)
	c := newCopy(o, from.catalog.clients, m.log, newRoom(m.server.memory, memory.Catalogs), m.server)
	c.followers, c.transfers, c.health = &m.followers, m.transfers, &m.health
	c.share = &share{of: &m.server.budget}
	c.accept, c.metrics = c.share.accept, from.catalog.metrics

	if from.before != nil {
		c.before = from.before
		c.history.Store(from.before.history.Load())
		c.current.Store(from.before.current.Load())
	}
	return c
}

// memberFile returns the file of a member of a catalog that is kept in path. The member's name
// may have any bytes.
func memberFile(path string, origin wire.Name) string {
	if path == "" {
		return ""
	}
	name := url.PathEscape(strings.TrimSuffix(origin.String(), "."))
	if len(filepath.Base(path))+len(name) > 200 { // file systems permit 255 bytes
		sum := sha256.Sum256([]byte(origin))
		name = hex.EncodeToString(sum[:])
	}
	return path + "." + name
}

// stopAll stops copies.
func stopAll(copies []*zoneCopy) {
	for _, c := range copies {
		c.task.Cancel()
	}
	for _, c := range copies {
		c.task.Wait()
		c.health.Forget(c)
	}
}

// Stop implements config.Stopper.
func (m *catalogs) Stop() {
	m.server.remove(m)
	m.tasks.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	var copies []*zoneCopy
	for _, has := range m.current.Load().members {
		copies = append(copies, has.copy)
	}
	stopAll(copies)
}
