package directive

import (
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/dns"
)

// ProxyHeaders are the settings of the directive proxyproto.
type ProxyHeaders struct{ headers config.ProxyHeaders }

// ProxyHeaders returns the settings.
func (p *ProxyHeaders) ProxyHeaders() config.ProxyHeaders { return p.headers }

// Metadata returns the value of proxyproto/tlv: the TLVs of the query's PROXY header in hexadecimal
// digits.
func (p *ProxyHeaders) Metadata(q *dns.Query, key string) (value string, ok bool) {
	if key != "proxyproto/tlv" || !p.headers.KeepTLVs {
		return "", false
	}
	return hex.EncodeToString([]byte(q.ProxyTLVs)), true
}

// SetupProxyproto sets up the proxyproto directive, which takes the addresses of clients from
// a load balancer. Its reference page is docs/reference/directives/proxyproto.md.
func SetupProxyproto(b *config.Block, uses []corefile.Directive) error {
	d, p := uses[0], &ProxyHeaders{config.ProxyHeaders{Sessions: 10240}}
	b.Offer(p)
	h := &p.headers
	policy := func(o corefile.Directive) error {
		o.Args[0].Text = strings.ToLower(o.Args[0].Text)
		return corefile.OneOf(&h.Others, "use", "ignore", "reject", "skip")(o)
	}
	tracking := func(o corefile.Directive) error {
		sessions := o
		o.Args, sessions.Args = o.Args[:1], o.Args[1:]
		return errors.Join(corefile.Duration(&h.SessionTime, time.Second, 24*time.Hour)(o),
			corefile.Int(&h.Sessions, 1, math.MaxInt32)(sessions))
	}

	err := errors.Join(config.Once(uses), d.Arity(0, 0), d.Options(
		corefile.Option{Usage: "allow CIDR...", Set: corefile.Append(&h.Trusted, config.ParseSource)},
		corefile.Option{Usage: "default use|ignore|reject|skip", Once: true, Set: policy},
		corefile.Option{Usage: "udp_session_tracking DURATION [SESSIONS]", Once: true, Set: tracking},
		corefile.Option{Usage: "tlv_metadata", Set: corefile.Flag(&h.KeepTLVs)},
	))
	for _, s := range b.Schemes {
		if s == config.QUIC || s == config.HTTPS3 {
			err = errors.Join(err, d.Errorf("not supported with %s://: "+
				"give these zones a server block of their own", s))
		}
	}

	switch {
	case h.Others != "":
	case len(h.Trusted) > 0:
		h.Others = "ignore"
	default:
		h.Others = "use"
	}
	return err
}
