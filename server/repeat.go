package server

import (
	"fmt"
	"slices"

	"github.com/seamark/seamark/config"
)

// unrepeated returns the directive because of which the Repeater repeats no replies of a block at an
// address, "" if there is none or no Repeater.
func (p *Plan) unrepeated(s *site, b *config.Block) string {
	if p.opts.Repeater == nil || s.scheme != config.DNS {
		return ""
	}
	if name := b.Unrepeatable(); name != "" {
		return name
	}
	if slices.ContainsFunc(s.routes, func(r route) bool { return r.block.Chain.Match != nil }) {
		return "view"
	}
	if s.proxies() != nil { // the kernel cannot tell its clients from each other
		return "proxyproto"
	}
	return ""
}

// setUnrepeated tells each block, and logs, which directives keep the Repeater from repeating replies.
func (p *Plan) setUnrepeated() {
	for _, s := range p.sites {
		for _, r := range s.routes {
			name := p.unrepeated(s, r.block)
			if name == "" || slices.Contains(r.block.Unrepeated, name) {
				continue
			}
			r.block.Unrepeated = append(r.block.Unrepeated, name)
			p.opts.Log.Info("Replies of a server block are not repeated by the kernel, because a directive has to see "+
				"each query", "directive", name, "zones", fmt.Sprint(r.block.Zones))
		}
	}
}
