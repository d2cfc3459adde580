package transfer

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Slow clients at many addresses keep no named server from a transfer, and leave no slot taken.
func TestStrangersLeaveTransfersToKnownServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transfer := newTransfer()
		ctx, cancel := context.WithCancel(t.Context())
		var running atomic.Int32
		for i := range 100 {
			go func() {
				leave, err := transfer.enter(ctx, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), false)
				if err != nil {
					return
				}
				running.Add(1)
				<-ctx.Done()
				leave()
			}()
		}
		synctest.Wait()
		if n := running.Load(); n != maxRunningStrangers {
			t.Errorf("got %d transfers of 100 strangers, want %d", n, maxRunningStrangers)
		}

		for i := range maxRunning - maxRunningStrangers {
			at := netip.AddrFrom4([4]byte{10, 0, 0, byte(i / maxRunningPerClient)})
			leave, err := transfer.enter(ctx, at, true)
			if err != nil {
				t.Fatalf("known server %s: got %v beside the transfers of %d strangers, want a transfer", at, err, maxRunningStrangers)
			}
			defer leave()
		}

		cancel()
		synctest.Wait()
		if n := transfer.strange.Used(); n != 0 {
			t.Errorf("after the transfers and waits have ended: got %d held slots, want none", n)
		}
		if n := transfer.running.Used(); n != maxRunning-maxRunningStrangers {
			t.Errorf("after the strangers' transfers have ended: got %d held slots, want %d", n, maxRunning-maxRunningStrangers)
		}
	})
}
