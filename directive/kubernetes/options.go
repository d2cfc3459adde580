package kubernetes

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/wire"
)

// nodeNameVariable is the environment variable with the name of the pod's node.
const nodeNameVariable = "NODE_NAME"

// nodeCompareInterval is the time between two comparisons with the API server on a node: a
// list of all objects' metadata for each of thousands of nodes.
const nodeCompareInterval = time.Hour

func words(s *string) func(corefile.Directive) error {
	return nonEmpty(func(e corefile.Directive) error {
		*s = strings.Join(e.Words(), " ")
		return nil
	})
}

// nonEmpty rejects empty arguments: a variable that is not set would remove the limits on
// namespaces or Services.
func nonEmpty(set func(corefile.Directive) error) func(corefile.Directive) error {
	return func(e corefile.Directive) error {
		if slices.Contains(e.Words(), "") {
			return e.Errorf(`want a value, got ""`)
		}
		return set(e)
	}
}

// parseZonal reads zonal [prefer [ZONE]].
func (o *options) parseZonal(d corefile.Directive) error {
	o.Zones = true
	if len(d.Args) == 0 {
		return nil
	}
	if d.Args[0].Text != "prefer" {
		return d.Errorf("want prefer, got %q", d.Args[0].Text)
	}
	o.preferZone, o.Hints = true, true
	if len(d.Args) > 1 {
		if o.zone = strings.ToLower(d.Args[1].Text); !index.ValidLabels(o.zone) {
			return d.Errorf("want the name of a topology zone, got %q", d.Args[1].Text)
		}
	}
	return nil
}

// checkConflicts returns an error for options that exclude each other. node reports whether
// the option node is used.
func (o *options) checkConflicts(d corefile.Directive, h *Handler, node bool) error {
	var errs []error
	exclude := func(both bool, format string, args ...any) {
		if both {
			errs = append(errs, d.Errorf(format, args...))
		}
	}

	exclude(o.snapshot != "" && o.Manifests != "", "snapshot needs an API server: it cannot stand beside manifests")
	exclude(o.ignoreEmpty && o.NoEndpoints, "ignore empty_service needs endpoints: it cannot stand beside noendpoints")
	if h.onlyServices {
		for _, other := range []struct {
			used bool
			name string
		}{
			{o.NoEndpoints, "noendpoints"}, {o.ignoreEmpty, "ignore empty_service"}, {o.Zones, "zonal"},
			{o.PodNames, "endpoint_pod_names"}, {h.verifyPTR, "ptr verified"}, {h.kubeDNS, "compatible kube-dns"},
			{h.wildcards, "wildcards"}, {len(o.multicluster) > 0, "multicluster"},
		} {
			exclude(other.used, "%s needs EndpointSlices: it cannot stand beside only services; use one of them",
				other.name)
		}
		o.NoEndpoints = true
	}

	if h.onlyServices || node {
		o.CompareInterval = nodeCompareInterval
	}

	exclude(h.verifyPTR && node, "ptr verified needs the Pods of all nodes: it cannot stand beside node")
	exclude(node && h.podMode != podsVerified && !o.preferZone,
		"node has no effect without pods verified or zonal prefer")
	exclude(o.preferZone && o.zone == "" && !node, "zonal prefer: want a ZONE, or the option node to find it by")
	return errors.Join(errs...)
}

// A forwarder sends queries to other servers.
type forwarder interface {
	// Forwards reports whether it does so for all names in a zone.
	Forwards(zone wire.Name) bool
}

// checkNext returns an error if names that only servers with all objects know would reach no
// such server.
func (h *Handler) checkNext(b *config.Block, d corefile.Directive) error {
	option := "only services"
	switch {
	case h.onlyServices && len(h.transferred) > 0:
		return d.Errorf("transfer needs EndpointSlices: it cannot stand beside only services")
	case h.onlyServices:
	case h.podMode == podsVerified && h.nodePods:
		option = "node"
	default:
		return nil
	}
	forwards := config.Find[forwarder](b)
	for _, z := range h.zones {
		if !slices.ContainsFunc(forwards, func(f forwarder) bool { return f.Forwards(z.name) }) {
			return d.Errorf("%s: names in %s that depend on other objects need a server that has them: add forward %s TO to the server block", option, z.name, z.name)
		}
	}
	return nil
}
