package cluster

import (
	"sync/atomic"
	"time"
)

// heard is when a source last knew a kind to be true: a list, an event or a
// bookmark of its watch.
type heard struct{ at atomic.Int64 }

func (h *heard) now() { h.at.Store(time.Now().UnixNano()) }
