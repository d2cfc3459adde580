package capture

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/sys/follow"
	"golang.org/x/sys/unix"
)

// repairDelay is the least time between two repairs: something else may remove an address
// again and again.
const repairDelay = 100 * time.Millisecond

// successorTimeout is how long Disable waits for the rules of another instance.
const successorTimeout = 2 * time.Second

// A Capture holds the local addresses on the node's interface, and the rules while they
// are enabled.
type Capture struct {
	options  Options
	instance *instance
	events   *netlink.Conn // nil without events
	notice   follow.Signal // something may have to be repaired
	task     follow.Task

	mu       sync.Mutex
	onLo     bool         // the kernel has no dummy interfaces
	found    []netip.Addr // addresses that were there and are not ours: they are left alone
	added    []netip.Addr // addresses that this process has added
	wanted   exemption
	table    *table                // nil without rules
	watched  map[netip.Addr]*watch // by the ClusterIP
	lastRule string                // the last error about rules that was logged
}

// Open adds the addresses and keeps them there until Close. It adds no rules: Enable does,
// once the server answers at the addresses.
func Open(o Options) (*Capture, error) {
	c := &Capture{options: o, notice: follow.NewSignal(), watched: watches(o)}
	r, err := openRoutes()
	if err != nil {
		return nil, err
	}
	defer r.conn.Close()

	var second bool
	c.instance, second = joinInstances(o.Interface, o.Log)
	if second {
		o.Log.Info("Another instance serves this node, its interface is shared", "interface", o.Interface)
	}

	warnLeftovers(o)
	if o.SetInterface {
		if err := c.prepare(r, second); err != nil {
			o.CountSetupError(ErrorInterfaceAdd)
			c.instance.close()
			return nil, err
		}
		c.subscribe()
	}

	c.task.Go(c.run)
	return c, nil
}

// prepare adds the interface and the addresses for the first time.
func (c *Capture) prepare(r routes, second bool) error {
	all, err := r.addresses()
	if err != nil {
		return err
	}
	l, exists, err := r.link(c.options.Interface)
	switch {
	case err != nil:
		return err
	case exists && l.kind != "dummy":
		return fmt.Errorf("interface %s exists and is no dummy interface: set another name with -interfacename",
			c.options.Interface)
	case exists && !second:
		c.options.Log.Info("Interface is left from an earlier process, using it",
			"interface", c.options.Interface)
	}

	for _, a := range all {
		if slices.Contains(c.options.Addresses, a.ip) && !a.own && !second && !(exists && a.index == l.index) {
			c.found = append(c.found, a.ip)
			c.options.Log.Warn("Address is on another interface of the node, leaving it alone", "address", a.ip,
				"reason", "kube-proxy in mode ipvs adds every ClusterIP to kube-ipvs0:"+
					" then use -capture=tcx or clsact, or serve a link-local address only")
		}
	}

	if err := c.ensureAddresses(r, true); err != nil {
		return err
	}

	// Sockets can be bound to an address before packets reach it.
	own := slices.DeleteFunc(slices.Clone(c.options.Addresses), func(ip netip.Addr) bool {
		return slices.Contains(c.found, ip)
	})
	for _, ip := range r.awaitRoutes(own, routeTimeout) {
		c.options.Log.Warn("Kernel does not deliver packets to an address yet, queries to it may be lost",
			"address", ip, "duration", routeTimeout)
	}
	return nil
}

