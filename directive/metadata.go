package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// Metadata passes values about a query between directives: the metadata directive. Its
// reference page is docs/reference/directives/metadata.md.
type Metadata struct {
	zones config.Fallthrough
}

// HasMetadata reports whether queries for name, in wire form and lower case, have
// metadata.
func (m *Metadata) HasMetadata(name []byte) bool { return m.zones.Through(name) }

// SetupMetadata sets up the metadata directive.
func SetupMetadata(b *config.Block, uses []corefile.Directive) error {
	zones, err := b.ZonesOr(uses[0])
	m := &Metadata{config.Fallthrough{On: true, Zones: zones}}
	b.Offer(m)
	return errors.Join(config.Once(uses), err, uses[0].Options())
}
