package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/operate/adminclient"
	"github.com/seamark/seamark/operate/servers"
	"github.com/seamark/seamark/sys/clock"
	"github.com/spf13/cobra"
)

// adminFlags are the flags of the commands that look into running servers by their directive
// admin: on this machine, at addresses, or in the pods of a cluster.
type adminFlags struct {
	addresses         []string
	tokenFile, output string
	timeout           time.Duration
	local             []string // what localServer has found, if looked
	looked            bool

	cluster                  sourceFlags
	namespace, pod, selector string
	port                     int
	nodes                    bool
	podFlag                  string // the name of the flag of pod
	changed                  func(flag string) bool
}

const (
	adminUsage = "`ADDRESS` of a server: URL, HOST:PORT or unix:PATH"
	// unitSocket is the address of the server of the packages' systemd unit.
	unitSocket = "/run/seamark/admin.sock"
	localWait  = time.Second // for a connection to a server of this machine
)

// findServers describes in the help of commands which servers they look into.
const findServers = `It looks into the servers at --admin. Without it, this is the server of this machine
(localhost:8053, or that of the systemd unit), or else all pods of the current kubeconfig
context in the namespace kube-system with the label app.kubernetes.io/name=seamark, through
port forwards of the API server. --namespace, --pod, --selector, --context and --nodes (the caches of
the nodes) select others. The servers need the flag --admin or the directive admin.`

func (a *adminFlags) flags(c *cobra.Command) { a.flagsWithPod(c, "pod") }

// flagsWithPod is flags with another name of the flag of a pod.
func (a *adminFlags) flagsWithPod(c *cobra.Command, pod string) {
	a.podFlag, a.changed = pod, c.Flags().Changed
	f := c.Flags()
	f.SortFlags = false
	f.StringArrayVar(&a.addresses, "admin", nil, adminUsage+"; may be repeated (default: find servers)")
	f.StringVar(&a.tokenFile, "token-file", "",
		"`FILE` with the token of the server (default: $"+adminclient.TokenVariable+")")
	f.StringVarP(&a.namespace, "namespace", "n", servers.Namespace, "`NAMESPACE` of the servers' pods")
	f.StringVar(&a.pod, pod, "", "look into this pod: `[NAMESPACE/]NAME`")
	f.StringVar(&a.selector, "selector", "", "`LABELS` of the servers' pods (default "+servers.Selector+
		", with --nodes "+servers.NodeSelector+")")
	f.BoolVar(&a.nodes, "nodes", false, "look into the caches of the nodes")
	f.IntVar(&a.port, "port", 0, "`PORT` of admin in the pods (default: that of their flag --admin, or 8053)")
	a.cluster.flags(c)
	f.DurationVar(&a.timeout, "timeout", 10*time.Second, "how long to wait for a server")
}

// check returns the errors of the command line.
func (a *adminFlags) check() error {
	switch {
	case a.timeout <= 0:
		return fmt.Errorf("--timeout: want a positive duration, got %v", a.timeout)
	case len(a.addresses) > servers.Most:
		return fmt.Errorf("--admin: want at most %d servers, got %d", servers.Most, len(a.addresses))
	case a.changed("port") && (a.port < 1 || a.port > 65535):
		return fmt.Errorf("--port: want 1..65535, got %d", a.port)
	case a.pod != "" && (a.nodes || a.selector != ""):
		return fmt.Errorf("--%s is one pod: leave out --nodes and --selector", a.podFlag)
	}

	key, isKey := a.podKey()
	switch {
	case !isKey && a.pod == "":
		return fmt.Errorf("--namespace: want the name of a namespace, got %q", a.namespace)
	case !isKey:
		return fmt.Errorf("--%s: want NAME or NAMESPACE/NAME, got %q", a.podFlag, a.pod)
	case a.changed("namespace") && key.Namespace != a.namespace:
		return fmt.Errorf("--%s %s and --namespace %s contradict each other", a.podFlag, a.pod, a.namespace)
	}

	podFlags := []string{"namespace", a.podFlag, "selector", "nodes", "port"}
	if i := slices.IndexFunc(podFlags, a.changed); i >= 0 && len(a.addresses) > 0 {
		return fmt.Errorf("set only one of --admin and --%s", podFlags[i])
	}
	return oneOf("output", cmp.Or(a.output, "text"), "text", "json")
}

// inCluster reports whether the flags are for the pods of a cluster.
func (a *adminFlags) inCluster() bool {
	flags := []string{"namespace", a.podFlag, "selector", "nodes", "port", "kubeconfig", "context"}
	return slices.ContainsFunc(flags, a.changed)
}