// ensureAddresses adds the interface and the addresses, unless they exist. The caller holds the
// lock unless it is the first time.
func (c *Capture) ensureAddresses(r routes, first bool) error {
	name := c.options.Interface
	if c.onLo {
		name = "lo"
	}

	l, exists, err := r.link(name)
	if err != nil {
		return err
	}
	if !exists {
		switch err := r.addDummy(name); {
		case errors.Is(err, errNoDummy):
			c.onLo = true
			c.options.Log.Warn("The kernel has no dummy interfaces, adding the addresses to lo", "interface", name)
			return c.ensureAddresses(r, first)
		case err != nil:
			return err
		}
		if l, _, err = r.link(name); err != nil {
			return err
		}
	}
	if !l.up {
		if err := r.setUp(l.index); err != nil {
			return fmt.Errorf("enabling interface %s: %w", name, err)
		}
	}

	all, err := r.addresses()
	if err != nil {
		return err
	}
	for _, ip := range c.options.Addresses {
		present := slices.ContainsFunc(all, func(a address) bool { return a.index == l.index && a.ip == ip })
		if present || slices.Contains(c.found, ip) {
			continue
		}

		if err := r.addAddress(l.index, ip); err != nil {
			return err
		}
		if !slices.Contains(c.added, ip) {
			c.added = append(c.added, ip)
		}

		if !first {
			c.options.Log.Warn("Address was removed, added it again", "address", ip, "interface", name)
			c.options.CountSetupError(ErrorInterfaceCheck)
		}
	}
	return nil
}

// subscribe receives the kernel's messages about interfaces and addresses.
func (c *Capture) subscribe() {
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR)
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: groups})
	if err != nil {
		c.options.Log.Warn("Changes of addresses are not reported, checking at an interval",
			"interval", c.options.Interval, "error", err)
		return
	}

	c.events = conn

	c.task.Go(func(context.Context) {
		for {
			messages, err := conn.Receive()
			if err != nil && !errors.Is(err, unix.ENOBUFS) { // with ENOBUFS, messages were lost
				return
			}
			if err != nil || slices.ContainsFunc(messages, removal) {
				c.notice.Send()
			}
		}
	})
}

// removal reports whether a message may mean that an address is missing.
func removal(m netlink.Message) bool {
	switch m.Header.Type {
	case unix.RTM_DELADDR, unix.RTM_DELLINK, unix.RTM_NEWLINK:
		return true
	}
	return false
}

// run repairs addresses and rules until ctx ends.
func (c *Capture) run(ctx context.Context) {
	ticker := time.NewTicker(c.options.Interval)
	defer ticker.Stop()

	var count <-chan time.Time // nil, which never fires, without ClusterIPs
	if len(c.options.ClusterIPs) > 0 {
		counter := time.NewTicker(watchInterval)
		defer counter.Stop()
		count = counter.C
	}

	for {
		select {
		case <-ctx.Done():
			return
		case now := <-count:
			c.checkCounters(now)
			continue
		case <-c.notice:
		case <-ticker.C:
		}

		c.repair()
		if !clock.Sleep(ctx, repairDelay) {
			return
		}
	}
}

// repair repairs addresses and rules once.
func (c *Capture) repair() {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.options.SetInterface {
		r, err := openRoutes()
		if err == nil {
			err = c.ensureAddresses(r, false)
			_ = r.conn.Close()
		}
		if err != nil {
			c.options.CountSetupError(ErrorInterfaceCheck)
			c.options.Log.Error("Interface cannot be repaired, trying again",
				"interface", c.options.Interface, "interval", c.options.Interval, "error", err)
		}
	}

	c.ensureTable()
}

// Enable adds the rules, and adds them again if they are missing later. The server has to
// answer at the addresses.
func (c *Capture) Enable() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.options.SetRules {
		c.exempt(exemptAll)
	}
	c.instance.announce()
}

// exempt changes which packets the rules exempt from connection tracking. The caller holds the
// lock.
func (c *Capture) exempt(e exemption) {
	if c.wanted == e {
		c.ensureTable()
		return
	}
	c.wanted = e
	c.watched = watches(c.options)
	c.replaceTable()
}

// ensureTable adds the table if it is missing. The caller holds the lock.
func (c *Capture) ensureTable() {
	if c.wanted == exemptNone {
		return
	}
	if c.table != nil {
		if exists, err := c.table.exists(); exists {
			return
		} else if err == nil {
			c.options.Log.Warn("nftables table was removed, adding another one", "table", c.table.name)
		}
		_ = c.table.conn.Close()
		c.table = nil
	}
	c.installTable()
}

