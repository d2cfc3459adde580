package directive

import (
	"errors"
	"runtime"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A Handover is the path of the socket at which another process may replace this one.
type Handover struct {
	path   string
	remain bool
	from   corefile.Directive
}

// Handover returns the path, whether the process remains after a hand-over, and the
// directive.
func (h *Handover) Handover() (path string, remain bool, from corefile.Directive) {
	return h.path, h.remain, h.from
}

// SetupHandover sets up the handover directive, which lets a new process replace a running one
// without losing a query. Its reference page is docs/reference/directives/handover.md.
func SetupHandover(b *config.Block, uses []corefile.Directive) error {
	d := uses[0]
	h := &Handover{from: d}
	b.Offer(h)
	return errors.Join(config.Once(uses), d.Arity(1, 1),
		d.Options(corefile.Option{Usage: "remain", Set: corefile.Flag(&h.remain)}), h.setPath(b))
}

func (h *Handover) setPath(b *config.Block) error {
	const maxPath = 107 // sun_path of unix(7)
	d := h.from
	if len(d.Args) == 0 {
		return nil // reported by Arity
	}
	h.path = b.Path(d.Args[0].Text)
	switch {
	case d.Args[0].Text == "":
		return d.Errorf("want the path of a socket")
	case len(h.path) > maxPath:
		return d.Errorf("want a path of at most %d bytes, got %d: %s", maxPath, len(h.path), h.path)
	case runtime.GOOS != "linux":
		return d.Errorf("handover needs Linux")
	}
	return nil
}
