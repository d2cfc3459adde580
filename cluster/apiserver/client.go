package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/sys/redact"
	"github.com/seamark/seamark/sys/watch"
)

// QuietKlog silences the log of client-go, which goes to standard error in its own
// format and repeats every failure; the feeds log the relevant ones. The log is
// global to the process, so the command calls QuietKlog once, before anything else.
func QuietKlog() { klog.SetLogger(klog.Logger{}) }

// A client sends requests to the API server that the options name. It does not use
// client-go's typed clientset, which would add every type of Kubernetes to the binary
// and to the heap.
type client struct {
	opts     cluster.Options
	reporter *reporter
	limits   *limits
	dial     Dial

	mu         sync.Mutex
	kubeconfig fileVersion
	config     *rest.Config
	http       *http.Client
	connector  *connector   // of http
	probes     *http.Client // has connections of its own
	probers    map[string]*prober
	versions   map[string]int // by resource: the index in Versions of the version that is requested, if not 0

	probeBackoff probeBackoff
}

// A fileVersion changes when a file is written.
type fileVersion struct {
	modTime time.Time
	size    int64
}

// A Dial opens a connection to an API server.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

func newClient(opts cluster.Options, reporter *reporter, dial Dial) *client {
	if dial == nil {
		// TCP detects a dead peer within a minute; for HTTPS client-go uses HTTP/2 pings
		// too, after 30 s of silence and with 15 s to reply.
		alive := net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAliveConfig: alive}).DialContext
	}
	return &client{opts: opts, reporter: reporter, limits: newLimits(opts), dial: dial,
		probers: map[string]*prober{}, versions: map[string]int{}}
}

// restClient returns a client for lists or watches, by the verb, of one resource. The
// detector supervises its requests, if it is not nil.
// An error means that the configuration cannot be used yet: the file may still be
// mounted or corrected, so it is read again whenever it has changed.
func (c *client) restClient(r api.Resource, verb string, detector *stallDetector) (rest.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		c.reporter.problem("config", err.Error(), "API server address unknown, retrying", "error", err)
		return nil, unavailableError{err.Error(), true}
	}
	c.reporter.recovered("config", "API server address known", "address", redact.URL(c.config.Host))

	if r.IsCustom() {
		r = r.In(r.Versions[c.versions[r.String()]])
	}

	config := *c.config
	config.GroupVersion = &r.Group
	config.APIPath = "/apis"
	if r.Group.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = negotiatedSerializer{r}
	if r.IsCustom() {
		// Custom resources have no other form.
		config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	}
	if r.MetadataOnly {
		alone := ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
		if verb == "list" {
			alone = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,"
		}
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + alone + runtime.ContentTypeJSON + alone +
			config.AcceptContentTypes
	}

	supervised := *c.http
	supervised.Transport = &transport{c.connector, c.limits, detector, c.reporter}
	return rest.RESTClientForConfigAndClient(&config, &supervised)
}

// otherVersion changes the version that is requested of a custom resource, unless another feed has
// done so, since the API server does not have this one.
func (c *client) otherVersion(r api.Resource, missing schema.GroupVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.versions[r.String()]
	if r.Versions[now] == missing {
		c.versions[r.String()] = (now + 1) % len(r.Versions)
	}
}

// load creates the configuration and the HTTP client unless they exist and the
// kubeconfig has not changed.
func (c *client) load() error {
	var now fileVersion
	if c.opts.Kubeconfig != "" {
		info, err := os.Stat(c.opts.Kubeconfig)
		if err != nil {
			return fmt.Errorf("reading kubeconfig: %w", err) // the error names the file
		}
		now = fileVersion{info.ModTime(), info.Size()}
	}
	if c.http != nil && now == c.kubeconfig {
		return nil
	}

	// client-go would block on a FIFO.
	for _, path := range []string{c.opts.Kubeconfig, c.opts.Cert, c.opts.Key, c.opts.CA} {
		if path == "" {
			continue
		}
		if _, err := watch.ReadKey(path); err != nil {
			return err
		}
	}
	config, err := restConfig(c.opts)
	if err != nil {
		return err
	}
	config.UserAgent = userAgent()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.QPS = -1 // no limit of client-go's: see limits

	// With a function for proxies client-go does not cache the transport. Its cache would
	// keep the transport and the client forever, since Dial refers to the client.
	config.Proxy = http.ProxyFromEnvironment
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed, err := c.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: dialed}, nil
	}

	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("setting up the connection: %w", err)
	}
	probes, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("setting up the connection: %w", err)
	}

	// An API server never redirects: a server that does is not one.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.closeIdle()
	c.kubeconfig, c.config, c.http, c.probes = now, config, client, probes
	c.connector = newConnector(client.Transport)
	return nil
}

// closeIdle closes the connections that no request uses.
func (c *client) closeIdle() {
	if c.http != nil {
		utilnet.CloseIdleConnectionsFor(c.http.Transport)
	}
}

// restConfig returns the API server's address and the credentials.
func restConfig(o cluster.Options) (*rest.Config, error) {
	switch {
	case o.Kubeconfig != "":
		file, err := clientcmd.LoadFromFile(o.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("reading kubeconfig %s: %w", o.Kubeconfig, err)
		}
		if err := clientcmd.ResolveLocalPaths(file); err != nil {
			return nil, fmt.Errorf("reading kubeconfig %s: %w", o.Kubeconfig, err)
		}

		none := &clientcmd.ConfigOverrides{}
		config, err := clientcmd.NewNonInteractiveClientConfig(*file, o.KubeconfigContext, none, nil).ClientConfig()
		if clientcmd.IsEmptyConfig(err) {
			// client-go's error has advice for other programs.
			err = errors.New("it has no current context, or that context has no cluster")
		}
		if err != nil {
			return nil, fmt.Errorf("reading kubeconfig %s: %w", o.Kubeconfig, err)
		}
		return config, nil

	case o.Endpoint != "":
		files := rest.TLSClientConfig{CertFile: o.Cert, KeyFile: o.Key, CAFile: o.CA}
		return &rest.Config{Host: o.Endpoint, TLSClientConfig: files}, nil
	}

	config, err := rest.InClusterConfig() // it rereads the token file
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("not in a pod (KUBERNETES_SERVICE_HOST is not set): " +
			"name an endpoint, a kubeconfig or a folder of manifests")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the pod's service account: %w", err)
	}
	return config, nil
}

// FindContext returns the file that has a context, and the name of the context: the current
// one if name is empty. kubectl merges the files; FindContext does not, so a context whose
// cluster or user is in another file cannot be used.
func FindContext(files []string, name string) (file, context string, err error) {
	configs := make([]*clientcmdapi.Config, len(files))
	for i, file := range files {
		if configs[i], err = clientcmd.LoadFromFile(file); err != nil {
			return "", "", fmt.Errorf("reading kubeconfig %s: %w", file, err)
		}
		name = cmp.Or(name, configs[i].CurrentContext)
	}
	for i, config := range configs {
		if config.Contexts[name] != nil {
			return files[i], name, nil
		}
	}
	return "", "", fmt.Errorf("no context %q in the kubeconfigs %s", name, strings.Join(files, ", "))
}

func userAgent() string {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = info.Main.Version
	}
	return "seamark/" + version
}
