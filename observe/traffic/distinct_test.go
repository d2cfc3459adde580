package traffic

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// The error of an estimate is 1.6 % in the mean of the squares, and seldom more than three
// times that, for few and for many keys, of one sketch and of two together.
func TestSketchError(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 2, 10, 100, 1000, 3000, 10_000, 30_000, 200_000} {
		const rounds = 20
		squares, worst := 0.0, 0.0
		for range rounds {
			var one, two sketch
			for i := range n {
				hash := random.Uint64()
				if i%3 < 2 {
					one.add(hash)
					one.add(hash)
				}
				if i%3 > 0 { // a third of the keys is in both
					two.add(hash)
				}
			}
			e := (count(&one, &two) - float64(n)) / max(1, float64(n))
			squares, worst = squares+e*e, max(worst, math.Abs(e))
		}
		if rms := math.Sqrt(squares / rounds); rms > 0.024 || worst > 0.055 {
			t.Errorf("%d keys: got a standard error of %.4f and %.4f at worst of %d rounds, want at most 0.024 and 0.055", n, rms, worst, rounds)
		}
	}
}

// The numbers of clients and names cover the last five to ten minutes.
func TestDistinct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		use := func(first, n int) {
			add(r, "x.example.", "NOERROR") // begins the window
			for i := range n {
				var address [4]byte
				binary.BigEndian.PutUint32(address[:], uint32(10<<24+first+i))
				r.Count(netip.AddrFrom4(address), binary.BigEndian.AppendUint64(nil, uint64(first+i/10)))
			}
		}
		check := func(wantClients, wantNames float64) {
			t.Helper()
			clients, names := r.Distinct(time.Now()) // within five standard errors: the seed of the hash is random
			if math.Abs(clients-wantClients) > 0.08*wantClients || math.Abs(names-wantNames) > 0.08*wantNames {
				t.Errorf("after %v: got %v clients and %v names, want %v and %v", time.Since(r.history.start), clients, names, wantClients, wantNames)
			}
		}
		check(0, 0)
		use(0, 2000)
		use(0, 2000)
		check(2000, 200)
		time.Sleep(6 * time.Minute)
		use(10_000, 1000)
		check(3000, 300)
		time.Sleep(5 * time.Minute)
		check(1000, 100)
		time.Sleep(5 * time.Minute)
		check(0, 0)
	})
}
