package main

import (
	"context"
	"errors"
	"io"
	"net/rpc"
	"os"

	"github.com/seamark/seamark/kubetest/control"
	"github.com/seamark/seamark/kubetest/machinery"
)

// errNotStarted is the error of a command before Start or StartEtcd.
var errNotStarted = errors.New("nothing was started")

// commands implements [control.Commands].
type commands struct {
	server *machinery.Server
	etcd   *machinery.EtcdCluster
}

var _ control.Commands = (*commands)(nil)

// serveControl runs the commands of a test until the end of standard input.
func serveControl() error {
	c := &commands{}
	s := rpc.NewServer()
	if err := s.RegisterName(control.Service, c); err != nil {
		return err
	}
	s.ServeConn(struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout})
	if c.server != nil {
		c.server.Stop()
	}
	if c.etcd != nil {
		c.etcd.Stop()
	}
	return nil
}

func (c *commands) Start(a control.StartArgs, reply *control.Server) error {
	return bounded(a.Wait, func(ctx context.Context) (err error) {
		if c.server, err = machinery.Start(ctx, a.Dir); err != nil {
			return err
		}
		reply.URL = c.server.URL()
		reply.CA, reply.Cert, reply.Key = c.server.Certificates()
		return nil
	})
}

func (c *commands) StartAPI(w control.Wait, _ *control.None) error {
	return c.withServer(w, c.server.StartAPI)
}

func (c *commands) StopAPI(_ control.None, _ *control.None) error {
	if c.server == nil {
		return errNotStarted
	}
	c.server.StopAPI()
	return nil
}

func (c *commands) CompactAPI(w control.Wait, _ *control.None) error {
	return c.withServer(w, c.server.Compact)
}

func (c *commands) StartEtcd(a control.StartEtcdArgs, reply *control.Etcd) error {
	return bounded(a.Wait, func(ctx context.Context) (err error) {
		if c.etcd, err = machinery.StartEtcdCluster(ctx, a.Dir, a.Options); err != nil {
			return err
		}
		reply.Endpoints = c.etcd.Endpoints()
		reply.Cert, reply.Key, reply.CA = c.etcd.ClientTLS()
		return nil
	})
}

func (c *commands) Kill(member int, _ *control.None) error {
	return c.withEtcd(control.Wait{}, func(context.Context) error {
		c.etcd.Kill(member)
		return nil
	})
}

func (c *commands) Restart(a control.MemberArgs, _ *control.None) error {
	return c.withEtcd(a.Wait, func(ctx context.Context) error { return c.etcd.Restart(ctx, a.Member) })
}

func (c *commands) Direct(_ control.None, reply *[]string) error {
	return c.withEtcd(control.Wait{}, func(context.Context) error {
		*reply = c.etcd.Direct()
		return nil
	})
}

func (c *commands) Clients(a control.FaultArgs, _ *control.None) error {
	return c.withEtcd(control.Wait{}, func(context.Context) error {
		c.etcd.Clients(a.Member, a.Fault)
		return nil
	})
}

func (c *commands) Link(a control.FaultArgs, _ *control.None) error {
	return c.withEtcd(control.Wait{}, func(context.Context) error {
		c.etcd.Link(a.Member, a.Other, a.Fault)
		return nil
	})
}

func (c *commands) Leader(a control.LeaderArgs, reply *int) error {
	return c.withEtcd(a.Wait, func(ctx context.Context) (err error) {
		*reply, err = c.etcd.Leader(ctx, a.Except...)
		return err
	})
}

func (c *commands) Lead(a control.MemberArgs, _ *control.None) error {
	return c.withEtcd(a.Wait, func(ctx context.Context) error { return c.etcd.Lead(ctx, a.Member) })
}

func (c *commands) Compact(w control.Wait, reply *int64) error {
	return c.withEtcd(w, func(ctx context.Context) (err error) {
		*reply, err = c.etcd.Compact(ctx)
		return err
	})
}

func (c *commands) Fill(w control.Wait, _ *control.None) error { return c.withEtcd(w, c.etcd.Fill) }

func (c *commands) Free(w control.Wait, _ *control.None) error { return c.withEtcd(w, c.etcd.Free) }

func (c *commands) withServer(w control.Wait, do func(context.Context) error) error {
	if c.server == nil {
		return errNotStarted
	}
	return bounded(w, do)
}

func (c *commands) withEtcd(w control.Wait, do func(context.Context) error) error {
	if c.etcd == nil {
		return errNotStarted
	}
	return bounded(w, do)
}

// bounded calls do with a context that ends after the timeout.
func bounded(w control.Wait, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.Timeout)
	defer cancel()
	return do(ctx)
}
