//go:build linux

package main

import (
	"context"
	"fmt"
)

// admin measures the cost of the directive admin: CPU under load and at 1,000 queries a
// second, where every query is recorded, and memory after that.
func (b *bench) admin(ctx context.Context) error {
	defer b.stopServers()
	address, err := freeAddress()
	if err != nil {
		return err
	}

	labels := []string{"off", "on"}
	servers := map[string]*server{}
	for _, label := range labels {
		more := "    multisocket 1\n"
		if label == "on" {
			more += fmt.Sprintf("    admin %s\n", address)
		}

		s, err := b.stock("admin "+label, b.source(), more, b.binary, "serve", "--conf")
		if err != nil {
			return err
		}

		servers[label] = s
		if err := s.await(ctx, b.pop.last()); err != nil {
			return err
		}
	}

	run := func(scenario, title string, edit func(*load)) error {
		var contenders []contender
		for _, label := range labels {
			l := b.load(servers[label], "A")
			edit(&l)
			contenders = append(contenders, contender{label, servers[label], l})
		}
		return b.compare(ctx, scenario, title, contenders)
	}
	if err := run("admin", "ClusterIP, A, without and with the directive admin", func(*load) {}); err != nil {
		return err
	}

	if err := run("admin idle", "the same, 1,000 queries a second",
		func(l *load) { l.rate, l.time = 1000, 2*b.time }); err != nil {
		return err
	}

	for _, label := range labels {
		f, err := memory(servers[label].pid())
		if err != nil {
			return err
		}
		b.megabytes("admin memory/"+label, "resident after load, admin "+label, f.resident)
	}
	return nil
}
