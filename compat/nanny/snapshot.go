package nanny

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/metrics"
)

// A Snapshot writes the ConfigMap into a Corefile once, for a nanny without
// -restartDnsmasq.
type Snapshot struct {
	Dir     string
	Period  time.Duration
	Log     *slog.Logger
	Metrics *metrics.Registry
	Check   func([]corefile.Server) error // reports whether the server can serve the blocks
}

// Corefile returns text with the current ConfigMap in place of kubedns_config. A
// task in tasks then logs later changes until ctx ends.
func (s Snapshot) Corefile(ctx context.Context, tasks *sync.WaitGroup, text string) (string, error) {
	read := corefile.ReadText("(dnsmasq-nanny)", []byte(text))
	expand := func(c kubednsconfig.Config) ([]corefile.Server, error) {
		servers, err := kubedns.Expand(read.Servers, c)
		return servers, errors.Join(read.Err, err)
	}
	check := func(c kubednsconfig.Config) error {
		servers, err := expand(c)
		if err == nil {
			err = s.Check(servers)
		}
		return err
	}

	source := kubedns.Source{Dir: s.Dir, Period: s.Period}
	first := make(chan kubednsconfig.Config, 1)
	seen := false
	tasks.Go(func() {
		source.Run(ctx, s.Log, s.Metrics, check, func(c kubednsconfig.Config) {
			if seen {
				s.Log.Warn("The ConfigMap has changed; -restartDnsmasq=false keeps the old configuration",
					"directory", s.Dir)
				return
			}
			seen = true
			first <- c
		})
	})

	select {
	case c := <-first:
		servers, err := expand(c)
		if err != nil {
			return "", err
		}
		return corefile.Format(servers)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