// replaceTable adds the table that is wanted, and then removes the one before. The caller holds
// the lock.
func (c *Capture) replaceTable() {
	old := c.table
	c.table = nil
	if c.wanted != exemptNone {
		c.installTable()
	}
	if old == nil {
		return
	}
	if err := old.close(); err != nil {
		c.options.Log.Warn("nftables table was not removed, the kernel does it when the process ends",
			"table", old.name, "error", err)
	}
}

// installTable adds the table. The caller holds the lock.
func (c *Capture) installTable() {
	var err error
	if c.table, err = addTable(c.options, c.wanted, c.watched); err != nil {
		c.options.CountSetupError(ErrorRules)
		if text := err.Error(); text != c.lastRule {
			c.lastRule = text
			c.options.Log.Error("Packets are not exempt from connection tracking, trying again:"+
				" queries to a ClusterIP that is on the node go to the cluster's DNS servers",
				"interval", c.options.Interval, "error", err)
		}
		return
	}

	c.lastRule = ""
	for _, w := range c.watched {
		w.restart()
	}
	if c.wanted != exemptReplies {
		c.options.Log.Info("Packets of the local addresses are exempt from connection tracking",
			"table", c.table.name)
	}
}

// Suspend captures no more queries until Enable is called: queries to a ClusterIP go to the
// cluster's DNS servers. Replies to queries that wait for the server still pass.
func (c *Capture) Suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wanted != exemptNone && len(c.options.ClusterIPs) > 0 {
		c.exempt(exemptReplies)
	}
}

// Disable captures no more queries: new queries to a ClusterIP go to the cluster's DNS servers.
// The addresses stay, for queries that are being answered. If another instance serves the
// node or is about to, its rules come first.
func (c *Capture) Disable() {
	c.instance.release(successorTimeout)
	c.Suspend()
}

// Close removes the rules and, unless they are to stay or another instance uses them, the
// addresses.
func (c *Capture) Close() {
	c.Disable()
	c.task.Cancel()
	if c.events != nil {
		_ = c.events.Close()
	}
	c.task.Wait()

	c.mu.Lock()
	c.exempt(exemptNone)
	c.mu.Unlock()
	defer c.instance.close()

	switch {
	case !c.options.SetInterface:
		return
	case c.options.KeepInterface:
		c.options.Log.Info("Left the local addresses on the node", "interface", c.options.Interface)
		return
	case c.instance.succeeded():
		c.options.Log.Info("Another instance serves this node, left it the local addresses",
			"interface", c.options.Interface)
		return
	}
	if err := removeAll(c.options, c.added); err != nil {
		c.options.Log.Error("Local addresses are left on the node: run seamark node cleanup",
			"interface", c.options.Interface, "error", err)
	}
}

// removeAll removes the interface, or only our addresses if it has others, too, and our
// addresses on lo: those in added, and the marked ones that are in the options. Without
// addresses in the options all of them are.
func removeAll(o Options, added []netip.Addr) error {
	r, err := openRoutes()
	if err != nil {
		return err
	}
	defer r.conn.Close()

	all, err := r.addresses()
	if err != nil {
		return err
	}

	dummy, exists, err := r.link(o.Interface)
	if err != nil {
		return err
	}
	exists = exists && dummy.kind == "dummy"
	lo, _, err := r.link("lo")
	if err != nil {
		return err
	}

	var errs []error
	foreign := false
	for _, a := range all {
		listed := len(o.Addresses) == 0 || slices.Contains(o.Addresses, a.ip)
		switch {
		case exists && a.index == dummy.index && (listed || a.own),
			a.index == lo.index && (listed && a.own || slices.Contains(added, a.ip)):
			errs = append(errs, r.removeAddress(a.index, a.ip))
		case exists && a.index == dummy.index && (a.ip.Is4() || !a.ip.IsLinkLocalUnicast()):
			foreign = true
		}
	}

	if exists && !foreign {
		errs = append(errs, r.removeLink(dummy.index))
	}
	return errors.Join(errs...)
}
