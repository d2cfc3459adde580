package kubernetes

import (
	"testing"
	"unsafe"

	"github.com/seamark/seamark/cluster"
)

// What a cluster has thousands of does not grow for directives that it does not
// use: these are the allocator's sizes.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(entry{}); n > 96 {
		t.Errorf("an entry has %d bytes", n)
	}
	if n := unsafe.Sizeof(part{}); n > 40 {
		t.Errorf("a part has %d bytes", n)
	}
	if n := unsafe.Sizeof(cluster.Pod{}); n > 80 {
		t.Errorf("a Pod has %d bytes", n)
	}
}
