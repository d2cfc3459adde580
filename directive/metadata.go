package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// A Metadata lets directives tell each other what they know of a query: the
// metadata directive.
//
//	metadata [ZONES...]
//
// What is known has names of its own, PLUGIN/NAME: the namespace that a query is
// about is kubernetes/namespace. Without this directive nothing is known. With
// it, the queries for ZONES, and for everything below them, have metadata;
// without ZONES, those for the server block's zones.
//
// These know something:
//
//	forward     forward/upstream
//	kubernetes  kubernetes/namespace, kubernetes/service and others: see there
//	view        view/name
//
// And these ask:
//
//	log       {/kubernetes/namespace} in its format
//	rewrite   {kubernetes/namespace} where it makes an EDNS option
//	template  {{ .Meta "kubernetes/namespace" }}
//	view      metadata('kubernetes/namespace') in its expression
//
// What is not known of a query is an empty string, in a log line "-". Nothing is
// found out that nobody asks for.
//
// A log that tells namespaces apart:
//
//	cluster.local:1053 {
//	    metadata
//	    log . "{name} {/kubernetes/namespace} {rcode}"
//	    whoami
//	}
//
// Same as CoreDNS.
type Metadata struct {
	zones config.Fallthrough
}

// HasMetadata reports whether queries for name, in wire form and lower case, have
// metadata.
func (m *Metadata) HasMetadata(name []byte) bool { return m.zones.Through(name) }

// SetupMetadata is the Setup of metadata.
func SetupMetadata(b *config.Block, uses []corefile.Directive) error {
	zones, err := b.ZonesOr(uses[0])
	m := &Metadata{config.Fallthrough{On: true, Zones: zones}}
	b.Offer(m)
	return errors.Join(config.Once(uses), err, uses[0].Options())
}
