package tcx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// An attached is an interface with the programs.
type attached struct {
	name         string
	slot         uint32
	state        *state
	query, reply attachment
	probes       [families]probe
}

// A probe is a query that is captured as a test, while no replies of its family pass.
type probe struct {
	at   time.Time
	wait time.Duration // until the next one
}

// A paused is an interface without replies of a family.
type paused struct{ index, family int }

// familyNames are the names in the log.
var familyNames = [families]string{"IPv4", "IPv6"}

// An attachment is a program at one side of an interface, until Close.
type attachment interface{ Close() error }

// update attaches the programs to an interface, detaches them from it, or notes the
// address of its frames.
func (c *Capture) update(d device) {
	if !d.selected(c.options.Interfaces) {
		c.detach(d.index)
		return
	}

	mac, reason := target(d, c.known)
	if reason != "" {
		c.detach(d.index)
		c.refuse(d, reason)
		return
	}

	a := c.attached[d.index]
	if a != nil && !c.complete(d.index, a) {
		c.options.Log.Warn("Filters of the capture were removed from an interface, adding them again",
			"interface", d.name)
		c.detach(d.index)
		a = nil
	}

	if a == nil {
		if reason := c.foreign(d.index); reason != "" {
			c.refuse(d, reason)
			return
		}
		var err error
		switch a, err = c.attach(d, mac); {
		case errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT):
			return // it has been deleted meanwhile
		case err != nil:
			c.refuse(d, err.Error())
			return
		}
		delete(c.refused, d.index)
		c.attached[d.index] = a
		c.options.Log.Debug("Attached the capture", "interface", d.name)
	}

	// The name and the address of frames may change while the programs are attached.
	a.name = d.name
	a.state.mac.Store(binary.NativeEndian.Uint64(mac[:]))
}

// refuse logs, once for each reason, why queries of an interface are not captured.
func (c *Capture) refuse(d device, reason string) {
	if c.refused[d.index] != reason {
		c.refused[d.index] = reason
		c.options.Log.Warn("Queries of an interface are not captured, they go to the cluster's DNS servers",
			"interface", d.name, "reason", reason)
	}
}

// attach attaches the programs. Replies are rewritten before queries are.
func (c *Capture) attach(d device, mac [8]byte) (_ *attached, err error) {
	if len(c.free) == 0 {
		return nil, fmt.Errorf("%d interfaces are captured already", c.program.limit)
	}

	// The programs find the state by the slot, so it is complete before they are attached.
	a := &attached{name: d.name, slot: c.free[len(c.free)-1]}
	a.state = c.program.state(a.slot)
	a.state.reset(binary.NativeEndian.Uint64(mac[:]))
	if err := c.program.slots.Put(uint32(d.index), a.slot); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.program.slots.Delete(uint32(d.index))
		}
	}()

	if a.reply, err = c.attachAt(d.index, c.program.reply, ebpf.AttachTCXEgress); err != nil {
		return nil, err
	}
	if a.query, err = c.attachAt(d.index, c.program.query, ebpf.AttachTCXIngress); err != nil {
		_ = a.reply.Close()
		return nil, err
	}
	c.free = c.free[:len(c.free)-1]
	return a, nil
}

// attachAt attaches a program at one side of an interface, before all others.
func (c *Capture) attachAt(index int, p *ebpf.Program, side ebpf.AttachType) (attachment, error) {
	if !c.options.Clsact {
		return link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: side, Anchor: link.Head()})
	}
	parent, name := uint32(clsactIngress), filterPrefix+"query"
	if side == ebpf.AttachTCXEgress {
		parent, name = clsactEgress, filterPrefix+"reply"
	}
	f, err := attachFilter(c.requests, index, parent, p, name)
	if err != nil {
		return nil, err
	}
	return attachedFilter{c.requests, f}, nil
}

// An attachedFilter is a filter of this process.
type attachedFilter struct {
	conn *netlink.Conn
	*filter
}

// Close removes the filter.
func (f attachedFilter) Close() error { return f.remove(f.conn) }

// complete reports whether the programs are still at an interface. Only filters can be
// removed by another process.
func (c *Capture) complete(index int, a *attached) bool {
	if !c.options.Clsact {
		return true
	}
	present := filters(c.requests, index)
	for _, own := range []attachment{a.query, a.reply} {
		f := own.(attachedFilter)
		same := func(g filter) bool { return g.parent == f.parent && g.program == f.program }
		if !slices.ContainsFunc(present, same) {
			return false
		}
	}
	return true
}

