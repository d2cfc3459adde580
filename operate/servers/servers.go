// Package servers finds the pods of running servers, for the commands that look into them, and
// reaches their directive admin by port forwards of the API server: a pod need not be reachable,
// and an admin that listens on localhost of the pod is enough.
package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/operate/adminclient"
)

const (
	// Selector has the labels of servers, in every way of installing them.
	Selector = "app.kubernetes.io/name=seamark"
	// CanaryLabel is a label of the pods of seamark canary. Behind a Service that selects by the label of
	// Selector they have the old server's value of that.
	CanaryLabel = "seamark-canary/app"
	// NodeSelector has the labels of node caches: those of NodeLocal DNSCache.
	NodeSelector = "k8s-app=node-local-dns"
	// Namespace is that of a cluster's DNS servers.
	Namespace = "kube-system"
	// Most bounds the servers that a command looks into.
	Most = 100
)

// canarySelector has the labels of servers that Selector does not find.
const canarySelector = CanaryLabel + ",app.kubernetes.io/name!=seamark"

// adminPort is the port of a pod whose arguments have none.
const adminPort = 8053

// Options select pods.
type Options struct {
	Cluster   cluster.Options
	Namespace string
	Name      string // of a single pod; "" for all with the labels
	Selector  string // "" for Selector, or NodeSelector
	Nodes     bool   // node caches in place of servers
	Port      int    // 0 for that of the pod's flag --admin, or 8053
	Timeout   time.Duration
}

// A Server is a running server.
type Server struct {
	*adminclient.Client
	Pod   cluster.Key // empty if it is not known to be a pod
	Node  string
	Ready bool // of a pod

	forwarder  *apiserver.Forwarder
	supervisor *apiserver.Forwarder // of a node cache
	timeout    time.Duration        // of a request to the supervisor
}

// Close closes the connections.
func (s *Server) Close() {
	s.Client.Close()
	for _, f := range []*apiserver.Forwarder{s.forwarder, s.supervisor} {
		if f != nil {
			f.Close()
		}
	}
}

// Label returns the name of the server beside others: that of the pod, or the address.
func (s *Server) Label() string { return cmp.Or(s.Pod.Name, s.Address()) }

// A pod has the fields of a pod that find its server.
type pod struct {
	Metadata struct {
		Namespace, Name   string
		Labels            map[string]string
		DeletionTimestamp string
	}
	Spec struct {
		NodeName   string
		Containers []struct{ Command, Args []string }
	}
	Status struct {
		Phase      string
		Conditions api.Conditions
	}
}

