package metrics

import (
	"bytes"
	"strconv"
	"strings"
)

// Values returns the present values of series by their names, such as up{to="a"}, for the families
// that selects returns true for. Those of a histogram end in _bucket, _sum and _count.
func (r *Registry) Values(selects func(family string) bool) map[string]float64 {
	var text bytes.Buffer
	// A histogram has series with names of their own. A buffer cannot fail.
	_ = r.write(&text, false, func(family string) bool {
		return selects(family) || selects(family+"_bucket") || selects(family+"_sum") || selects(family+"_count")
	})

	found := map[string]float64{}
	for line := range strings.Lines(text.String()) {
		i := strings.LastIndexByte(line, ' ')
		family, _, _ := strings.Cut(line[:max(0, i)], "{")
		if i < 0 || !selects(family) {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64); err == nil {
			found[line[:i]] = v
		}
	}
	return found
}

// SeriesName returns the name of a series with labels, NAME VALUE each.
func SeriesName(family string, labels ...string) string {
	var list []string
	for i := 0; i+1 < len(labels); i += 2 {
		list = append(list, labels[i]+"="+strconv.Quote(labels[i+1]))
	}
	return family + "{" + strings.Join(list, ",") + "}"
}

// ParseSeries returns the family and the labels of a series.
func ParseSeries(name string) (family string, labels map[string]string) {
	family, rest, _ := strings.Cut(name, "{")
	labels = map[string]string{}
	for {
		key, after, found := strings.Cut(rest, "=")
		quoted, err := strconv.QuotedPrefix(after)
		if !found || err != nil {
			return family, labels
		}
		labels[key], _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
		rest = strings.TrimPrefix(after[len(quoted):], ",")
	}
}
