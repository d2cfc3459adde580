package kubedns

import (
	"slices"

	"github.com/seamark/seamark/corefile"
)

// Expanded is a Corefile with what a ConfigMap says in the place of each
// kubedns_config: it follows nothing any more. The servers that are given stay as
// they are.
func Expanded(servers []corefile.Server, c Config) ([]corefile.Server, error) {
	out := slices.Clone(servers)
	for i, s := range servers {
		u, at, ok := uses(s)
		switch {
		case ok:
			s = u.expand(s, at, c)
			s.Directives = slices.DeleteFunc(s.Directives, func(d corefile.Directive) bool { return d.Text == "kubedns_config" })
			out[i] = s
		case at >= 0:
			_, err := parseUse(s.Directives[at], "")
			return nil, err
		}
	}
	return out, nil
}

// Self is an address at which a server block asks itself: IP:PORT.
func Self(s corefile.Server) string {
	w := writing{block: s}
	return w.self().Text
}

// ReadDirectory gives the data of a ConfigMap that is mounted in a directory. What
// cannot be read is an error, all of it.
func ReadDirectory(path string) (map[string]string, error) {
	f := follower{Directory: Directory{Path: path}}
	return f.read()
}

// Unknown lists the keys of a ConfigMap that mean nothing, in order.
func Unknown(data map[string]string) []string { return unknown(data) }
