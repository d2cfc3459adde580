package resolvconf

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ParseNode parses a node's resolv.conf as the kubelet does, which differs from
// resolvers: it reads nameserver, search and options lines only, and all words of
// these. The comments list what does not reach pods. The errors are lines because
// of which the kubelet would not start pods.
func ParseNode(file string, text []byte) (c Config, comments []string, err error) {
	var errs []error
	n, searchLine := 0, 0
	say := func(format string, args ...any) {
		comments = append(comments, fmt.Sprintf("%s:%d: %s", file, n, fmt.Sprintf(format, args...)))
	}
	for line := range strings.Lines(string(text)) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' || words[0][0] == ';' {
			continue
		}
		key, rest := words[0], words[1:]
		switch key {
		case "nameserver":
			if len(rest) == 0 {
				errs = append(errs, fmt.Errorf("%s:%d: nameserver without an address: the kubelet starts no pod with such a file; write one or delete the line", file, n))
				continue
			}
			c.Nameservers = append(c.Nameservers, rest[0])
			if why := serverProblem(rest[0]); why != "" {
				say("nameserver %s: %s; pods get it all the same", rest[0], why)
			}
			if len(rest) > 1 {
				say("nameserver takes one address: not read: %s", strings.Join(rest[1:], " "))
			}
		case "search":
			if searchLine > 0 {
				say("this search line replaces that of line %d", searchLine)
			}
			searchLine = n
			c.Searches = nil
			for _, s := range rest {
				if s != "." { // the kubelet keeps the root as a search domain
					s = strings.TrimSuffix(s, ".")
				}
				c.Searches = append(c.Searches, s)
			}
			warnRemark(say, key, rest)
		case "options":
			for _, word := range rest {
				name, value, _ := strings.Cut(word, ":")
				c.Options = overwrite(c.Options, []Option{{name, value}})
			}
			warnRemark(say, key, rest)
		case "domain":
			say("domain is not read by the kubelet: write search, if pods should have it")
		case "sortlist":
			say("sortlist is not read by the kubelet, and pods do without")
		default:
			say("not a line that the kubelet reads: it begins with %q", key)
		}
	}
	return c, comments, errors.Join(errs...)
}

// warnRemark warns about a remark at the end of a line, whose words become part
// of it.
func warnRemark(say func(string, ...any), key string, words []string) {
	for _, w := range words {
		if w[0] == '#' || w[0] == ';' {
			say("a remark has a line of its own: here %q becomes part of the %s line", w, key)
			return
		}
	}
}

// serverProblem returns a description of what is wrong with a nameserver of the
// node, or "".
func serverProblem(text string) string {
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return "not an IP address"
	case addr.Zone() != "":
		return fmt.Sprintf("the interface %s is the node's, and a pod has none of its name", addr.Zone())
	}
	return ""
}
