package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

type debugLines struct{}

// Debug makes the server log debug lines while the plan serves.
func (debugLines) Debug() {}

// SetupDebug sets up the debug directive, which turns on debug logging.
//
//	debug
//
// While a Corefile with debug is served, the server's log also has lines of
// level debug:
//
//	[DEBUG] local: Answered a name whose first label is localhost qname=localhost.lan. client=10.0.0.1:53012
//
// debug applies to the whole server: give it in one server block.
//
//	.:1053 {
//	    debug
//	    whoami
//	}
//
// Same as CoreDNS: syntax and lines. Differs: a handler that panics does not
// end the process, with or without debug. The client gets SERVFAIL,
// coredns_panics_total counts the panic, and the log has its stack.
func SetupDebug(b *config.Block, uses []corefile.Directive) error {
	b.Offer(debugLines{})
	return noArguments(uses)
}
