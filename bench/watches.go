//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// watching are numbers of nodes that watch EndpointSlices by themselves. The source of a zone that nodes follow is one
// of them, whatever the number of relays is.
var watching = []int{0, 50, 200}

// watchingNodes measures the CPU of the API server, with its etcd, at 100 changes a second while nodes watch
// EndpointSlices, and what one more node costs.
func (b *bench) watchingNodes(ctx context.Context, c *changer) error {
	if b.api.server == nil {
		b.miss("CPU of the API server: that of -kubeconfig is no process of the benchmark")
		return nil
	}

	var shares []float64
	for _, n := range watching {
		share, err := b.watched(ctx, c, n)
		if err != nil {
			return err
		}
		b.number(fmt.Sprint("follow/api/", n), fmt.Sprintf("CPU of the API server, 100 changes a second, %d nodes watch", n),
			"% of a processor", share)
		shares = append(shares, share)
	}

	// The first watch of a kind costs more than the next ones.
	last := len(watching) - 1
	b.number("follow/api/node", "CPU of the API server for a node that watches", "% of a processor",
		(shares[last]-shares[1])/float64(watching[last]-watching[1]))
	return nil
}

// watched returns the CPU of the API server, in percent of a processor, while a number of nodes watch.
func (b *bench) watched(ctx context.Context, c *changer, nodes int) (share float64, err error) {
	cmd, err := newCommand(b.api.program, "watch", b.api.kubeconfig, strconv.Itoa(nodes))
	if err != nil {
		return 0, err
	}
	defer cmd.stop()
	if _, err := cmd.line(ctx); err != nil {
		return 0, fmt.Errorf("starting %d watches: %w", nodes, err)
	}

	during, stop := context.WithTimeout(ctx, followedTime)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.keepChanging(during, followChanges) }()
	if err := pause(ctx, followedTime/4); err != nil {
		return 0, err
	}

	pid := b.api.server.cmd.Process.Pid
	from, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := <-ended; err != nil {
		return 0, err
	}
	to, err := cpuTime(pid)
	return (to - from).Seconds() / time.Since(begin).Seconds() * 100, err
}
