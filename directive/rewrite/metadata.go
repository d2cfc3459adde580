package rewrite

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/wire"
)

// A part is one piece of the TO of a name rule with metadata: text, a group of the regular
// expression, or a value of the query's metadata. It is not ok if the query has no such value.
type part func(q *dns.Query, groups [][]byte) (text string, ok bool)

// parseParts reads the TO of a name rule with metadata. The regular expression has n groups.
func parseParts(b *config.Block, to string, n int) (parts []part, err error) {
	for rest := strings.TrimSuffix(to, ".") + "."; rest != ""; {
		text, after, found := strings.Cut(rest, "{")
		word, after, closed := strings.Cut(after, "}")
		if found != closed || strings.Contains(text, "}") {
			return nil, fmt.Errorf("%s: want { and } around the number of a group or metadata", to)
		}

		text = strings.ToLower(text)
		parts = append(parts, func(*dns.Query, [][]byte) (string, bool) { return text, true })
		if found {
			p, err := parsePart(b, word, n)
			if err != nil {
				return nil, err
			}
			parts = append(parts, p)
		}
		rest = after
	}
	return parts, nil
}

// parsePart reads the word in braces.
func parsePart(b *config.Block, word string, n int) (part, error) {
	if group, err := strconv.Atoi(word); err == nil {
		if group < 0 || group > n {
			return nil, fmt.Errorf("{%s}: the regular expression has %d groups", word, n)
		}
		return func(_ *dns.Query, groups [][]byte) (string, bool) { return string(groups[group]), true }, nil
	}

	plugin, name, _ := strings.Cut(word, "/")
	if plugin == "" || name == "" || strings.Contains(word, "{") {
		return nil, fmt.Errorf("{%s}: want the number of a group, or metadata such as {kubernetes/client-namespace}", word)
	}
	value := metadataValue(b, word)
	return func(q *dns.Query, _ [][]byte) (string, bool) {
		text := strings.ToLower(value(q))
		return text, text != ""
	}, nil
}

// metadataValue returns a function for the value of a metadata key, "" if a query has none.
func metadataValue(b *config.Block, key string) func(*dns.Query) string {
	var value func(*dns.Query) string
	b.OnPlanned(func() error {
		value = b.Metadata(key)
		return nil
	})
	return func(q *dns.Query) string { return value(q) }
}

// assemble returns the new name that the parts have for s. It is not ok if the pattern does not
// match, or if metadata is missing.
func (r *nameRule) assemble(q *dns.Query, s *domain) (name wire.Name, ok bool, err error) {
	groups := r.expr.FindSubmatch(s.String())
	if groups == nil {
		return "", false, nil
	}

	var renamed strings.Builder
	for _, p := range r.parts {
		text, ok := p(q, groups)
		if !ok {
			return "", false, nil
		}
		renamed.WriteString(text)
	}
	return parseRenamed(renamed.String(), s)
}

// parseRenamed returns the new name of s in wire form.
func parseRenamed(text string, s *domain) (name wire.Name, ok bool, err error) {
	if name, err = wire.ParseName(text); err != nil {
		return "", true, fmt.Errorf("rewriting the name %s: %w", s.String(), err)
	}
	return name, true, nil
}
