package gateway

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/seamark/seamark/wire"
)

// A host is a host name of the Gateway API: a name, or with wild all names below it.
type host struct {
	name wire.Name // in lower case, without "*."
	wild bool
}

// anyHost is the host of a listener or a Route without a hostname: every name.
var anyHost = host{}

// wildcard is the first label of the names of wildcards.
const wildcard = "\x01*"

var errHost = errors.New("want a host name, or *. and a host name")

// parseHost parses a hostname of an object.
func parseHost(text string) (host, error) {
	name, wild := strings.CutPrefix(text, "*.")
	if _, err := netip.ParseAddr(name); err == nil || strings.ContainsAny(name, `*\`) {
		return host{}, errHost
	}
	n, err := wire.ParseName(name)
	if err != nil || n == wire.Root {
		return host{}, errHost
	}
	if wild && len(n)+len(wildcard) > wire.MaxName {
		return host{}, errHost
	}
	return host{n, wild}, nil
}

// owner returns the owner name of the host's records in a zone.
func (h host) owner() wire.Name {
	if h.wild {
		return wildcard + h.name
	}
	return h.name
}

func (h host) String() string { return h.owner().String() }

// covers reports whether a name is below the host, which is a wildcard.
func (h host) covers(name wire.Name) bool { return name != h.name && name.Within(h.name) }

// intersect returns the hosts that both a listener and a route name. ok is false if there are none.
func intersect(listener, route host) (both host, ok bool) {
	switch {
	case listener == anyHost || listener == route:
		return route, true
	case route == anyHost:
		return listener, true
	case listener.wild && route.wild && route.name.Within(listener.name):
		return route, true
	case listener.wild && route.wild && listener.name.Within(route.name):
		return listener, true
	case listener.wild && !route.wild:
		return route, listener.covers(route.name)
	case route.wild && !listener.wild:
		return listener, route.covers(listener.name)
	}
	return host{}, false
}
