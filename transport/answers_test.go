package transport

import (
	"testing"
	"testing/synctest"
)

// As many goroutines as there is memory for write answers at the same time, the others wait, and memory is used again.
func TestAnswerPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		p, made := newAnswerPool(n, nil), map[*answerMemory]bool{}
		taken, put := make(chan *answerMemory, 10*n), make(chan struct{})
		for range 10 * n {
			go func() {
				m := p.take()
				taken <- m
				<-put
				p.put(m)
			}()
		}
		for ended := range 10 * n {
			synctest.Wait()
			if got, want := len(taken), min(n, 10*n-ended); got != want {
				t.Errorf("%d have ended: %d have memory, want %d", ended, got, want)
			}
			made[<-taken] = true
			put <- struct{}{}
		}
		if len(made) != n {
			t.Errorf("got %d memories, want %d", len(made), n)
		}
	})
}
