package config

import (
	"time"

	"github.com/seamark/seamark/wire"
)

// A CachedAnswer is an answer that a cache keeps.
type CachedAnswer struct {
	Name    wire.Name
	Type    wire.Type
	RCode   wire.RCode
	Records int           // in all sections
	Size    int           // in bytes of memory
	Age     time.Duration // since it was stored
	Left    time.Duration // until it expires; negative if it has expired and may be served stale
}