// Pods returns the running pods that o selects, the ready ones first, by their names. It opens no port
// forward: the first request to a server does.
func Pods(ctx context.Context, o Options) ([]*Server, error) {
	session, err := apiserver.NewSession(o.Cluster)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()

	found, err := o.find(ctx, session)
	if err != nil {
		return nil, o.explained(err)
	}

	var servers []*Server
	for _, p := range found {
		s, err := o.server(p)
		if err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	slices.SortStableFunc(servers, func(a, b *Server) int {
		return cmp.Or(cmp.Compare(unready(a), unready(b)), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return servers, nil
}

func unready(s *Server) int {
	if s.Ready {
		return 0
	}
	return 1
}

// find returns the pods that o selects: one at least.
func (o *Options) find(ctx context.Context, session *apiserver.Session) ([]pod, error) {
	path := "/api/v1/namespaces/" + url.PathEscape(o.Namespace) + "/pods"
	if o.Name != "" {
		found := make([]pod, 1)
		what := "the pod " + o.Namespace + "/" + o.Name
		return found, session.Read(ctx, path+"/"+url.PathEscape(o.Name), what, &found[0])
	}

	listed, err := o.list(ctx, session, path)
	if err != nil {
		return nil, err
	}
	running := slices.DeleteFunc(slices.Clone(listed), func(p pod) bool { return !p.running() })
	switch {
	case len(running) > Most:
		return nil, fmt.Errorf("more than %d pods of the namespace %s have the labels %s: set --pod or --selector",
			Most, o.Namespace, o.selector())
	case len(running) > 0:
		return running, nil
	case len(listed) > 0:
		return nil, fmt.Errorf("%s in the namespace %s, with the labels %s, does not run:"+
			" see kubectl -n %s describe pod %s", pods(len(listed)), o.Namespace, o.selector(), o.Namespace, listed[0].Metadata.Name)
	}
	return nil, o.none(ctx, session)
}

// pods returns a number of pods as text.
func pods(n int) string {
	if n == 1 {
		return "the pod"
	}
	return fmt.Sprintf("none of the %d pods", n)
}

// none returns the error that there are no pods, with the namespaces that have some.
func (o *Options) none(ctx context.Context, session *apiserver.Session) error {
	what := "server"
	if o.Nodes {
		what = "node cache"
	}
	err := fmt.Errorf("no %s found: no pod of the namespace %s has the labels %s", what, o.Namespace, o.selector())

	elsewhere, listError := o.list(ctx, session, "/api/v1/pods")
	if listError != nil || len(elsewhere) == 0 { // the permission is often for one namespace
		return fmt.Errorf("%w: set --namespace, --selector or --pod, or --admin for a server that is no pod", err)
	}
	namespaces := map[string]bool{}
	for _, p := range elsewhere {
		namespaces[p.Metadata.Namespace] = true
	}
	var options []string
	for name := range namespaces {
		options = append(options, "--namespace "+name)
	}
	slices.Sort(options)
	return fmt.Errorf("%w: set %s", err, strings.Join(options, " or "))
}

// list returns the pods with the labels, without those of the other kind.
func (o *Options) list(ctx context.Context, session *apiserver.Session, path string) ([]pod, error) {
	found, err := o.listSelected(ctx, session, path, o.selector())
	if err != nil || o.Nodes || o.Selector != "" {
		return found, err
	}
	more, err := o.listSelected(ctx, session, path, canarySelector)
	return append(found, more...), err
}

func (o *Options) listSelected(
	ctx context.Context, session *apiserver.Session, path, selector string,
) (found []pod, err error) {
	for next := ""; ; {
		var list struct {
			Metadata struct{ Continue string }
			Items    []pod
		}
		page := path + "?limit=500&labelSelector=" + url.QueryEscape(selector) + next
		if err := session.Read(ctx, page, "the pods with the labels "+selector, &list); err != nil {
			return nil, err
		}

		// A cluster may have thousands of node caches, which have the labels of servers.
		found = append(found, slices.DeleteFunc(list.Items, func(p pod) bool {
			return o.Selector == "" && p.isNodeCache() != o.Nodes
		})...)
		if list.Metadata.Continue == "" {
			return found, nil
		}
		next = "&continue=" + url.QueryEscape(list.Metadata.Continue)
	}
}

func (o *Options) selector() string {
	if o.Nodes {
		return cmp.Or(o.Selector, NodeSelector)
	}
	return cmp.Or(o.Selector, Selector)
}

// explained adds to an error what to do.
func (o *Options) explained(err error) error {
	e, ok := errors.AsType[*apiserver.ResponseError](err)
	switch {
	case !ok:
		return err
	case e.Code == http.StatusForbidden:
		return fmt.Errorf("%w; to find and reach servers you need the permissions to get and list pods, and to create"+
			" pods/portforward, in the namespace %s; or set --admin", err, o.Namespace)
	case e.Code == http.StatusUnauthorized:
		return fmt.Errorf("%w; the credentials of the kubeconfig have expired or are wrong: log in again, or set --context",
			err)
	case e.Code == http.StatusNotFound && o.Name != "":
		return fmt.Errorf("%w; see kubectl -n %s get pods -l %s", err, o.Namespace, o.selector())
	}
	return err
}

// server returns the server of a pod.
func (o *Options) server(p pod) (*Server, error) {
	key := cluster.Key{Namespace: p.Metadata.Namespace, Name: p.Metadata.Name}
	port := o.Port
	if port == 0 {
		var err error
		if port, err = p.adminPort(); err != nil {
			return nil, fmt.Errorf("the pod %s: %w", key, err)
		}
	}

	s := &Server{Pod: key, Node: p.Spec.NodeName, Ready: p.Status.Conditions.Ready()}
	s.forwarder = apiserver.PortForward(o.Cluster, key, port)
	var err error
	if s.Client, err = adminclient.New("localhost:"+strconv.Itoa(port), o.Timeout); err != nil {
		return nil, err
	}
	if p.isNodeCache() {
		s.supervise(o, &p)
	}
	s.SetDial(key.String()+" port "+strconv.Itoa(port), s.forwarder.Dial)
	return s, nil
}

func (p *pod) running() bool {
	return p.Status.Phase == "Running" && p.Metadata.DeletionTimestamp == ""
}

// isNodeCache reports whether the pod runs the command node: in the chart it has the name of a server.
func (p *pod) isNodeCache() bool {
	return Flag(p.words(), "localip") != ""
}

// words returns the words of the containers' command lines.
func (p *pod) words() (words []string) {
	for _, c := range p.Spec.Containers {
		words = append(append(words, c.Command...), c.Args...)
	}
	return words
}

// Flag returns the value of a flag of a command line, "" if that does not have it.
func Flag(words []string, wanted string) string {
	for i, word := range words {
		name, value, assigned := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case name != wanted || !strings.HasPrefix(word, "-"):
		case assigned:
			return value
		case i+1 < len(words):
			return words[i+1]
		}
	}
	return ""
}

// adminPort returns the port of the flag --admin, or the default.
func (p *pod) adminPort() (int, error) {
	value := Flag(p.words(), "admin")
	switch {
	case value == "":
		return adminPort, nil
	case strings.HasPrefix(value, "unix:"):
		return 0, fmt.Errorf("its admin listens on %s, which no port forward reaches: use --admin=localhost:%d there",
			value, adminPort)
	}
	port, err := strconv.Atoi(value[strings.LastIndexByte(value, ':')+1:])
	if err != nil {
		return 0, fmt.Errorf("its argument --admin has no port: %q", value)
	}
	return port, nil
}
