package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/sys/clock"
	"github.com/seamark/seamark/transport"
)

const (
	// readyWait is how long queries wait in inherited sockets until the server is
	// ready: shorter than the time for which resolvers wait for a reply, 5 s.
	readyWait = 4 * time.Second
	// takeoverWait is how long that may take while the old process answers.
	takeoverWait = 50 * time.Second
)

// InheritSockets returns the sockets that systemd has opened for the process (socket
// activation, sd_listen_fds(3)), or nil if there are none. It removes the environment
// variables, so only the first call returns any.
func InheritSockets() (*transport.Inherited, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil
	}
	in := new(transport.Inherited)
	return in, in.Add(true, files...)
}

// notifySystemd tells systemd that the server answers queries (sd_notify(3)), for units of type notify:
// what is ordered after the unit starts then.
func notifySystemd(log *slog.Logger) {
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		log.Warn("systemd is not told that the server answers", "error", err)
	}
}

// refuseUnused adds listeners without zones for sockets that stay open in another
// process and that no server block uses: a client is refused at once, where it would
// wait for an answer from a socket that is not read.
func (p *Plan) refuseUnused(ctx context.Context) {
	for _, address := range p.opts.Inherited.Addresses(true) {
		if p.listener(address) != nil {
			continue
		}
		s := &site{scheme: config.DNS, addr: address}
		l, err := p.listen(ctx, s)
		if err != nil {
			p.opts.Log.Warn("Inherited socket is not used: no server block listens there",
				"address", address, "error", err)
			continue
		}
		p.opts.Log.Warn("Queries to an inherited socket are refused: no server block listens there", "address", address)
		p.sites, p.listeners = append(p.sites, s), append(p.listeners, l)
	}
}

// WaitUntilReady blocks until every directive is ready. Queries wait in the inherited
// sockets meanwhile, which is better than SERVFAIL, but not for longer than readyWait.
// If another process answers them, the server is not started unless it is ready.
func (p *Plan) WaitUntilReady(ctx context.Context) error {
	start := time.Now()
	for {
		unready := p.unready()
		if len(unready) == 0 || ctx.Err() != nil {
			return ctx.Err()
		}

		answered, err := p.taken.oldAnswers()
		switch waited := time.Since(start); {
		case err != nil:
			return err
		case answered && waited > takeoverWait:
			return fmt.Errorf("not ready after %s: %s; the old process continues to serve",
				takeoverWait, strings.Join(unready, ", "))
		case !answered && waited > readyWait:
			p.opts.Log.Warn("Answering before all directives are ready", "duration", readyWait)
			return nil
		}

		clock.Sleep(ctx, 10*time.Millisecond)
	}
}

// unready returns the directives that are not ready, with the reasons.
func (p *Plan) unready() (names []string) {
	for _, b := range p.blocks {
		for _, h := range config.Find[interface{ Ready() bool }](b) {
			if !h.Ready() {
				names = append(names, strings.TrimSuffix(b.NameOf(h)+": "+config.WhyUnready(h), ": "))
			}
		}
	}
	return names
}
