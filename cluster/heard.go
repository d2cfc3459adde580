package cluster

import (
	"sync/atomic"
	"time"
)

// heard is the time at which a source last received something about a kind: a
// list, an event or a bookmark.
type heard struct{ at atomic.Int64 }

func (h *heard) now()                 { h.set(time.Now()) }
func (h *heard) set(t time.Time)      { h.at.Store(t.UnixNano()) }
func (h *heard) since() time.Duration { return time.Since(time.Unix(0, h.at.Load())) }

// age returns the same in seconds.
func (h *heard) age() float64 { return h.since().Seconds() }
