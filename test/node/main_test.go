package node

import (
	"flag"
	"testing"

	"github.com/seamark/seamark/test/program"
)

// TestMain makes the test binary the program, too. More tests than processors run at once: they
// wait for other processes most of the time, and each has namespaces of its own.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // the flag -parallel takes precedence
	program.Main(m)
}
