// Package filepages removes pages of the program's file from the resident memory of the
// process. Most pages that a server touches are only used at the start: by the initialisation
// of packages, by the parser of the Corefile, by the first lists of a cluster. The commands that
// run servers call it. On systems other than Linux it does nothing.
package filepages

import (
	"context"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

const (
	// Delay is the time from the start of a process to the first release of pages. Most
	// servers are ready before.
	Delay = 3 * time.Second
	// Interval is the time between two releases.
	Interval = time.Minute
)

// ReleaseAfterStart releases pages after Delay, and once more after Interval, for a server that
// was not ready. It returns after that, or when ctx is done. Later releases would save little:
// pages that queries use return with the next query, and those that the kernel has dropped from
// its cache meanwhile are read from the disk.
func ReleaseAfterStart(ctx context.Context) {
	var pages Pages
	for _, wait := range []time.Duration{Delay, Interval} {
		if !clock.Sleep(ctx, wait) {
			return
		}
		if pages == nil {
			pages = Find()
		}
		pages.Release()
	}
}
