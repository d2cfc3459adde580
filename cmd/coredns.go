package cmd

import (
	_ "embed" // of the table of versions
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/sys/order"
)

// A version is a version of CoreDNS: major, minor, patch.
type version [3]int

// newestCoreDNS returns the newest version that corednsChanges covers.
func newestCoreDNS() version { return version{1, 15, 0} }

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// parseVersion parses 1.15.0, v1.15 or the tag of an image, v1.11.1-eksbuild.4.
func parseVersion(text string) (v version, ok bool) {
	number, _, _ := strings.Cut(strings.TrimPrefix(text, "v"), "-")
	parts := strings.Split(number, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return v, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return v, false
		}
		v[i] = int(n)
	}
	return v, v[0] == 1
}

// A corednsChange is a change of CoreDNS that affects existing Corefiles.
type corednsChange struct {
	plugin, option string // option is "" for the plugin itself
	from           version
	level          string // error or warning
	text           string
}

// corednsChanges are CoreDNS's changes, in the order of their versions.
func corednsChanges() []corednsChange {
	return []corednsChange{
		{"proxy", "protocol", version{1, 1, 4}, "warning", "ignored"},
		{"proxy", "protocol", version{1, 2, 0}, "error", "removed"},
		{"proxy", "", version{1, 4, 0}, "warning", "deprecated: use forward"},
		{"kubernetes", "upstream", version{1, 4, 0}, "warning", "deprecated: it has no replacement"},
		{"kubernetes", "endpoint", version{1, 4, 0}, "warning", "only the first URL is used"},
		{"proxy", "", version{1, 5, 0}, "error", "removed: use forward"},
		{"kubernetes", "upstream", version{1, 5, 0}, "warning", "ignored"},
		{"kubernetes", "resyncperiod", version{1, 5, 0}, "warning", "deprecated: it has no replacement"},
		{"kubernetes", "resyncperiod", version{1, 6, 0}, "warning", "ignored"},
		{"kubernetes", "upstream", version{1, 7, 0}, "error", "removed"},
		{"kubernetes", "resyncperiod", version{1, 7, 0}, "error", "removed"},
		{"federation", "", version{1, 7, 0}, "error", "removed"},
		{"kubernetes", "transfer", version{1, 8, 0}, "error", "removed: use the plugin transfer"},
	}
}

// onlySeamark lists options that no CoreDNS has, of directives that it has.
func onlySeamark() map[string][]string {
	return map[string][]string{
		"kubernetes": {"manifests", "snapshot", "ptr", "compatible", "wildcards", "only", "node"},
		"cache":      {"memory"},
		"file":       {"max_size"},
		"hosts":      {"file", "domain", "localise", "configmap", "endpoint", "tls", "kubeconfig", "manifests"},
		"forward":    {"case_randomization", "fallback", "prefer_tcp", "attempts", "unanswered"},
		"etcd":       {"watch", "most", "ttl", "negative_ttl", "priority", "hostmaster", "local", "compatible"},
		"secondary":  {"expire", "file", "follow", "key", "max_size"},
		"transfer":   {"key"},
		"chaos":      {"statistics"},
		"dnstap":     {"sample"},
	}
}

// corednsTable lists CoreDNS's plugins and their options: see tools/coredns.
//
//go:embed coredns.txt
var corednsTable string

// versions are the versions of CoreDNS that have a plugin or an option. end is zero if the
// newest has it.
type versions struct{ from, end version }

func (r versions) has(v version) bool {
	return slices.Compare(r.from[:], v[:]) <= 0 && (r.end == version{} || slices.Compare(v[:], r.end[:]) < 0)
}

// readTable returns the versions of each plugin, and of its options as PLUGIN OPTION.
func readTable(text string) map[string][]versions {
	table := map[string][]versions{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		n := slices.IndexFunc(words, func(w string) bool { _, ok := parseVersion(w); return ok })
		name := strings.Join(words[:n], " ")
		var r versions
		r.from, _ = parseVersion(words[n])
		if len(words) > n+1 {
			r.end, _ = parseVersion(words[n+1])
		}
		table[name] = append(table[name], r)
	}
	return table
}

// corednsVersions returns the versions of CoreDNS with changes, the newest first, for the shell to
// complete.
func corednsVersions() (texts []string) {
	found := []version{newestCoreDNS()}
	for _, ranges := range readTable(corednsTable) {
		for _, r := range ranges {
			found = append(found, r.from, r.end)
		}
	}
	for _, c := range corednsChanges() {
		found = append(found, c.from)
	}

	order.Slice(found, func(a, b version) int { return slices.Compare(b[:], a[:]) })
	for _, v := range slices.Compact(found) {
		if v[0] == 1 { // no end is zero, and CoreDNS's first versions were 001 to 011
			texts = append(texts, v.String())
		}
	}
	return texts
}

// absent returns why a version lacks a plugin or an option, "" if it has it or the table does
// not list it.
func absent(ranges []versions, v version) string {
	if len(ranges) == 0 || slices.ContainsFunc(ranges, func(r versions) bool { return r.has(v) }) {
		return ""
	}
	for _, r := range ranges {
		if slices.Compare(v[:], r.from[:]) < 0 {
			return fmt.Sprintf("not before %v", r.from)
		}
	}
	return fmt.Sprintf("removed (%v)", ranges[len(ranges)-1].end)
}

// corednsFindings returns errors and warnings about the directives and options of a Corefile
// that a version of CoreDNS rejects or ignores. known reports whether Seamark has a directive:
// others have an error already.
func corednsFindings(servers []corefile.Server, v version, known func(directive string) bool) (errs, warnings []error) {
	report := func(d corefile.Directive, level, text string) {
		err := d.Errorf("CoreDNS %v: %s", v, text)
		if level == "error" {
			errs = append(errs, err)
		} else {
			warnings = append(warnings, err)
		}
	}

	table, own := readTable(corednsTable), onlySeamark()
	// apply reports the latest change of a plugin or an option, or that the version lacks it.
	apply := func(d corefile.Directive, plugin, option string) {
		for _, c := range slices.Backward(corednsChanges()) {
			if c.plugin != plugin || c.option != option || slices.Compare(c.from[:], v[:]) > 0 {
				continue
			}
			if option != "endpoint" || len(d.Args) > 1 {
				report(d, c.level, fmt.Sprintf("%s (%v)", c.text, c.from))
			}
			return
		}
		if why := absent(table[strings.TrimSpace(plugin+" "+option)], v); why != "" {
			report(d, "error", why)
		}
	}

	for _, s := range servers {
		for _, d := range s.Directives {
			if table[d.Text] == nil {
				if known(d.Text) {
					report(d, "error", "it has no such plugin")
				}
				continue
			}

			before := len(errs)
			apply(d, d.Text, "")
			if len(errs) > before {
				continue // so are its options
			}

			for _, o := range d.Body {
				if slices.Contains(own[d.Text], o.Text) {
					report(o, "error", "it has no such option")
				}
				apply(o, d.Text, o.Text)
			}
		}
	}
	return errs, warnings
}