// reset restores the state of an interface from which nothing has been captured.
func (s *state) reset(mac uint64) {
	s.mac.Store(mac)
	s.queries.Store(0)
	for family := range s.families {
		f := &s.families[family]
		f.pending.Store(0)
		f.replied.Store(0)
		f.paused.Store(0)
		f.probe.Store(0)
	}
}

// detach detaches the programs, if they are attached.
func (c *Capture) detach(index int) {
	a := c.attached[index]
	if a == nil {
		return
	}
	_ = a.query.Close()
	_ = a.reply.Close()
	_ = c.program.slots.Delete(uint32(index))
	delete(c.attached, index)
	for family := range families {
		delete(c.quiet, paused{index, family})
	}
	c.free = append(c.free, a.slot)
	c.options.Log.Debug("Detached the capture", "interface", a.name, "count", a.state.queries.Load())
}

// watch looks for interfaces to which no replies of an address family pass, for example
// because a rule of the node drops the queries. It pauses the capture of the family there, and
// tries one query after a time that doubles. The programs end a pause when a reply passes.
func (c *Capture) watch(now time.Time) {
	if silent := c.program.page.page.silent.Load(); silent != c.silent {
		c.silent = silent
		for index, a := range c.attached {
			for family := range families {
				key := paused{index, family}
				if _, known := c.quiet[key]; !known && a.state.families[family].silent(c.options.Times) {
					c.pause(key, a, now)
				}
			}
		}
	}

	for key := range c.quiet {
		a := c.attached[key.index]
		f, p := &a.state.families[key.family], &a.probes[key.family]
		switch {
		case f.paused.Load() == 0:
			delete(c.quiet, key)
			c.options.Log.Info("Replies pass to an interface again, its queries are captured",
				"interface", a.name, "family", familyNames[key.family])
		case now.After(p.at):
			f.probe.Store(1)
			p.wait = min(2*p.wait, retryLast)
			p.at = now.Add(p.wait)
		}
	}
}

// pause ends the capture of a family at an interface until replies pass.
func (c *Capture) pause(key paused, a *attached, now time.Time) {
	f := &a.state.families[key.family]
	f.probe.Store(0)
	f.paused.Store(1)
	a.probes[key.family] = probe{now.Add(c.options.Times.Retry), c.options.Times.Retry}
	c.quiet[key] = struct{}{}
	c.options.Log.Warn("No replies pass to an interface, its queries go to the cluster's DNS servers:"+
		" does a rule drop packets of pods to the node?",
		"interface", a.name, "family", familyNames[key.family], "interval", c.options.Times.Retry)
}

// silent reports whether a query got no reply for longer than times.Silence. As in the programs, one that is
// older than times.Forget does not count: its pod has sent none since.
func (f *familyState) silent(times Times) bool {
	pending := f.pending.Load()
	waiting := time.Duration(monotonic() - int64(pending))
	return pending != 0 && waiting > times.Silence && waiting < times.Forget
}

// foreign returns a reason not to capture on an interface because of the BPF programs of
// others there: they may belong to a network plugin that decides about the same packets.
func (c *Capture) foreign(index int) string {
	if c.options.Foreign {
		return ""
	}

	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		result, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: at})
		if err != nil {
			continue // attaching reports it
		}
		for _, p := range result.Programs {
			if !marked(p.ID) {
				return foreignReason("program " + describe(p.ID))
			}
		}
	}

	for _, f := range filters(c.requests, index) {
		switch {
		case f.left():
			_ = f.remove(c.requests) // it captures nothing
		case !marked(f.program):
			return foreignReason(fmt.Sprintf("filter %q of tc", f.name))
		}
	}
	return ""
}

func foreignReason(what string) string {
	return "it has the BPF " + what + " of another process, such as a network plugin:" +
		" set -capture-foreign to capture before it"
}

// describe returns the number and, if the process may know it, the name of a program.
func describe(id ebpf.ProgramID) string {
	if p, err := ebpf.NewProgramFromID(id); err == nil {
		defer p.Close()
		if info, err := p.Info(); err == nil {
			return fmt.Sprintf("%d (%s)", id, info.Name)
		}
	}
	return fmt.Sprint(id)
}
