package tcx

import (
	"encoding/binary"
	"errors"
	"fmt"
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
	query, reply link.Link
	wait         time.Duration // until the next probe, while replies do not pass
	retry        time.Time
}

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
	a.name = d.name
	a.state.mac.Store(binary.NativeEndian.Uint64(mac[:]))
}

// refuse logs, once for each reason, why queries of an interface are not captured.
func (c *Capture) refuse(d device, reason string) {
	if c.refused[d.index] != reason {
		c.refused[d.index] = reason
		c.options.Log.Warn("Queries of an interface are not captured, they go to the cluster's DNS servers", "interface", d.name, "reason", reason)
	}
}

// attach attaches the programs. Replies are rewritten before queries are.
func (c *Capture) attach(d device, mac [8]byte) (_ *attached, err error) {
	if len(c.free) == 0 {
		return nil, fmt.Errorf("%d interfaces are captured already", c.program.limit)
	}
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
	attach := func(p *ebpf.Program, to ebpf.AttachType) (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Interface: d.index, Program: p, Attach: to, Anchor: link.Head()})
	}
	if a.reply, err = attach(c.program.reply, ebpf.AttachTCXEgress); err != nil {
		return nil, err
	}
	if a.query, err = attach(c.program.query, ebpf.AttachTCXIngress); err != nil {
		_ = a.reply.Close()
		return nil, err
	}
	c.free = c.free[:len(c.free)-1]
	return a, nil
}

// reset makes the state that of an interface from which nothing has been captured.
func (s *state) reset(mac uint64) {
	s.mac.Store(mac)
	s.pending.Store(0)
	s.queries.Store(0)
	s.replies.Store(0)
	s.paused.Store(0)
	s.probe.Store(0)
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
	delete(c.quiet, index)
	c.free = append(c.free, a.slot)
	c.options.Log.Debug("Detached the capture", "interface", a.name, "count", a.state.queries.Load())
}

// watch looks for interfaces to which no replies pass, for example because a rule of the
// node drops the queries. It pauses their capture, and tries one query after a time that
// doubles. The programs end a pause when a reply passes.
func (c *Capture) watch(now time.Time) {
	if silent := c.program.page.page.silent.Load(); silent != c.silent {
		c.silent = silent
		for index, a := range c.attached {
			if _, known := c.quiet[index]; !known && a.silent() {
				a.state.probe.Store(0)
				a.state.paused.Store(1)
				a.wait = retryFirst
				a.retry = now.Add(a.wait)
				c.quiet[index] = struct{}{}
				c.options.Log.Warn("No replies pass to an interface, its queries go to the cluster's DNS servers: does a rule drop packets of pods to the node?",
					"interface", a.name, "interval", a.wait)
			}
		}
	}
	for index := range c.quiet {
		a := c.attached[index]
		switch {
		case a.state.paused.Load() == 0:
			delete(c.quiet, index)
			c.options.Log.Info("Replies pass to an interface again, its queries are captured", "interface", a.name)
		case now.After(a.retry):
			a.state.probe.Store(1)
			a.wait = min(2*a.wait, retryLast)
			a.retry = now.Add(a.wait)
		}
	}
}

// silent reports whether the last queries got no reply for too long.
func (a *attached) silent() bool {
	pending := a.state.pending.Load()
	return pending != 0 && monotonic()-int64(pending) > int64(silence)
}

// silence is SILENCE of program/capture.c.
const silence = time.Second

// foreign returns a reason not to capture on an interface because of the BPF programs of
// others there: they may be those of a network plugin that decides about the same packets.
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
			if !c.marks.ours(p.ID) {
				return fmt.Sprintf("it has the BPF program %s of another process, such as a network plugin: set -capture-foreign to capture before it", describe(p.ID))
			}
		}
	}
	for _, parent := range []uint32{clsactIngress, clsactEgress} {
		if name, ok := c.filter(index, parent); ok {
			return fmt.Sprintf("it has the BPF filter %q of tc of another process, such as a network plugin: set -capture-foreign to capture before it", name)
		}
	}
	return ""
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

// The parents of filters at the two sides of the qdisc clsact.
const clsactIngress, clsactEgress = 0xfffffff2, 0xfffffff3

// filter returns the name of the first BPF filter of tc.
func (c *Capture) filter(index int, parent uint32) (name string, found bool) {
	header := make([]byte, 20) // struct tcmsg
	binary.NativeEndian.PutUint32(header[4:], uint32(index))
	binary.NativeEndian.PutUint32(header[12:], parent)
	replies, err := c.requests.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETTFILTER, Flags: netlink.Request | netlink.Dump}, Data: header,
	})
	if err != nil {
		return "", false // there is no such qdisc
	}
	for _, m := range replies {
		if len(m.Data) < len(header) {
			continue
		}
		a, err := netlink.NewAttributeDecoder(m.Data[len(header):])
		if err != nil {
			continue
		}
		kind, name := "", ""
		for a.Next() {
			switch a.Type() {
			case 1: // TCA_KIND
				kind = a.String()
			case 2: // TCA_OPTIONS
				a.Nested(func(n *netlink.AttributeDecoder) error {
					for n.Next() {
						if n.Type() == 7 { // TCA_BPF_NAME
							name = n.String()
						}
					}
					return nil
				})
			}
		}
		if kind == "bpf" {
			return name, true
		}
	}
	return "", false
}
