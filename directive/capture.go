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

// SetupCapture sets up the capture directive, which selects how queries of pods reach
// the cache of a node.
//
//	capture auto|tcx|clsact|address|none
//
// Only seamark node uses it; serve and other commands refuse it. It is the same as node's
// flag -capture, whose values docs/reference/node.md describes. If you give both, they must
// be equal.
//
// capture applies to the whole server: give it in one server block, or the same value in
// each. The process reads it once, when it starts. After a change the old value stays in
// use, and a warning is logged: start a new pod to apply it.
//
//	.:1053 {
//	    capture address
//	    whoami
//	}
//
// Ours: node-cache has the flags setupinterface and setupiptables.
func SetupCapture(b *config.Block, uses []corefile.Directive) error {
	c := &Capture{from: uses[0]}
	b.Offer(c)
	return oneArgument(uses, 1, corefile.OneOf(&c.method, "auto", "tcx", "clsact", "address", "none"))
}
