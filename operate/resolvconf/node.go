package resolvconf

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ParseNode parses a node's resolv.conf as the kubelet does, which differs from
// resolvers: it reads nameserver, search and options lines only, and all words of
// these. The comments list the settings that pods do not get. The errors are for lines with
// which the kubelet does not start pods.
func ParseNode(file string, text []byte) (c Config, comments []string, err error) {
	var errs []error
	n, searchLine := 0, 0
	comment := func(format string, args ...any) {
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
				errs = append(errs, fmt.Errorf("%s:%d: nameserver without an address:"+
					" the kubelet does not start pods with this file: add an address or delete the line", file, n))
				continue
			}
			c.Nameservers = append(c.Nameservers, rest[0])
			if why := serverProblem(rest[0]); why != "" {
				comment("nameserver %s: %s; pods get it nevertheless", rest[0], why)
			}
			if len(rest) > 1 {
				comment("nameserver takes one address, ignored: %s", strings.Join(rest[1:], " "))
			}

		case "search":
			if searchLine > 0 {
				comment("this search line replaces line %d", searchLine)
			}
			searchLine = n
			c.Searches = nil
			for _, s := range rest {
				c.Searches = append(c.Searches, withoutDot(s))
			}
			checkComment(comment, key, rest)

		case "options":
			c.Options = c.addOptions(rest)
			checkComment(comment, key, rest)

		case "domain":
			comment("the kubelet ignores domain: use search if pods need it")
		case "sortlist":
			comment("the kubelet ignores sortlist")
		default:
			comment("the kubelet ignores this line: unknown keyword %q", key)
		}
	}
	return c, comments, errors.Join(errs...)
}

// checkComment warns about a comment after the words of a line, which becomes part of
// the line.
func checkComment(comment func(string, ...any), key string, words []string) {
	for _, w := range words {
		if w[0] == '#' || w[0] == ';' {
			comment("a comment needs a line of its own: %q becomes part of the %s line", w, key)
			return
		}
	}
}

// serverProblem describes the problem with a nameserver of the node; "" if there is
// none.
func serverProblem(text string) string {
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return "not an IP address"
	case addr.Zone() != "":
		return fmt.Sprintf("the interface %s exists on the node, not in pods", addr.Zone())
	}
	return ""
}
