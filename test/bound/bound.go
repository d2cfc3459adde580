// Package bound checks durations, rates and shares that tests measure. They depend on the
// speed of the machine and on what else runs there, so that a test of correctness must not
// fail because of them: make soak checks them, on a machine without other work, and every
// other run logs them.
package bound

import (
	"os"
	"testing"
	"time"
)

// Checked is the environment variable with which bounds are checked.
const Checked = "SEAMARK_BOUNDS"

// AtMost checks that what took at most limit.
func AtMost(t testing.TB, what string, took, limit time.Duration) {
	t.Helper()
	Holds(t, took <= limit, "%s took %v, want at most %v", what, took, limit)
}

// Holds checks a bound, which format describes with the measured value and the limit.
func Holds(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv(Checked) != "":
		t.Errorf(format, args...)
	default:
		t.Logf("not checked: "+format, args...)
	}
}

// Only skips a test that does nothing but compare durations, unless bounds are checked.
func Only(t testing.TB) {
	t.Helper()
	if os.Getenv(Checked) == "" {
		t.Skip("make bounds runs it: it compares processor times")
	}
}
