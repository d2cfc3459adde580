//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// settle returns the time to wait before a server's memory is read: the runtime
// returns the garbage of the start to the system gradually.
func (b *bench) settle() time.Duration {
	if b.quick {
		return 3 * time.Second
	}
	return 20 * time.Second
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// weigh starts our server on a cluster and reads its memory after settle.
func (b *bench) weigh(ctx context.Context, source string, q *lookup) (*server, footprint, error) {
	s, err := b.start(ctx, b.stock(source, 2), q)
	if err != nil {
		return nil, footprint{}, err
	}
	if err := pause(ctx, b.settle()); err != nil {
		return nil, footprint{}, err
	}
	f, err := memory(s.pid())
	return s, f, err
}

// memory measures our server's memory for a cluster, from each origin, after the
// first sync and after some load; and the memory of an endpoint, as the
// difference to an almost empty cluster.
func (b *bench) memory(ctx context.Context) error {
	defer b.stopServers()
	var folder footprint
	for _, from := range b.origins() {
		s, f, err := b.weigh(ctx, from.source, b.pop.last())
		if err != nil {
			return err
		}
		if from.name == "folder" {
			folder = f
		}

		b.megabytes("memory/"+from.name, "resident, no load, "+from.name, f.resident)
		b.megabytes("anonymous/"+from.name, "of that not of the binary, "+from.name, f.anonymous)
		b.megabytes("peak/"+from.name, "peak of the start, "+from.name, f.peak)
		if _, err := b.load(s, comparison{workload: "A"}).run(ctx); err != nil {
			return err
		}
		if f, err = memory(s.pid()); err != nil {
			return err
		}

		b.megabytes("loaded/"+from.name, "resident after load, "+from.name, f.resident)
		b.stopServers()
	}

	if b.services < 2000 {
		return nil // endpoints would be too small a part of it
	}

	little := populate(20)
	dir := b.file("little")
	if err := little.writeManifests(dir); err != nil {
		return err
	}

	_, f, err := b.weigh(ctx, fromFolder(dir), little.last())
	if err != nil {
		return err
	}

	b.megabytes("memory/little", fmt.Sprintf("resident with %d endpoints, folder", little.endpoints()), f.resident)
	more := float64(b.pop.endpoints() - little.endpoints())
	b.number("memory/endpoint", "memory for an endpoint, its part of a Service included", "bytes",
		float64(folder.resident-f.resident)/more)
	return nil
}

// restart stops the API server, drops its history, starts it again and reads our
// server's peak memory meanwhile.
func (b *bench) restart(ctx context.Context) error {
	defer b.stopServers()
	if b.api.server == nil {
		b.miss("restart: only an API server started by the benchmark is restarted")
		return nil
	}

	s, f, err := b.weigh(ctx, fromAPI(b.api.kubeconfig), b.pop.last())
	if err != nil {
		return err
	}
	if err := forgetPeak(s.pid()); err != nil {
		return fmt.Errorf("resetting the peak memory use: %w", err)
	}

	const relists = `seamark_kubernetes_relists_total\{resource="(?:services|endpointslices)"\}`
	before, err := s.metric(ctx, relists)
	if err != nil {
		return err
	}
	if err := b.api.restart(ctx); err != nil {
		return err
	}
	if err := s.awaitMetric(ctx, relists, before+2); err != nil {
		return fmt.Errorf("the server resumed its watches: %w", err)
	}

	if err := pause(ctx, b.settle()); err != nil {
		return err
	}

	after, err := memory(s.pid())
	if err != nil {
		return err
	}

	b.megabytes("restart/steady", "resident before the API server's restart", f.resident)
	b.megabytes("restart/highest", "peak at the restart", after.peak)
	b.number("restart/peak", "peak at the restart, to steady", "", float64(after.peak)/float64(f.resident))
	return nil
}
