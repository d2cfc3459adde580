package resolvconf

import (
	"net/netip"
	"strings"
)

// ParseResolver parses a resolv.conf as glibc's resolver does. It skips lines that it does not know and nameservers
// that are no addresses; of the lines domain and search the last one counts. Without a nameserver the resolver asks
// 127.0.0.1.
func ParseResolver(text []byte) (c Config) {
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch rest := words[1:]; words[0] {
		case "nameserver":
			if _, err := netip.ParseAddr(rest[0]); err == nil {
				c.Nameservers = append(c.Nameservers, rest[0])
			}
		case "domain":
			c.Searches = []string{withoutDot(rest[0])}
		case "search":
			c.Searches = nil
			for _, s := range rest {
				c.Searches = append(c.Searches, withoutDot(s))
			}
		case "options":
			c.Options = c.addOptions(rest)
		}
	}
	if c.Nameservers == nil {
		c.Nameservers = []string{"127.0.0.1"}
	}
	return c
}

// withoutDot returns a search domain without the dot at its end; the root is one.
func withoutDot(domain string) string {
	if domain == "." {
		return domain
	}
	return strings.TrimSuffix(domain, ".")
}

// addOptions returns c's options with those of a line, the last of which counts.
func (c *Config) addOptions(words []string) []Option {
	options := c.Options
	for _, word := range words {
		name, value, _ := strings.Cut(word, ":")
		options = overwrite(options, []Option{{name, value}})
	}
	return options
}