// find returns the servers that the flags select, at least one, and a function that closes their
// connections.
func (a *adminFlags) find(ctx context.Context) (found []*servers.Server, stop func(), err error) {
	if err := a.check(); err != nil {
		return nil, nil, err
	}
	addresses := a.addresses
	if len(addresses) == 0 && !a.inCluster() {
		if !a.looked { // a later call finds the same, or other pods
			a.local, a.looked = localServer(ctx), true
		}
		addresses = a.local
	}

	if len(addresses) == 0 {
		if found, err = a.pods(ctx); err != nil {
			return nil, nil, failure{err}
		}
	}
	for _, address := range addresses {
		c, err := adminclient.New(address, a.timeout)
		if err != nil {
			return nil, nil, fmt.Errorf("--admin: %w", err)
		}
		found = append(found, &servers.Server{Client: c})
	}

	for _, s := range found {
		if a.tokenFile == "" {
			break
		}
		if err := s.ReadToken(a.tokenFile); err != nil {
			return nil, nil, failure{err}
		}
	}
	return found, func() {
		for _, s := range found {
			s.Close()
		}
	}, nil
}

// findAgain is how long a command with --watch shows the servers that it has found: new ones come with a rollout, and
// with more replicas.
const findAgain = 30 * time.Second

// watchServers calls show with the servers that the flags select, with --watch again and again: see watch. It finds
// them anew from time to time, and as soon as show reports that not all of them answer.
func (p *program) watchServers(
	ctx context.Context, a *adminFlags, s screen, show func([]*servers.Server) (all bool, err error),
) error {
	found, stop, err := a.find(ctx)
	if err != nil {
		return err
	}
	defer func() { stop() }()

	at, all := clock.Now(), true
	return p.watch(ctx, s, func() error {
		if now := clock.Now(); !all || now-at >= findAgain {
			at = now
			again, stopAgain, err := a.find(ctx)
			if err != nil && !all {
				return err
			}
			if err == nil {
				stop()
				found, stop = again, stopAgain
			}
		}

		all, err = show(found)
		return err
	})
}

// localServer returns the address of a server of this machine, if one listens.
func localServer(ctx context.Context) []string {
	dialer := net.Dialer{Timeout: localWait}
	for _, at := range [][3]string{
		{"tcp", "localhost:8053", adminclient.Default}, {"unix", unitSocket, "unix:" + unitSocket},
	} {
		conn, err := dialer.DialContext(ctx, at[0], at[1])
		if err == nil {
			_ = conn.Close()
		}
		if err == nil || errors.Is(err, os.ErrPermission) { // the socket is root's: the error of the request says so
			return []string{at[2]}
		}
	}
	return nil
}

// pods returns the servers of a cluster.
func (a *adminFlags) pods(ctx context.Context) ([]*servers.Server, error) {
	o, err := a.cluster.options()
	if err != nil && !a.inCluster() {
		return nil, fmt.Errorf("no server at localhost:8053, and %w, for the pods of a cluster;"+
			" start a server of this machine with --admin localhost:8053, or set --admin ADDRESS", err)
	} else if err != nil {
		return nil, err
	}

	key, _ := a.podKey()
	s := servers.Options{
		Cluster: o, Namespace: key.Namespace, Selector: a.selector, Nodes: a.nodes, Port: a.port, Timeout: a.timeout,
	}
	if a.pod != "" {
		s.Name = key.Name
	}
	return servers.Pods(ctx, s)
}

// podKey returns the namespace and the pod of the flags. The name is any without the flag of a pod.
func (a *adminFlags) podKey() (cluster.Key, bool) {
	switch {
	case a.pod == "":
		return cluster.ParseKey(a.namespace + "/any")
	case strings.Contains(a.pod, "/"):
		return cluster.ParseKey(a.pod)
	}
	return cluster.ParseKey(a.namespace + "/" + a.pod)
}

// A reply is what a server has answered.
type reply[T any] struct {
	server *servers.Server
	value  T
	err    error
}

// askAll calls ask for each server at the same time.
func askAll[T any](found []*servers.Server, ask func(*servers.Server) (T, error)) []reply[T] {
	replies := make([]reply[T], len(found))
	var all sync.WaitGroup
	for i, s := range found {
		replies[i].server = s
		all.Go(func() { replies[i].value, replies[i].err = ask(s) })
	}
	all.Wait()
	return replies
}

// answered returns the replies of the servers that answer, and prints the errors of the others. It
// fails if no server answers.
func answered[T any](w io.Writer, replies []reply[T]) ([]reply[T], error) {
	good := slices.DeleteFunc(slices.Clone(replies), func(r reply[T]) bool { return r.err != nil })
	for _, r := range replies {
		switch {
		case r.err == nil:
		case len(good) == 0:
			return nil, failure{r.err}
		default:
			fmt.Fprintf(w, "%s\n", visible(r.err.Error()))
		}
	}
	if missing := len(replies) - len(good); missing > 0 {
		fmt.Fprintf(w, "%d of %d servers do not answer: the rest is shown\n", missing, len(replies))
	}
	return good, nil
}

// partial is the outcome of a command that has shown the replies of some servers only.
func partial(asked, good int) error {
	if good < asked {
		return different{}
	}
	return nil
}

// serverName returns the name of a server beside others, "" if it is the only one.
func serverName(found []*servers.Server, s *servers.Server) string {
	if len(found) == 1 {
		return ""
	}
	return s.Label()
}
