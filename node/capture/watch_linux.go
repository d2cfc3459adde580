package capture

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// watchInterval is the time between two readings of the counters.
	watchInterval = 250 * time.Millisecond
	// silence is how long no packet may pass the node's rules while others enter them.
	silence = time.Second
	// suspicious is the number of packets that have to enter meanwhile. One of them may
	// have been dropped for another reason.
	suspicious = 2
	// defaultPause and maxPause bound the time between two tests, which doubles each time.
	defaultPause, maxPause = 5 * time.Second, 5 * time.Minute
	// testRate is the time in which a table of the state probing exempts one query.
	testRate = 24 * time.Hour
)

// A state says which queries of pods to a ClusterIP the table exempts from connection tracking.
type state int

const (
	exempting state = iota // all
	pausing                // none: they follow kube-proxy's rules
	probing                // one
)

// The names of the counters of a ClusterIP, which its address follows: UDP packets to and from it
// that do not pass lo, before and after the rules that may drop them.
const (
	queriesSent     = "queries-sent-"
	queriesReceived = "queries-received-"
	repliesSent     = "replies-sent-"
	repliesReceived = "replies-received-"
)

// counters are the values of the counters by their names.
type counters map[string]uint64

// A passage observes how many packets enter rules and how many pass them.
type passage struct {
	entered, passed uint64
	first           uint64    // value of entered before the first packet after which none has passed
	since           time.Time // when that was noticed; zero if all is well
}

// observe records the numbers. It returns the number of packets that have entered while none has
// passed, and for how long.
func (p *passage) observe(entered, passed uint64, now time.Time) (lost uint64, duration time.Duration) {
	switch {
	case passed != p.passed:
		p.since = time.Time{}
	case entered != p.entered && p.since.IsZero():
		p.first, p.since = p.entered, now
	}
	p.entered, p.passed = entered, passed
	if p.since.IsZero() {
		return 0, 0
	}
	return entered - p.first, now.Sub(p.since)
}

// A watch decides from the counters of a ClusterIP which state is next.
type watch struct {
	address          string
	state            state
	pause            time.Duration // the length of the last one
	minPause         time.Duration // the length of the first one
	changed          time.Time     // when the state began
	tested           time.Time     // when the query of a test was noticed
	queries, replies passage
}

func watches(o Options) map[netip.Addr]*watch {
	all := map[netip.Addr]*watch{}
	for _, ip := range o.ClusterIPs {
		all[ip] = &watch{address: ip.String(), minPause: cmp.Or(o.Pause, defaultPause)}
	}
	return all
}

// next returns the next state.
func (w *watch) next(n counters, now time.Time) state {
	sent, received := n[queriesSent+w.address], n[queriesReceived+w.address]
	answers, arrived := n[repliesSent+w.address], n[repliesReceived+w.address]
	queries, silentIn := w.queries.observe(sent, received, now)
	replies, silentOut := w.replies.observe(answers, arrived, now)

	switch w.state {
	case exempting:
		// In either direction: a rule of the node may drop queries, or replies.
		if queries >= suspicious && silentIn >= silence || replies >= suspicious && silentOut >= silence {
			return pausing
		}
	case pausing:
		if now.Sub(w.changed) >= w.pause {
			return probing
		}
	case probing:
		switch {
		case sent == 0:
		case w.tested.IsZero():
			w.tested = now
		case now.Sub(w.tested) < silence:
		case received == 0 || answers > 0 && arrived == 0:
			return pausing
		default: // the server may need longer for its reply
			return exempting
		}
	}
	return w.state
}

// enter begins a state.
func (w *watch) enter(s state, now time.Time) {
	w.state, w.changed = s, now
	switch s {
	case pausing:
		w.pause = min(max(2*w.pause, w.minPause), maxPause)
	case exempting:
		w.pause = 0
	}
}

// restart continues with counters that are zero.
func (w *watch) restart() { w.queries, w.replies, w.tested = passage{}, passage{}, time.Time{} }

// checkCounters reads the counters, and replaces the table if a state changes: if rules of the node
// drop the packets of pods, queries to a ClusterIP go to the cluster's DNS servers.
func (c *Capture) checkCounters(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.table == nil || !c.table.counts {
		return
	}
	n, err := c.table.counters()
	if err != nil {
		return // repair notices that the table is gone
	}

	changed := false
	for ip, w := range c.watched {
		before, after := w.state, w.next(n, now)
		if before == after {
			continue
		}
		changed = true
		w.enter(after, now)

		switch {
		case before == exempting:
			c.options.CountSetupError(ErrorRules)
			c.options.Log.Warn("Rules of the node drop packets of pods, which have to accept port 53 of the ClusterIP:"+
				" its queries go to the cluster's DNS servers meanwhile", "address", ip)
		case after == exempting:
			c.options.Log.Info("Packets of pods pass the rules of the node again", "address", ip)
		}
	}

	if changed {
		c.replaceTable()
	}
}

// objectCounter is NFT_OBJECT_COUNTER.
const objectCounter = 1

// counter adds a counter.
func (t *table) counter(name string) netlink.Message {
	return t.message(unix.NFT_MSG_NEWOBJ, netlink.Create, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_OBJ_TABLE, t.name)
		e.String(unix.NFTA_OBJ_NAME, name)
		e.Uint32(unix.NFTA_OBJ_TYPE, objectCounter)
		e.Nested(unix.NFTA_OBJ_DATA, func(*netlink.AttributeEncoder) error { return nil })
	})
}

// counters reads the counters.
func (t *table) counters() (counters, error) {
	m := t.message(unix.NFT_MSG_GETOBJ, netlink.Dump, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_OBJ_TABLE, t.name)
		e.Uint32(unix.NFTA_OBJ_TYPE, objectCounter)
	})
	m.Header.Flags &^= netlink.Acknowledge
	_ = t.conn.SetDeadline(time.Now().Add(replyTimeout))
	replies, err := t.conn.Execute(m)
	if err != nil {
		return nil, fmt.Errorf("reading the counters of the nftables table %s: %w", t.name, err)
	}

	n := counters{}
	for _, r := range replies {
		if len(r.Data) < nfgenmsgSize {
			return nil, errors.New("reading counters of nftables: short message")
		}
		d, err := netlink.NewAttributeDecoder(r.Data[nfgenmsgSize:])
		if err != nil {
			return nil, err
		}
		d.ByteOrder = binary.BigEndian

		var name string
		var packets uint64
		for d.Next() {
			switch d.Type() {
			case unix.NFTA_OBJ_NAME:
				name = d.String()
			case unix.NFTA_OBJ_DATA:
				d.Nested(func(data *netlink.AttributeDecoder) error {
					for data.Next() {
						if data.Type() == unix.NFTA_COUNTER_PACKETS {
							packets = data.Uint64()
						}
					}
					return nil
				})
			}
		}

		if err := d.Err(); err != nil {
			return nil, err
		}
		n[name] = packets
	}
	return n, nil
}

// nfgenmsgSize is the size of the header of a message of netfilter.
const nfgenmsgSize = 4
