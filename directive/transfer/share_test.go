package transfer

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Slow clients at many addresses, without a key and with one, keep no server from a transfer of which more
// is known, and leave no slot taken.
func TestStrangersLeaveTransfersToKnownServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transfer := newTransfer()
		ctx, cancel := context.WithCancel(t.Context())
		strangers := crowd(ctx, 2, transfer, false)
		if n := strangers.Load(); n != maxRunningStrangers {
			t.Errorf("got %d transfers of 100 strangers, want %d", n, maxRunningStrangers)
		}
		signed := crowd(ctx, 3, transfer, true)
		if n := signed.Load(); n != maxRunningUnnamed-maxRunningStrangers {
			t.Errorf("got %d transfers of 100 clients with a key beside the strangers, want %d", n, maxRunningUnnamed-maxRunningStrangers)
		}

		for i := range maxRunning - maxRunningUnnamed {
			at := netip.AddrFrom4([4]byte{10, 0, 0, byte(i / maxRunningPerClient)})
			leave, err := transfer.enter(ctx, at, true, i%2 == 0)
			if err != nil {
				t.Fatalf("named server %s: got %v beside the transfers of others, want a transfer", at, err)
			}
			defer leave()
		}

		cancel()
		synctest.Wait()
		if n := transfer.strange.Used() + transfer.unnamed.Used(); n != 0 {
			t.Errorf("after the transfers and waits have ended: got %d held slots, want none", n)
		}
		if n := transfer.running.Used(); n != maxRunning-maxRunningUnnamed {
			t.Errorf("after the others' transfers have ended: got %d held slots, want %d", n, maxRunning-maxRunningUnnamed)
		}
	})
}

// crowd begins transfers of a hundred clients that last until ctx ends, and returns how many have a slot.
func crowd(ctx context.Context, net byte, transfer *Transfer, signed bool) *atomic.Int32 {
	running := new(atomic.Int32)
	for i := range 100 {
		go func() {
			leave, err := transfer.enter(ctx, netip.AddrFrom4([4]byte{192, 0, net, byte(i)}), false, signed)
			if err != nil {
				return
			}
			running.Add(1)
			<-ctx.Done()
			leave()
		}()
	}
	synctest.Wait()
	return running
}
