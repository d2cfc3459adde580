package watch

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/seamark/seamark/sys/clock"
)

// Lock locks the file path.lock, which it creates, against other processes. It blocks until it has
// the lock or ctx ends. The lock is released by unlock, or by the end of the process.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|nonBlocking|NoFollow, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		held, err := tryLock(f)
		switch {
		case err != nil:
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		case held:
			return func() { _ = f.Close() }, nil
		}
		if !clock.Sleep(ctx, 10*time.Millisecond) {
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: another process holds the lock: %w", f.Name(), ctx.Err())
		}
	}
}
