package secondary

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/health"
)

// alertOf matches the alerts of the metrics of secondary and their expressions.
var alertOf = regexp.MustCompile(`(?m)^- alert: (\w+)\n  expr: (seamark_secondary_\w+)\{SELECTOR\} > 0$`)

// The metrics of a zone, and the alerts of them, agree with the conditions in each of its states.
func TestMetricsOfZone(t *testing.T) {
	text, err := os.ReadFile("../../deploy/helm/seamark/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := alertOf.FindAllStringSubmatch(string(text), -1)
	if len(alerts) != 2 {
		t.Fatalf("got alerts %q, want two", alerts)
	}

	synctest.Test(t, func(t *testing.T) {
		reg, board := new(metrics.Registry), new(health.Board)
		c, p, _ := startCopyIn(t, 0, nil, func(c *zoneCopy) {
			c.health = board
			c.export(reg, func() []*zoneCopy { return nil })
		})
		check := func(state string, youngest, oldest time.Duration, want string) {
			t.Helper()
			values := reg.Values(func(name string) bool { return strings.HasPrefix(name, "seamark_secondary_") })
			var fires, conditions []string
			for _, a := range alerts {
				if values[a[2]+`{zone="example.org."}`] > 0 {
					fires = append(fires, a[1])
				}
			}
			for _, condition := range board.Conditions() {
				conditions = append(conditions, condition.Alert)
			}
			slices.Sort(conditions)
			if conditions = slices.Compact(conditions); !slices.Equal(fires, conditions) {
				t.Errorf("%s: got alerts %q, and conditions of %q, want the same", state, fires, conditions)
			}
			value := func(name, labels string) float64 {
				return values[fmt.Sprintf(`seamark_secondary_%s{zone="example.org."%s}`, name, labels)]
			}
			got := fmt.Sprintf("serial %.0f, unserved %.0f, failing %.0f, AXFR %.0f, IXFR %.0f, failures %v",
				value("serial", ""), value("unserved_zones", ""), value("failing_zones", ""),
				value("transfers_total", `,kind="AXFR"`), value("transfers_total", `,kind="IXFR"`), value("refresh_failures_total", "") > 0)
			if age := time.Duration(value("data_age_seconds", "") * float64(time.Second)); got != want || age < youngest || age > oldest {
				t.Errorf("%s: got %s, of %v, want %s, of %v to %v", state, got, age, want, youngest, oldest)
			}
		}
		check("served", time.Second, time.Second, "serial 5, unserved 0, failing 0, AXFR 1, IXFR 0, failures false")
		p.set(0, map[uint16][]string{soaQuery: {newer}, ixfr: {"@ 5 SOA 6\n@ 5 SOA 5\n@ 5 SOA 6\nx 5 A 192.0.2.9\n@ 5 SOA 6"}})
		c.notify()
		time.Sleep(2 * time.Second)
		check("changed", 2*time.Second, 2*time.Second, "serial 6, unserved 0, failing 0, AXFR 1, IXFR 1, failures false")
		p.set(0, nil)
		time.Sleep(5 * time.Minute)
		check("failing", 5*time.Minute, 6*time.Minute, "serial 6, unserved 0, failing 1, AXFR 1, IXFR 1, failures true")
		time.Sleep(6 * time.Minute)
		check("expired", 11*time.Minute, 12*time.Minute, "serial 0, unserved 1, failing 0, AXFR 1, IXFR 1, failures true")
		p.set(0, map[uint16][]string{soaQuery: {"@ 5 SOA 6"}})
		time.Sleep(time.Minute + time.Second)
		check("confirmed", 0, time.Minute+time.Second, "serial 6, unserved 0, failing 0, AXFR 1, IXFR 1, failures true")

		c.Stop()
		if left := reg.Values(func(name string) bool { return strings.HasSuffix(name, "_zones") }); len(left) > 0 {
			t.Errorf("after the stop: got %v, want no gauges", left)
		}
	})
}
