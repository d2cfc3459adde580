package template

import (
	"fmt"

	"github.com/seamark/seamark/dns"
)

// ExplainDNS implements [dns.Explainer]. It names the templates for the query's class, type
// and zone, up to the one that answers.
func (t *Template) ExplainDNS(q *dns.Query, v dns.Verdict) (causes []dns.Cause) {
	add := func(format string, args ...any) {
		causes = append(causes, dns.Cause{Text: fmt.Sprintf(format, args...)})
	}

	for _, r := range t.rules {
		m := match{rule: r, zone: r.zone(q)}
		if m.zone == nil || !r.appliesTo(q) {
			continue
		}

		if m.matches(q) {
			why := ""
			if m.regex != nil {
				why = ": match " + m.regex.String()
			}

			if len(r.scoped) > 0 {
				if _, err := t.prepare(q, &m); err != nil {
					add("%s (%s) cannot be evaluated: %v", r.text, r.at, err)
					return causes
				}
			}
			if m.holds(q) {
				add("%s (%s) answers%s", r.text, r.at, why)
				return causes
			}
		}

		if !r.through.Through(q.Name()) {
			add("%s (%s) does not match, and has no fallthrough", r.text, r.at)
			return causes
		}
		add("%s (%s) does not match, and fallthrough passes the query on", r.text, r.at)
	}

	if causes == nil {
		add("no template is for the query's class, type and zone")
	}
	return causes
}
