package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A Capture is how queries of pods reach the cache of a node.
type Capture struct {
	method string
	from   corefile.Directive
}

// NodeOnly returns the directive, which only the command node uses.
func (c *Capture) NodeOnly() corefile.Directive { return c.from }

// SetupCapture sets up the capture directive, which selects how queries of pods reach the
// cache of a node. Its reference page is docs/reference/directives/capture.md.
func SetupCapture(b *config.Block, uses []corefile.Directive) error {
	c := &Capture{from: uses[0]}
	b.Offer(c)
	return config.OneArgument(uses, 1, corefile.OneOf(&c.method, "auto", "tcx", "clsact", "address", "none"))
}
