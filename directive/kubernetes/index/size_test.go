package index

import (
	"testing"
	"unsafe"

	"github.com/seamark/seamark/cluster"
)

// Types with thousands of values do not grow for directives that are not
// used. The limits are sizes of the allocator.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(Entry{}); n > 96 {
		t.Errorf("size of an entry: got %d bytes, want at most 96", n)
	}
	if n := unsafe.Sizeof(Part{}); n > 40 {
		t.Errorf("size of a part: got %d bytes, want at most 40", n)
	}
	if n := unsafe.Sizeof(cluster.Pod{}); n > 80 {
		t.Errorf("size of a Pod: got %d bytes, want at most 80", n)
	}
}
