package cmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/observe/status"
	"github.com/seamark/seamark/operate/adminclient"
	"github.com/spf13/cobra"
)

// uiFlags are the flags of the command ui.
type uiFlags struct {
	admin, tokenFile, namespace, selector, pod string
	port                                       int
	noBrowser                                  bool
	timeout                                    time.Duration
	source                                     sourceFlags
}

func (p *program) uiCommand() *cobra.Command {
	var u uiFlags
	c := &cobra.Command{
		Use:   "ui",
		Short: "Open the web page of a running server in a browser",
		Long: `Ui opens the web page of a server's directive admin. Without --admin it chooses a ready pod
with the labels of --selector, and forwards the port of its directive admin through the API
server, as kubectl port-forward does: the pod need not be reachable, and an admin that listens
on localhost of the pod is enough.

The page is served on a random port of this machine's loopback interface, until Ctrl-C. The
command adds the token. The printed URL has a secret and can be opened once; it gives the
browser a cookie that all other requests must have, so that other users of the machine and
other web sites cannot use the page. Start the command again to open another browser.`,
		Example: `  seamark ui
  seamark ui --pod kube-system/seamark-6d8f
  seamark ui --admin unix:/run/seamark/admin.sock
  seamark ui --admin dns.example.org:8053 --token-file token --no-browser`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return p.ui(c.Context(), &u) },
	}

	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&u.admin, "admin", "", adminUsage+" (default: a pod of the cluster)")
	tokenFlag(c, &u.tokenFile)
	f.BoolVar(&u.noBrowser, "no-browser", false, "print the URL only")
	f.StringVar(&u.pod, "pod", "", "forward to this pod, `NAMESPACE/NAME`")
	f.StringVar(&u.namespace, "namespace", "kube-system", "`NAMESPACE` of the pods to choose from")
	f.StringVar(&u.selector, "selector", "app.kubernetes.io/name=seamark", "`LABELS` of the pods to choose from")
	f.IntVar(&u.port, "port", 8053, "`PORT` of the directive admin in the pod")
	f.DurationVar(&u.timeout, "timeout", 10*time.Second, "how long to wait for the server")
	u.source.flags(c)
	return c
}

func (p *program) ui(ctx context.Context, u *uiFlags) error {
	pod, isPod := objectKey(u.pod)
	switch {
	case u.timeout <= 0:
		return fmt.Errorf("--timeout: want a positive duration, got %v", u.timeout)
	case u.pod != "" && !isPod:
		return fmt.Errorf("--pod: want NAMESPACE/NAME, got %q", u.pod)
	case u.admin != "" && u.pod != "":
		return errors.New("set only one of --admin and --pod")
	case u.port < 1 || u.port > 65535:
		return fmt.Errorf("--port: want 1..65535, got %d", u.port)
	}

	var client *adminclient.Client
	var err error
	if u.admin != "" {
		client, err = newAdminClient(u.admin, u.tokenFile, u.timeout)
	} else {
		var forwarder *apiserver.Forwarder
		if forwarder, pod, err = u.forward(ctx, pod); err != nil {
			return failure{err}
		}
		defer forwarder.Close()
		client, err = newAdminClient(net.JoinHostPort("localhost", strconv.Itoa(u.port)), u.tokenFile, u.timeout)
		if err == nil {
			client.SetDial(pod.String()+" port "+strconv.Itoa(u.port), forwarder.Dial)
		}
	}
	if err != nil {
		return err
	}
	defer client.Close()

	if _, err := client.Status(ctx); err != nil {
		return failure{err}
	}
	return p.serveUI(ctx, client.NewProxy(), client.Address(), u.noBrowser)
}

// forward returns a forwarder to a pod, or to one that is ready if it is empty.
func (u *uiFlags) forward(ctx context.Context, pod cluster.Key) (*apiserver.Forwarder, cluster.Key, error) {
	o, err := u.source.options()
	if err != nil {
		return nil, pod, fmt.Errorf("%w, or --admin to open the page of a server that is no pod", err)
	}
	if pod.Name == "" {
		if pod, err = u.readyPod(ctx, o); err != nil {
			return nil, pod, err
		}
	}
	return apiserver.PortForward(o, pod, u.port), pod, nil
}

func (u *uiFlags) readyPod(ctx context.Context, o cluster.Options) (pod cluster.Key, err error) {
	session, err := apiserver.NewSession(o)
	if err != nil {
		return pod, err
	}
	defer session.Close()

	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	pod, ok, err := readyPod(ctx, session, u.namespace, u.selector)
	if err == nil && !ok {
		err = fmt.Errorf("no ready pod in %s has the labels %s: set --namespace and --selector, --pod or --admin",
			u.namespace, u.selector)
	}
	return pod, err
}

// serveUI serves the page until ctx ends.
func (p *program) serveUI(ctx context.Context, proxy *adminclient.Proxy, name string, noBrowser bool) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return failure{err}
	}
	proxy.Host = l.Addr().String()
	conns := status.NewConnections(nil, nil)
	defer conns.Stop()
	s := status.NewServer(proxy)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(conns.Limit(l)) }()

	fmt.Fprintf(p.out, "%s\n", proxy.URL())
	fmt.Fprintf(p.err, "Serving the page of %s. Ctrl-C ends.\n", name)
	if !noBrowser {
		if err := openBrowser(ctx, proxy.URL()); err != nil {
			fmt.Fprintf(p.err, "Opening a browser failed, open the URL yourself: %v\n", err)
		}
	}

	select {
	case <-ctx.Done():
		_ = s.Close()
		<-ended
		return nil
	case err := <-ended:
		return failure{err}
	}
}

// browserTimeout is how long the program that opens a browser may take.
const browserTimeout = 10 * time.Second

// openBrowser opens a URL in the user's browser.
func openBrowser(ctx context.Context, url string) error {
	words := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		words = []string{"open"}
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	ctx, cancel := context.WithTimeout(ctx, browserTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, words[0], append(words[1:], url)...)
	if err := c.Start(); err != nil {
		return err
	}
	err := c.Wait()
	if ctx.Err() != nil { // it may run as long as the browser
		return nil
	}
	return err
}
