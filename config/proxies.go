package config

import (
	"net/netip"
	"time"
)

// ProxyHeaders are the peers of an address whose PROXY headers are used, and what is done
// with those of others. The words are those of the directive proxyproto.
type ProxyHeaders struct {
	Trusted     []netip.Prefix
	Others      string        // use, ignore, reject or skip
	SessionTime time.Duration // of UDP; 0 is none
	Sessions    int
}
