// Package dynupdate implements the directive dynupdate: an authoritative zone that clients change
// with UPDATE messages (RFC 2136).
//
// DynUpdate answers queries from the current version of the zone, and admits updates by the key
// that has signed them (allow.go). A message (message.go) is applied to an edit of the zone
// (edit.go) by the rules of RFC 2136 §3 (update.go). A store (store.go) writes each new version
// to its database before it is served, and outlives reloads; load.go reads the database, and the
// zone file that the zone begins with.
package dynupdate

import (
	"context"
	"errors"
	"log/slog"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/internal/zones"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// A DynUpdate serves a zone that can be updated: the dynupdate directive. Its reference page is
// docs/reference/directives/dynupdate.md.
type DynUpdate struct {
	options
	store *store // set at the start
	log   *slog.Logger
	count func(wire.RCode) *metrics.Counter
}

// AuthoritativeZones implements [dns.Authority].
func (d *DynUpdate) AuthoritativeZones() []wire.Name { return []wire.Name{d.origin} }

// Opcodes implements [dns.OpcodeHandler].
func (d *DynUpdate) Opcodes() []int { return []int{wire.OpcodeUpdate} }

// ServeDNS answers queries for names in the zone. It leaves updates to Resolve.
func (d *DynUpdate) ServeDNS(q *dns.Query) dns.Verdict {
	switch {
	case q.Opcode() == wire.OpcodeUpdate:
		return d.admit(q)
	case q.Opcode() != 0 || !wire.Within(q.Name(), d.origin):
		return dns.Next
	case q.Type.IsTransfer():
		q.Fail(wire.Refused)
		return dns.Done
	}

	return zones.Answer(q, d.store.current.Load().zone, nil, new(config.Fallthrough))
}

var (
	errSection = errors.New("the zone section of the update does not name one zone by its SOA record")
	errZone    = errors.New("the update is for another zone")
	errNoKey   = errors.New("the update is not signed with a key that directive tsig has verified")
	errKey     = errors.New("no line allow has the key of the update")
)

// admit rejects updates that need not be read.
func (d *DynUpdate) admit(q *dns.Query) dns.Verdict {
	key := signer(q)
	switch {
	case q.Type != wire.TypeSOA:
		return d.reject(q, wire.FormErr, errSection)
	case string(q.Name()) != string(d.origin):
		return d.reject(q, wire.NotAuth, errZone)
	case key == "":
		return d.reject(q, wire.Refused, errNoKey)
	case !d.hasKey(key):
		return d.reject(q, wire.Refused, errKey)
	}
	q.Timeout = updateTimeout
	return dns.Wait
}

// signer returns the name of the key that has signed a message, or "".
func signer(q *dns.Query) wire.Name {
	if q.Signature == nil {
		return ""
	}
	return q.Signature.Key
}

// reject makes the reply to an update that has changed nothing.
func (d *DynUpdate) reject(q *dns.Query, code wire.RCode, err error) dns.Verdict {
	d.count(code).Add(1)
	q.Fail(code)
	q.AA, q.Err = true, err
	d.log.Debug("dynupdate: Rejected update",
		"zone", d.origin, "client", q.Peer.Addr(), "rcode", code.String(), "error", err)
	return dns.Done
}

// Resolve applies an update, or waits for the answer to the sub-query for a CNAME target.
func (d *DynUpdate) Resolve(ctx context.Context, q *dns.Query) error {
	if q.Opcode() != wire.OpcodeUpdate {
		return q.ResumeTarget(ctx)
	}

	key := signer(q)
	serial, changed, err := d.store.update(ctx, q, &d.options, key)
	if err != nil {
		code := wire.ServFail
		if e, ok := errors.AsType[*codeError](err); ok {
			code = e.code
		}
		d.reject(q, code, err)
		return nil
	}

	d.count(wire.NoError).Add(1)
	q.AA = true
	if changed {
		d.log.Info("dynupdate: Updated zone",
			"zone", d.origin, "client", q.Peer.Addr(), "signer", key, "serial", serial)
	}
	return nil
}

// Version implements [zone.Transferable].
func (d *DynUpdate) Version(origin wire.Name) zone.Version {
	if origin != d.origin {
		return nil
	}
	return d.store.current.Load().zone
}

// Follow implements [zone.Transferable].
func (d *DynUpdate) Follow(changed func(origin wire.Name)) (stop func()) {
	stop = d.store.followers.Add(changed)
	changed(d.origin)
	return stop
}

// ExplainDNS implements [dns.Explainer].
func (d *DynUpdate) ExplainDNS(q *dns.Query, v dns.Verdict) []dns.Cause {
	if !wire.Within(q.Name(), d.origin) {
		return []dns.Cause{{Text: "the name is not in the zone of the directive"}}
	}
	texts, near := d.store.current.Load().zone.Explain(q.Name(), q.Type, corefile.Nearest)
	return dns.FallthroughCauses(v, texts, near)
}
