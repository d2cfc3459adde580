package status

import (
	"bytes"
	"compress/gzip"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seamark/seamark/metrics"
)

const (
	// maxRenderings bounds the renderings that clients are reading. A client that is slower than
	// as many others are made is disconnected.
	maxRenderings = 4
	// renderPause is the least time between two renderings. They take at most half of a
	// processor, so that scrapers without a break do not delay queries.
	renderPause = 100 * time.Millisecond
)

// A renderer renders the page of a registry, for all readers that wait for it at once.
type renderer struct {
	registry *metrics.Registry
	one      chan struct{} // holds an element while a page is rendered
	after    time.Time     // of the next rendering; guarded by one

	mu    sync.Mutex
	next  map[form]*rendering // not begun
	kept  []*rendering        // with readers, the oldest first
	sizes map[form]int        // of the last renderings
}

// A form is a format and an encoding of the page.
type form struct{ open, gzip bool }

// A rendering is the page at one moment.
type rendering struct {
	done    chan struct{} // closed when text is complete
	text    []byte
	readers int
	ctx     context.Context // ends when the readers must release the memory
	expire  context.CancelFunc
}

func newRenderer(r *metrics.Registry) *renderer {
	return &renderer{
		registry: r, one: make(chan struct{}, 1), next: map[form]*rendering{}, sizes: map[form]int{},
	}
}

// get returns a rendering that was begun after the call. The caller must call release.
func (r *renderer) get(f form) *rendering {
	r.mu.Lock()
	p, shared := r.next[f]
	if !shared {
		p = &rendering{done: make(chan struct{})}
		p.ctx, p.expire = context.WithCancel(context.Background())
		r.next[f] = p
	}
	p.readers++
	r.mu.Unlock()

	if shared {
		<-p.done
	} else {
		r.render(f, p)
	}
	return p
}

// render renders a page when those before are complete.
func (r *renderer) render(f form, p *rendering) {
	r.one <- struct{}{}
	defer func() { <-r.one }()
	time.Sleep(time.Until(r.after))

	r.mu.Lock()
	delete(r.next, f)
	if r.kept = append(r.kept, p); len(r.kept) > maxRenderings {
		r.kept[0].expire()
	}
	size := r.sizes[f]
	r.mu.Unlock()

	defer close(p.done)
	begin := time.Now()
	p.text = f.render(r.registry, size+size/8)
	took := time.Since(begin)
	r.after = begin.Add(max(renderPause, 2*took))

	r.mu.Lock()
	r.sizes[f] = len(p.text)
	r.mu.Unlock()
}

// render returns the page of a registry, which has about a size.
func (f form) render(r *metrics.Registry, size int) []byte {
	text := bytes.NewBuffer(make([]byte, 0, size))
	write := r.WriteText
	if f.open {
		write = r.WriteOpenMetrics
	}

	// A buffer cannot fail.
	if f.gzip {
		compressor := gzip.NewWriter(text)
		_ = write(compressor)
		_ = compressor.Close()
		return text.Bytes()
	}
	_ = write(text)
	return text.Bytes()
}

// release ends the reading of a rendering.
func (r *renderer) release(p *rendering) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.readers--; p.readers == 0 {
		p.expire()
		r.kept = slices.DeleteFunc(r.kept, func(other *rendering) bool { return other == p })
	}
}
