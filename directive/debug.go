package directive

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

type debugLines struct{}

// Debug makes the server log debug lines while the plan serves.
func (debugLines) Debug() {}

// SetupDebug sets up the debug directive, which turns on debug logging. Its reference page is
// docs/reference/directives/debug.md.
func SetupDebug(b *config.Block, uses []corefile.Directive) error {
	b.Offer(debugLines{})
	return config.NoArguments(uses)
}
