// Command api is the side of a benchmark that needs the Kubernetes API: a
// server to watch, objects in it, and changes to them. bench/ calls it; it is
// no part of the server and nothing to run in a cluster that is in use.
//
//	api serve DIR              run an API server with its data in DIR
//	api apply KUBECONFIG DIR   create what the YAML files of DIR describe
//	api change KUBECONFIG      write objects, and watch what is written
//	api clear KUBECONFIG       delete the namespaces that apply has made
//
// serve writes the path of a kubeconfig, and for each line "restart" of its
// input restarts the server with its history gone and writes "ready".
//
// change reads lines "PATH JSON", puts each object there, and writes
// "acked LINE VERSION NANOSECONDS" when the server has said yes: VERSION is the
// object's resourceVersion, the time that of CLOCK_MONOTONIC. Meanwhile it watches
// all EndpointSlices with nothing behind it, and answers by UDP, at the address
// that it has written first as "watching ADDRESS", which VERSION it saw last of
// the slice whose name a datagram is; "again VERSION" says that the server ended
// the watch, which goes on behind that. Both end with the input.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/seamark/seamark/kubetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(ctx, args[1])
	case len(args) == 3 && args[0] == "apply":
		return apply(ctx, args[1], args[2])
	case len(args) == 2 && args[0] == "change":
		return change(ctx, args[1], os.Stdin, os.Stdout)
	case len(args) == 2 && args[0] == "clear":
		return clearAll(ctx, args[1])
	}
	return errors.New("usage: api serve DIR | apply KUBECONFIG DIR | change KUBECONFIG | clear KUBECONFIG")
}

// serve runs the server until its input ends.
func serve(ctx context.Context, dir string) error {
	srv, err := kubetest.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer srv.Stop()
	path, err := srv.Kubeconfig()
	if err != nil {
		return err
	}
	fmt.Println(path)
	orders := make(chan string)
	go func() { // ends with the process: a read of standard input cannot be ended
		defer close(orders)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			orders <- in.Text()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case order, ok := <-orders:
			if !ok {
				return nil
			}
			if order != "restart" {
				return fmt.Errorf("unknown order %q", order)
			}
			if err := restart(ctx, srv, path); err != nil {
				return err
			}
			fmt.Println("ready")
		}
	}
}

// restart brings the server back with nothing that a watch could go on from.
// Something else has to happen first: a client whose last event is the last of
// all has missed nothing.
func restart(ctx context.Context, srv *kubetest.Server, kubeconfig string) error {
	client, err := newClient(kubeconfig)
	if err != nil {
		return err
	}
	const other = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"other-","namespace":"default"}}`
	for range 10 {
		o := object{kind: "ConfigMap", path: "/api/v1/namespaces/default/configmaps", body: []byte(other)}
		if err := create(ctx, client, o); err != nil {
			return err
		}
	}
	if err := srv.Compact(ctx); err != nil {
		return err
	}
	srv.StopAPI()
	return srv.StartAPI(ctx)
}
