// Command api runs the Kubernetes API machinery for tests and benchmarks: a server
// to watch, objects in it, and changes to them. It is not part of the DNS server and
// must not be run against a cluster in use, except apply and clear, which use
// namespaces of their own.
//
//	api control                run the commands of a test on standard input
//	api serve DIR              run an API server with its data in DIR
//	api apply KUBECONFIG DIR   create the objects of the YAML files in DIR
//	api change KUBECONFIG      write objects, and watch them
//	api watch KUBECONFIG N     watch all EndpointSlices as N servers
//	api clear KUBECONFIG       delete the namespaces that apply created
//	api etcd FLAGS             run etcd itself
//
// control speaks the protocol of package control.
//
// serve writes the path of a kubeconfig. For each line "restart" of its input it
// restarts the server without its history, for each line "resume" with it, and writes "ready".
//
// change reads lines "PATH JSON", puts each object there, and writes "acked LINE
// VERSION NANOSECONDS" when the server has acknowledged it: VERSION is the object's
// resourceVersion, NANOSECONDS the time of CLOCK_MONOTONIC. Meanwhile it watches
// all EndpointSlices and writes "watching ADDRESS": over UDP at that address it
// replies to a slice's name with the VERSION that the watch saw last. It writes
// "again VERSION" when the server ended the watch, which continues from there.
//
// watch writes "watching" when its watches have begun. serve, change and watch end with their input.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"google.golang.org/grpc/grpclog"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seamark/seamark/kubetest/machinery"
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
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	switch {
	case len(args) > 0 && args[0] == "etcd":
		etcdmain.Main(args)
		return nil
	case len(args) == 1 && args[0] == "control":
		return serveControl()
	case len(args) == 2 && args[0] == "serve":
		return serve(ctx, args[1])
	case len(args) == 3 && args[0] == "apply":
		return apply(ctx, args[1], args[2])
	case len(args) == 2 && args[0] == "change":
		return change(ctx, args[1], os.Stdin, os.Stdout)
	case len(args) == 3 && args[0] == "watch":
		number, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return watchMany(ctx, args[1], number, os.Stdin, os.Stdout)
	case len(args) == 2 && args[0] == "clear":
		return clearAll(ctx, args[1])
	}
	return errors.New("usage: api control | serve DIR | apply KUBECONFIG DIR | change KUBECONFIG | watch KUBECONFIG N | " +
		"clear KUBECONFIG | etcd FLAGS")
}

// serve runs the server until its input ends.
func serve(ctx context.Context, dir string) error {
	srv, err := machinery.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer srv.Stop()

	path, err := writeKubeconfig(dir, srv)
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
			if order != "restart" && order != "resume" {
				return fmt.Errorf("unknown order %q", order)
			}
			if order == "restart" {
				err = forget(ctx, srv, path)
			}

			if err == nil {
				err = restart(ctx, srv)
			}
			if err != nil {
				return err
			}

			fmt.Println("ready")
		}
	}
}

// writeKubeconfig writes a kubeconfig for srv into dir and returns its path.
func writeKubeconfig(dir string, srv *machinery.Server) (string, error) {
	path := filepath.Join(dir, "kubeconfig")
	ca, _, _ := srv.Certificates()
	config := clientcmdapi.NewConfig()
	config.Clusters["api"] = &clientcmdapi.Cluster{Server: srv.URL(), CertificateAuthorityData: ca}
	config.AuthInfos["api"] = clientcmdapi.NewAuthInfo()
	config.Contexts["api"] = &clientcmdapi.Context{Cluster: "api", AuthInfo: "api"}
	config.CurrentContext = "api"
	return path, clientcmd.WriteToFile(*config, path)
}

// forget deletes the history that a watch could resume from once the server has restarted.
// It writes other objects first, so that the revision of a client's last event is
// older than the history.
func forget(ctx context.Context, srv *machinery.Server, kubeconfig string) error {
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
	return srv.Compact(ctx)
}

func restart(ctx context.Context, srv *machinery.Server) error {
	srv.StopAPI()
	return srv.StartAPI(ctx)
}
