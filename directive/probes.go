package directive

import (
	"slices"
	"sync"

	"github.com/seamark/seamark/config"
)

// A probe checks the readiness of one handler, for ready and kubedns_status.
type probe struct {
	name    string
	handler interface{ Ready() bool }
	// continuous makes the probe check the handler after it was ready.
	continuous bool

	mu    sync.Mutex
	ready bool
}

// newProbes returns a probe for each handler of b that has a Ready method. It
// must be called in OnPlanned or later.
func newProbes(b *config.Block, continuous bool) (probes []*probe) {
	for _, h := range config.Find[interface{ Ready() bool }](b) {
		probes = append(probes, &probe{name: b.NameOf(h), handler: h, continuous: continuous})
	}
	return probes
}

// unready returns the names of the handlers that are not ready, without duplicates, and a line for
// each that knows the reason.
func unready(probes []*probe) (waiting []string, reasons string) {
	for _, probe := range probes {
		if probe.check() {
			continue
		}
		if !slices.Contains(waiting, probe.name) {
			waiting = append(waiting, probe.name)
		}
		if reason := config.WhyUnready(probe.handler); reason != "" {
			reasons += "\n" + probe.name + ": " + reason
		}
	}
	return waiting, reasons
}

func (p *probe) check() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready || p.continuous {
		p.ready = p.handler.Ready()
	}
	return p.ready
}
