package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/sys/health"
)

// missing returns the kinds of objects that have not been listed, by zones, unless a snapshot has them.
func missing(e *evidence) map[string][]string {
	stale := sum(e.of("seamark_kubernetes_stale"), "zones")
	kinds := map[string][]string{}
	for _, s := range e.of("seamark_kubernetes_synced") {
		if zones := s.labels["zones"]; s.value == 0 && stale[zones] == 0 {
			kinds[zones] = append(kinds[zones], s.labels["resource"])
		}
	}
	return kinds
}

func notSynced(e *evidence) []health.Condition {
	kinds := missing(e)
	if len(kinds) == 0 {
		return nil
	}

	var lists []string
	for _, zones := range slices.Sorted(maps.Keys(kinds)) {
		lists = append(lists, strings.Join(kinds[zones], ", ")+" of "+zones)
	}
	text := "not received since the start: %s; names that depend on them are SERVFAIL"
	return advise(one(health.Critical, "", text, strings.Join(lists, "; ")), examine)
}

// dataOld finds kinds of objects of which nothing has been received for long. One that has never been
// received has no last state to serve: notSynced names it.
func dataOld(e *evidence) []health.Condition {
	never := slices.Concat(slices.Collect(maps.Values(missing(e)))...)
	ages := sum(e.of("seamark_kubernetes_data_age_seconds"), "resource")
	maps.DeleteFunc(ages, func(kind string, age float64) bool { return age <= 300 || slices.Contains(never, kind) })
	if len(ages) == 0 {
		return nil
	}

	kinds, all := slices.Sorted(maps.Keys(ages)), slices.Sorted(maps.Values(ages))
	oldest := all[len(all)-1]
	if oldest-all[0] > 60 { // not one cause
		for i, kind := range kinds {
			kinds[i] = fmt.Sprintf("%s (for %s)", kind, seconds(ages[kind]))
		}
	}
	c := warn("kubernetes", "no %s are received; the last known state is served", list(kinds, "or"))
	c.Since = e.now.Add(-time.Duration(oldest * float64(time.Second)))
	return advise([]health.Condition{c}, examine)
}

func snapshotServed(e *evidence) (found []health.Condition) {
	for zones, stale := range sum(e.of("seamark_kubernetes_stale"), "zones") {
		if stale > 0 {
			found = append(found,
				warn(zones, "the answers of %s are from a snapshot: not all objects have been received since the start", zones))
		}
	}
	return advise(found, examine)
}

// watchErrors finds kinds of objects whose lists and watches fail.
func watchErrors(e *evidence) []health.Condition {
	failed := sum(e.increase("seamark_kubernetes_watch_errors_total", 15*time.Minute), "resource")
	var kinds []string
	for kind, n := range sorted(failed) {
		if n > 10 {
			kinds = append(kinds, fmt.Sprintf("%s (%.0f)", kind, n))
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	return advise(one(health.Warning, "", "lists and watches of %s failed in the last 15 minutes",
		list(kinds, "and")), examine)
}

// missedEvents finds kinds of objects that a comparison with a second list has corrected.
func missedEvents(e *evidence) []health.Condition {
	different := sum(where(e.increase("seamark_kubernetes_comparisons_total", kept), "result", "different"), "resource")
	maps.DeleteFunc(different, func(_ string, n float64) bool { return n == 0 })
	if len(different) == 0 {
		return nil
	}
	return one(health.Warning, "", "watches of %s have missed changes, and they were listed again",
		list(slices.Sorted(maps.Keys(different)), "and"))
}

// list returns words as a list in a sentence, of which last joins the last two.
func list(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " " + last + " " + words[n]
}
