package cluster

import (
	"context"
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
