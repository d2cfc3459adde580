package directive

import (
	"errors"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
)

// Metadata passes values about a query between directives: the
// metadata directive.
//
//	metadata [ZONES...]
//
// Each value has a key of the form PLUGIN/NAME: kubernetes/namespace is the
// namespace of the Service or pod that the query is about. Give metadata so
// that queries for names in ZONES have values; the default is the server block's
// zones. Without the directive every value is empty.
//
// These directives provide values:
//
//	forward     forward/upstream
//	geoip       geoip/country/code and others: see its page
//	kubernetes  kubernetes/namespace, kubernetes/service and others: see its page
//	trace       trace/traceid
//	view        view/name
//
// These directives can use them:
//
//	log       {/kubernetes/namespace} in its format
//	rewrite   {kubernetes/namespace} in the value of an EDNS option
//	template  {{ .Meta "kubernetes/namespace" }}
//	view      metadata('kubernetes/namespace') in its expression
//
// The value of an unknown key is an empty string, "-" in a log line. A value is
// computed only when a directive uses it.
//
// This log shows the namespace of each query:
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

// SetupMetadata sets up the metadata directive.
func SetupMetadata(b *config.Block, uses []corefile.Directive) error {
	zones, err := b.ZonesOr(uses[0])
	m := &Metadata{config.Fallthrough{On: true, Zones: zones}}
	b.Offer(m)
	return errors.Join(config.Once(uses), err, uses[0].Options())
}
