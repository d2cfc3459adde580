package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

type debugLines struct{}

// Debug makes the server log debug lines while the plan serves.
func (debugLines) Debug() {}

// SetupDebug shows what is otherwise not worth a line: the debug directive.
//
//	debug
//
// The server's log has lines of level debug, too, for as long as a Corefile with
// the directive is served:
//
//	[DEBUG] local: a name that begins with localhost name=localhost.lan. client=10.0.0.1:53012
//
// It is for the whole server: one server block is enough.
//
//	.:1053 {
//	    debug
//	    whoami
//	}
//
// Same as CoreDNS: syntax and lines. Differs: a handler that panics is not the end
// of the process. Its client gets SERVFAIL, coredns_panics_total counts it and
// the log has its stack, with the directive as without it.
func SetupDebug(b *config.Block, uses []corefile.Directive) error {
	b.Offer(debugLines{})
	return errors.Join(config.Once(uses), uses[0].Arity(0, 0), uses[0].Options())
}
