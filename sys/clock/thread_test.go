package clock

import (
	"runtime"
	"testing"
	"time"
)

// The time of a thread passes while it works, and not while it sleeps.
func TestThreadTime(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it is the time that has passed")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := ThreadTime()
	time.Sleep(100 * time.Millisecond)
	if slept := ThreadTime() - before; slept > 50*time.Millisecond {
		t.Errorf("a thread that slept for 100ms used %v", slept)
	}
	for before = ThreadTime(); ThreadTime()-before < 5*time.Millisecond; {
	}
}
