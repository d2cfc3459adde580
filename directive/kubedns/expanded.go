package kubedns

import (
	"slices"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
)

// Expand returns a copy of servers in which the directives that c stands for
// replace each kubedns_config. The result follows no ConfigMap.
func Expand(servers []corefile.Server, c kubednsconfig.Config) ([]corefile.Server, error) {
	out := slices.Clone(servers)
	for i, s := range servers {
		u, at, ok := findUse(s)
		switch {
		case ok:
			s = u.expand(s, at, c)
			s.Directives = slices.DeleteFunc(s.Directives, func(d corefile.Directive) bool {
				return d.Text == "kubedns_config"
			})
			out[i] = s
		case at >= 0:
			_, err := parseUse(s.Directives[at], "")
			return nil, err
		}
	}
	return out, nil
}

// ListenAddress returns an address, as IP:PORT, at which server block s receives
// queries from its own host.
func ListenAddress(s corefile.Server) string {
	w := expander{block: s}
	return w.self().Text
}
