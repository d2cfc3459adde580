package admin

import (
	"os"
	"time"

	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/clock"
)

// An Identity says which server it is: replicas, and pages in several tabs, look alike.
type Identity struct {
	// Host is the hostname: the name of the pod, or of the node in the node's network.
	Host    string `json:"host,omitempty"`
	Node    string `json:"node,omitempty"` // by the environment variable NODE_NAME
	Version string `json:"version,omitempty"`
	// ProcessStarted is when the process began; Started of a Status is later, after a reload.
	ProcessStarted time.Time `json:"process_started"`
}

// processStarted returns when the process began, by the present clock.
func processStarted() time.Time { return time.Now().Add(-clock.Now()).Truncate(time.Second) }

// identify returns the identity of the process, with the version of the metrics.
func identify(r *metrics.Registry) Identity {
	id := Identity{Node: os.Getenv("NODE_NAME"), ProcessStarted: processStarted()}
	id.Host, _ = os.Hostname() // shown as missing
	for name := range r.Values(func(family string) bool { return family == "seamark_build_info" }) {
		_, labels := metrics.ParseSeries(name)
		id.Version = labels["version"]
	}
	return id
}
