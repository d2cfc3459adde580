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

// errNotStarted is the error of a command before Start.
var errNotStarted = errors.New("nothing was started")

// commands are the methods of [control.Machinery].
type commands struct {
	rpc    *rpc.Server
	server *machinery.Server
	etcd   *machinery.EtcdCluster
}

// serveControl runs the commands of a test until the end of standard input.
func serveControl() error {
	c := &commands{rpc: rpc.NewServer()}
	if err := c.rpc.RegisterName(control.Machinery, c); err != nil {
		return err
	}
	c.rpc.ServeConn(struct {
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

// Start runs an API server and its etcd.
func (c *commands) Start(a control.StartArgs, reply *control.Server) (err error) {
	ctx, cancel := a.Context()
	defer cancel()
	if c.server, err = machinery.Start(ctx, a.Dir); err != nil {
		return err
	}
	reply.URL = c.server.URL()
	reply.CA, reply.Cert, reply.Key = c.server.Certificates()
	return nil
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

// StartEtcd runs an etcd cluster, whose methods are commands from then on.
func (c *commands) StartEtcd(a control.StartEtcdArgs, reply *control.Etcd) (err error) {
	ctx, cancel := a.Context()
	defer cancel()
	if c.etcd, err = machinery.StartEtcdCluster(ctx, a.Dir, a.Options); err != nil {
		return err
	}
	reply.Endpoints = c.etcd.Endpoints()
	reply.Cert, reply.Key, reply.CA = c.etcd.ClientTLS()
	return c.rpc.RegisterName(control.EtcdName, c.etcd)
}

func (c *commands) withServer(w control.Wait, do func(context.Context) error) error {
	if c.server == nil {
		return errNotStarted
	}
	ctx, cancel := w.Context()
	defer cancel()
	return do(ctx)
}
