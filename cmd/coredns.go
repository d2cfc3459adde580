package cmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seamark/seamark/corefile"
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

// onlySeamark lists directives and options that no CoreDNS has.
func onlySeamark() map[string][]string {
	return map[string][]string{
		"handover": nil, "kubedns_config": nil, "records": nil, "lameduck": nil,
		"kubernetes": {"manifests", "snapshot", "ptr", "compatible", "wildcards"},
		"forward":    {"case_randomization"},
	}
}

// corednsFindings returns errors and warnings about the directives and options of a Corefile
// that a version of CoreDNS rejects or ignores.
func corednsFindings(servers []corefile.Server, v version) (errs, warnings []error) {
	report := func(d corefile.Directive, level, text string) {
		err := d.Errorf("CoreDNS %v: %s", v, text)
		if level == "error" {
			errs = append(errs, err)
		} else {
			warnings = append(warnings, err)
		}
	}
	apply := func(d corefile.Directive, plugin, option string) {
		for _, c := range slices.Backward(corednsChanges()) {
			if c.plugin != plugin || c.option != option || slices.Compare(c.from[:], v[:]) > 0 {
				continue
			}
			if option != "endpoint" || len(d.Args) > 1 {
				report(d, c.level, fmt.Sprintf("%s (%v)", c.text, c.from))
			}
			return // the latest change counts
		}
	}
	own := onlySeamark()
	for _, s := range servers {
		for _, d := range s.Directives {
			options, known := own[d.Text]
			if known && options == nil {
				report(d, "error", "it has no such plugin")
				continue
			}
			apply(d, d.Text, "")
			for _, o := range d.Body {
				if slices.Contains(options, o.Text) {
					report(o, "error", "it has no such option")
				}
				apply(o, d.Text, o.Text)
			}
		}
	}
	return errs, warnings
}
