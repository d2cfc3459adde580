// Package orphans ends the processes that a test binary has started and left behind. A binary that is killed, or that
// panics at its time limit, runs no cleanup of a test: its servers would keep their ports and locks for hours.
// Only tests import it.
package orphans

import (
	"os"
	"runtime"
	"testing"
)

// variable has a value that only the processes of one test binary have in their environment, those that its
// processes start, too.
const variable = "SEAMARK_TEST_BINARY"

// Main runs the tests of a binary. TestMain of each package whose tests start processes calls it.
func Main(m *testing.M) {
	input := guard()
	code := m.Run()
	runtime.KeepAlive(input)
	os.Exit(code)
}
