package objects

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/cluster"
)

// A namespace whose object changes all the time delays the changes of another one by no more than
// one turn, and works for a tenth of the time.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q turns
		begin, busy, other := time.Now(), time.Duration(0), 0
		const turn = 2 * time.Millisecond
		for time.Since(begin) < 10*time.Second {
			q.add("0noisy/x", "noisy", &cluster.ConfigMap{}, false, 0)
			if other == 0 && time.Since(begin) > 5*time.Second {
				q.add("0quiet/x", "quiet", &cluster.ConfigMap{}, false, 0)
				other = 1
			}
			c, wait := q.next(time.Now(), false)
			switch {
			case c == nil:
				time.Sleep(min(wait, 10*time.Millisecond))
				continue
			case c.namespace == "noisy":
				busy += turn
				if other == 1 {
					t.Error("the noisy namespace had another turn before the quiet one")
				}
			default:
				other = 2
			}
			now := time.Now()
			time.Sleep(turn)
			q.took(c.namespace, now, turn)
		}
		if other != 2 || busy < 500*time.Millisecond || busy > 1100*time.Millisecond {
			t.Errorf("the noisy namespace worked %v of 10s, want about 1s; the quiet one had its turn: %v", busy, other == 2)
		}
	})
}

// Objects that wait for their turns have bounded memory.
func TestTurnsMemory(t *testing.T) {
	var q turns
	text, refused := strings.Repeat("#", 1<<20), 0
	for range 2 { // a change replaces the former one
		for i := range 100 {
			o := &cluster.ConfigMap{Data: map[string]string{"hosts": text}}
			if !q.add(fmt.Sprint("0a/", i), "a", o, true, waitingLimit) {
				refused++
			}
		}
	}
	if w := q.waiting["a"]; len(w.changes) != 3 || w.bytes > waitingLimit || refused != 2*97 {
		t.Errorf("%d objects of %d bytes wait, and %d were refused; want 3 of at most %d bytes, and 194",
			len(w.changes), w.bytes, refused, waitingLimit)
	}
	for range 3 {
		q.next(time.Now(), true)
	}
	if len(q.waiting)+q.awaited != 0 {
		t.Errorf("in the end %d namespaces and %d changes wait, want none", len(q.waiting), q.awaited)
	}
}
