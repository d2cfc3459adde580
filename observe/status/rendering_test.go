package status

import (
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/metrics"
)

// A slowWriter blocks in Write until a write deadline passes.
type slowWriter struct {
	*httptest.ResponseRecorder
	once    sync.Once
	expired chan struct{}
}

func newSlowWriter() *slowWriter {
	return &slowWriter{ResponseRecorder: httptest.NewRecorder(), expired: make(chan struct{})}
}

func (s *slowWriter) SetWriteDeadline(t time.Time) error {
	if t.Before(time.Now()) {
		s.once.Do(func() { close(s.expired) })
	}
	return nil
}

func (s *slowWriter) Write([]byte) (int, error) {
	<-s.expired
	return 0, os.ErrDeadlineExceeded
}

// Clients that wait for the page at the same time share one rendering, which was begun after
// they asked.
func TestMetricsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(metrics.Registry)
		rendering, proceed, renderings := make(chan struct{}, 1), make(chan struct{}), 0
		r.Gauge("renderings", "Renderings.", func() float64 {
			rendering <- struct{}{}
			<-proceed
			<-rendering
			renderings++
			return float64(renderings)
		})
		page := Metrics(r)
		var readers sync.WaitGroup
		read := func(want string) {
			readers.Go(func() {
				w := httptest.NewRecorder()
				page.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("got\n%.300s\nwant %q", w.Body, want)
				}
			})
			synctest.Wait()
		}
		read("\nrenderings 1\n")
		for range 50 {
			read("\nrenderings 2\n")
		}
		if len(rendering) != 1 {
			t.Errorf("got %d renderings at the same time, want 1", len(rendering))
		}
		close(proceed)
		readers.Wait()
		if renderings != 2 {
			t.Errorf("got %d renderings for 51 readers, want 2", renderings)
		}
	})
}

// Readers that do not read keep a bounded number of renderings in memory, and keep no other from
// the page.
func TestMetricsSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := newRenderer(new(metrics.Registry))
		handler := metricsPage(pages)
		ended := make(chan int, 100)
		// A reader that is disconnected releases its rendering a moment later.
		renderings := func() int {
			synctest.Wait()
			pages.mu.Lock()
			defer pages.mu.Unlock()
			return len(pages.kept) + len(pages.next)
		}

		for i := range 20 {
			go func() {
				handler.ServeHTTP(newSlowWriter(), httptest.NewRequest("GET", "/metrics", nil))
				ended <- i
			}()
			time.Sleep(time.Second)
			if n := renderings(); n > maxRenderings {
				t.Errorf("after %d slow readers: got %d renderings in memory, want at most %d", i+1, n, maxRenderings)
			}
		}
		if len(ended) != 20-maxRenderings {
			t.Errorf("got %d of 20 slow readers disconnected, want %d", len(ended), 20-maxRenderings)
		}
		for want := range 20 - maxRenderings {
			if got := <-ended; got != want {
				t.Errorf("got reader %d disconnected, want %d: the oldest", got, want)
			}
		}
		for range maxRenderings {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
			if w.Code != 200 {
				t.Errorf("reader beside %d slow ones: got %d, want 200", maxRenderings, w.Code)
			}
			if n := renderings(); n > maxRenderings {
				t.Errorf("got %d renderings in memory, want at most %d", n, maxRenderings)
			}
		}

		pages.mu.Lock()
		for _, p := range pages.kept {
			p.expire()
		}
		pages.mu.Unlock()
		if n := renderings(); n != 0 {
			t.Errorf("without readers: got %d renderings, want none", n)
		}
	})
}

// Renderings leave half of a processor, and begin at most ten times a second.
func TestMetricsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(metrics.Registry)
		took := time.Millisecond
		r.Gauge("slow", "Slow.", func() float64 { time.Sleep(took); return 1 })
		pages := newRenderer(r)
		for _, c := range []struct{ took, want time.Duration }{
			{time.Millisecond, 9*renderPause + time.Millisecond},
			{time.Second, 9*2*time.Second + time.Second},
		} {
			took = c.took
			time.Sleep(time.Minute)
			begin := time.Now()
			for range 10 {
				pages.release(pages.get(form{}))
			}
			if got := time.Since(begin); got != c.want {
				t.Errorf("ten renderings of %v: got %v, want %v", c.took, got, c.want)
			}
		}
	})
}
