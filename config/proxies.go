package config

import (
	"net/netip"
	"time"
)

// ProxyHeaders names the peers of an address whose PROXY headers are used, and the policy
// for all other peers. The words are the same as in the directive proxyproto.
type ProxyHeaders struct {
	Trusted     []netip.Prefix
	Others      string        // use, ignore, reject or skip
	SessionTime time.Duration // of UDP; 0 is none
	Sessions    int
	KeepTLVs    bool // for metadata
}
