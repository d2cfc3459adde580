//go:build linux

package watch

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

// A lock is held by one at a time.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	unlock, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Lock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second one: got %v, want a timeout", err)
	}
	unlock()
	if unlock, err = Lock(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	unlock()
}
