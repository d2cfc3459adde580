package cmd

import (
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/operate/adminclient"
)

// Servers of two versions differ since the first one of the second version has started, and servers with
// two Corefiles since the first one serves the second; nothing is said of a time that a server does not know.
func TestDifferencesBegan(t *testing.T) {
	at := func(hour int) *time.Time {
		t := time.Date(2026, 11, 29, hour, 0, 0, 0, time.UTC)
		return &t
	}
	server := func(name, version string, process *time.Time, corefile string, serves *time.Time) replica {
		s := &adminclient.Status{Started: serves, Metrics: map[string]float64{}}
		s.Version, s.ProcessStarted = version, process
		s.Metrics[`coredns_reload_version_info{hash="sha512",value="`+corefile+`"}`] = 1
		return replica{Server: name, Status: s}
	}
	replicas := []replica{
		server("a", "1", at(1), "old", at(1)), server("b", "2", at(5), "old", at(5)),
		server("c", "2", at(3), "new", at(7)), {Server: "down"},
	}

	found := differences(replicas)
	if len(found) != 2 || found[0].Object != "Corefile" || found[1].Object != "version" {
		t.Fatalf("got %+v, want a Corefile and a version", found)
	}
	if got := found[0]; !got.Since.Equal(*at(7)) || !strings.HasSuffix(got.Text, ": new (c), old (a, b)") {
		t.Errorf("got %+v, want a difference since 7", got)
	}
	if got := found[1]; !got.Since.Equal(*at(3)) || !strings.HasSuffix(got.Text, ": 1 (a), 2 (b, c)") {
		t.Errorf("got %+v, want a difference since 3", got)
	}

	replicas[0].Status.ProcessStarted = nil
	if got := differences(replicas)[1]; !got.Since.IsZero() {
		t.Errorf("got %+v, want an unknown beginning", got)
	}
	if found := differences(replicas[1:2]); found != nil {
		t.Errorf("got %+v of one server, want nothing", found)
	}
}
