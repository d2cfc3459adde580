package cluster

import (
	"sync/atomic"
	"time"
)

// heard is when a source last knew a kind to be true: a list, an event or a
// bookmark of its watch.
type heard struct{ at atomic.Int64 }

func (h *heard) now()            { h.set(time.Now()) }
func (h *heard) set(t time.Time) { h.at.Store(t.UnixNano()) }

// age is in seconds.
func (h *heard) age() float64 { return time.Since(time.Unix(0, h.at.Load())).Seconds() }
