package cluster

import (
	"context"
	"sync/atomic"
	"time"
)

// An Origin is metadata of an object that no answer needs. Slim objects do not have it: it
// is read again when an answer is explained.
type Origin struct {
	ResourceVersion string    // "" if the object has none, as in most manifests
	UID             string    // "" if the object has none
	Created         time.Time // zero if the object does not have it
	File            string    // FILE:LINE of an object in a folder
}

// ReadOrigin reads the metadata of an object that a source has delivered, from that source.
// It blocks until ctx ends at most. It may be called from several goroutines. With an error
// the Origin may have a File.
type ReadOrigin func(ctx context.Context, kind Kind, key Key) (Origin, error)

// A Traced is a Traceable, for a Sink to embed.
type Traced struct{ read atomic.Pointer[ReadOrigin] }

// SetOrigins implements Traceable.
func (t *Traced) SetOrigins(read ReadOrigin) { t.read.Store(&read) }

// Origins returns the function that SetOrigins was called with; nil before.
func (t *Traced) Origins() ReadOrigin {
	if read := t.read.Load(); read != nil {
		return *read
	}
	return nil
}
