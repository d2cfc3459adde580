package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
)

// Setup reads the directive
//
//	kubernetes [ZONES…] {
//	    endpoint URL                       # an API server; http:// may be a kubectl proxy
//	    tls CERT KEY CA                    # files, for endpoint
//	    kubeconfig FILE [CONTEXT]          # wins over endpoint
//	    manifests DIR                      # a folder of YAML and JSON instead of a cluster
//	    namespaces NAMESPACE…              # only these
//	    namespace_labels EXPRESSION        # only namespaces with these labels
//	    labels EXPRESSION                  # only Services, EndpointSlices and Pods with these
//	    pods disabled|insecure|verified    # names of pods by their address; disabled
//	    endpoint_pod_names                 # an endpoint without hostname is called like its pod
//	    ttl SECONDS                        # 0 to 3600; 5
//	    noendpoints                        # do not watch EndpointSlices
//	    fallthrough [ZONES…]               # names that do not exist are asked of the next handler
//	    ignore empty_service               # a ClusterIP Service without ready endpoints has no name
//	    multicluster [ZONES…]              # those of the zones that hold ServiceImports; clusterset.local
//	    zonal                              # names for the endpoints of one topology zone
//	    compatible kube-dns                # SRV records, endpoint labels and names below Services as kube-dns gives them
//	    wildcards                          # a label * stands for any
//	    startup_timeout DURATION           # how long a reload waits for new data before it fails; 5s
//	    apiserver_qps N
//	    apiserver_burst N
//	    apiserver_max_inflight N
//	}
//
// It can stand once in a server block. Without ZONES it serves the block's own;
// at least one must not be a reverse zone, and the first of those is the one
// that reverse names point to. Reverse zones may be given as CIDRs.
//
// The names in a ZONE, with the TTL of the option ttl:
//
//	SVC.NS.svc                      A, AAAA: the ClusterIPs, or the ready endpoints of a headless Service
//	                                CNAME: the target of an ExternalName, with the target's own answer
//	                                SRV: every port, named or not
//	_PORT._PROTO.SVC.NS.svc         SRV: a named port; A, AAAA as above
//	EP.SVC.NS.svc                   A, AAAA, SRV: one ready endpoint; EP is its hostname, its pod's name
//	                                (endpoint_pod_names), or its address with dashes
//	EP.CLUSTER.SVC.NS.svc           likewise, in a zone of multicluster
//	TOPOLOGY.pin._zone.SVC.NS.svc   endpoints of a headless Service in one topology zone (zonal);
//	                                prefer in place of pin: all endpoints, if there are none there
//	10-1-2-3.NS.pod                 A, AAAA: the address itself (pods insecure, verified)
//	dns-version                     TXT: the version of the specification, TTL 28800
//	ns.dns                          A, AAAA: the addresses of this server
//	(the zone)                      SOA, NS
//
// A reverse name has the PTR record of the Service whose ClusterIP it is, or
// else one for each endpoint that has the address. AXFR and IXFR are refused.
//
// compatible kube-dns is for clients that rely on what kube-dns says where the
// specification is silent. The label of an endpoint without hostname is then the
// hash that kube-dns makes of its address, up to 16 digits, in SRV and PTR records;
// EP in a question may be that, the address with dashes or the hostname, of any
// endpoint. SRV records have priority 10 and weight 100/n without remainder (0
// from 101 on), n being the number of addresses times that of ports. The names
// that are different or new:
//
//	SVC.NS.svc                      SRV: port 0 at HASH.SVC.NS.svc for each ClusterIP, at EP.SVC.NS.svc for each endpoint
//	HASH.SVC.NS.svc                 A, AAAA, SRV: the ClusterIP with that hash; SRV has port 0
//	EP.SVC.NS.svc                   SRV: port 0 at the endpoint's own label
//	HASH._PORT._PROTO.SVC.NS.svc    A, AAAA, SRV: the port of that ClusterIP; the hash is the address's
//	EP._PORT._PROTO.SVC.NS.svc      A, AAAA, SRV: the port of that endpoint
//
// The specification counts all the same where kube-dns fails it: several
// addresses with one hostname are all answered, endpoints without hostname have
// PTR records, and ANY is answered. An ExternalName that is an address has no name,
// as without the option. kube-dns's TTL is 30: say ttl 30.
//
// wildcards lets a label * of a question in a zone with Services stand for any
// label in its place, but not for one that begins with an underscore: *.NS.svc,
// SVC.*.svc, SVC.NS.*, EP.*.NS.svc, _http._tcp.*.NS.svc and so on, and
// 10-1-2-3.*.pod. The answer is the addresses or SRV records of all Services and
// endpoints that match, each once, under the name that was asked for; if there
// are more than fit, some of them. In front of a Service with ClusterIPs * stands
// for these, in front of a headless one for its endpoints. Names of topology zones
// do not go with it. A CNAME cannot stand beside other records: an ExternalName
// is answered only if nothing else matches, and of several the first in the order
// of their names. Where nothing matches it is NXDOMAIN. Questions in which * is a
// Service or a namespace wait for a walk over all of them, on half of the processors
// at most.
//
// Until everything has been listed once ready says no, and a name whose answer
// depends on what is still to come is answered SERVFAIL and does not fall
// through: every name, before Namespaces and Services have come; what endpoints
// decide, before EndpointSlices have. From then on the last known state is
// served while the API server is away. What is missing or
// forbidden (a kubeconfig, a verb on a resource) is said once in the log and
// tried again.
//
// manifests DIR takes every .yaml, .yml and .json file below DIR, with several
// documents and Lists, and follows changes. A namespace exists if any object is
// in it. Endpoints become EndpointSlices; a Service with a selector and no
// slices gets them from the Pods that it selects; a ClusterIP that is missing is
// chosen from 10.96.0.0/16, the same one each time, and shown in the log. A
// file that cannot be read keeps its last good version.
// Use JSON for a large cluster: kubectl get
// namespaces,services,endpointslices -A -o json writes a List, whose items are
// decoded one by one. 10,000 Services with 150,000 endpoints (112 MB) need 55 MB
// of memory and 6 s of processor time; a YAML file of them needs about 180 MB and
// 9 s. A YAML file may have up to 64 MB, a JSON file 1 GB.
//
// pods verified watches all Pods; nothing else does. Selectors are the API's:
// "tier in (front, back), !internal".
//
//	.:1053 {
//	    kubernetes cluster.local 10.96.0.0/16 10.244.0.0/16 {
//	        manifests examples
//	        pods insecure
//	        fallthrough 10.in-addr.arpa
//	    }
//	}
//
// With the metadata directive other directives know of a query, as
// kubernetes/KEY, the parts of its name, which may be empty: kind (svc or pod),
// namespace, service (for a pod its label), endpoint, port-name and protocol
// (without underscores), cluster (multicluster) and zone (zonal); or parse-error,
// for a name that is not built like one of the above. With pods verified they
// know the client too, if its address is that of one pod alone and not its
// node's: client-namespace, client-pod-name and client-label/LABEL. This, and
// autopath @kubernetes, keeps 100 bytes for each address of a pod; metadata and
// pods verified together keep the labels of every pod.
//
// Metrics: seamark_kubernetes_data_age_seconds, _events_total, _relists_total
// and _watch_errors_total, each by resource;
// coredns_kubernetes_dns_programming_duration_seconds{service_kind}, from a
// change of endpoints, as endpoints.kubernetes.io/last-change-trigger-time on an
// EndpointSlice tells it, until it is answered (service_kind is cluster_ip,
// headless_with_selector or headless_without_selector; lists do not count); and
// of requests to the API server
// coredns_kubernetes_rest_client_request_duration_seconds{verb,host},
// _rate_limiter_duration_seconds{verb,host}, the wait for apiserver_qps, and
// _requests_total{method,code,host}. A watch counts when its answer begins.
//
// Same as CoreDNS: options, defaults, metrics and metadata. Differs: answers, where
// the specification or an RFC asks for others; each is in
// docs/reference/differences.md. Ours: manifests, compatible kube-dns, and
// wildcards, which CoreDNS had before 1.9; any is no wildcard, as in kube-dns.
// Differs from kube-dns: there *.NS.svc has the ExternalNames of the namespace
// alone.
func Setup(b *config.Block, uses []corefile.Directive) error {
	if err := config.Once(uses); err != nil {
		return err
	}
	d := uses[0]
	zones, errZones := b.ZonesOr(d)
	o := options{ttl: 5, startupTimeout: 5 * time.Second}
	h := new(Handler)
	errs := []error{errZones, o.read(b, d, h)}
	if errZones == nil {
		errs = append(errs, h.setZones(d, zones, o.multicluster))
	}
	o.Multicluster = len(o.multicluster) > 0
	if errs[1] == nil { // else what is missing may be what could not be read
		errs = append(errs, each(d, o.Options.Check()))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	h.ttl, h.zonal, h.server = uint32(o.ttl), o.Zones, serverLabels
	h.options = &o
	b.Handle(h)
	b.OnPlanned(func() error {
		if h.podMode == podsVerified && b.UsesMetadata() {
			o.podsByAddr, o.PodLabels = true, true
		}
		return nil
	})
	b.OnStart(func(s *config.Start) error { return o.start(s, d, b, h) })
	return nil
}

// each puts the directive's position before every error that is joined in err.
func each(d corefile.Directive, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var errs []error
	for _, err := range joined.Unwrap() {
		errs = append(errs, d.Errorf("%w", err))
	}
	return errors.Join(errs...)
}

// options are a directive's, as far as they are not the handler's own.
type options struct {
	cluster.Options
	ttl            int
	ignoreEmpty    bool
	multicluster   []wire.Name
	startupTimeout time.Duration
	podsByAddr     bool // somebody asks for pods by their address
	k8sExternal    externalSettings
}

func (o *options) read(b *config.Block, d corefile.Directive, h *Handler) error {
	var mode, ignored, compatible string
	var qps float64
	err := d.Options(
		corefile.Option{Name: "endpoint", Min: 1, Max: -1, Set: nonEmpty(func(e corefile.Directive) error {
			o.Endpoint = e.Args[0].Text
			if len(e.Args) > 1 {
				b.Log.Warn("kubernetes: endpoint: only the first URL is used, as in CoreDNS", "url", o.Endpoint)
			}
			return nil
		})},
		corefile.Option{Name: "tls", Min: 3, Max: 3, Set: func(e corefile.Directive) error {
			o.Cert, o.Key, o.CA = e.Args[0].Text, e.Args[1].Text, e.Args[2].Text
			return nil
		}},
		corefile.Option{Name: "kubeconfig", Min: 1, Max: 2, Set: func(e corefile.Directive) error {
			words := append(e.Words(), "")
			o.Kubeconfig, o.KubeconfigContext = words[0], words[1]
			return nil
		}},
		corefile.Option{Name: "manifests", Min: 1, Max: 1, Set: corefile.String(&o.Manifests)},
		corefile.Option{Name: "namespaces", Min: 1, Max: -1, Set: nonEmpty(func(e corefile.Directive) error {
			all := append(strings.FieldsFunc(o.Namespaces, func(c rune) bool { return c == ',' }), e.Words()...)
			slices.Sort(all)
			o.Namespaces = strings.Join(slices.Compact(all), ",")
			return nil
		})},
		corefile.Option{Name: "namespace_labels", Min: 1, Max: -1, Set: words(&o.NamespaceLabels)},
		corefile.Option{Name: "labels", Min: 1, Max: -1, Set: words(&o.Labels)},
		corefile.Option{Name: "pods", Min: 1, Max: 1, Set: corefile.OneOf(&mode, "disabled", "insecure", "verified")},
		corefile.Option{Name: "endpoint_pod_names", Set: corefile.Flag(&o.PodNames)},
		corefile.Option{Name: "ttl", Min: 1, Max: 1, Set: corefile.Int(&o.ttl, 0, 3600)},
		corefile.Option{Name: "noendpoints", Set: corefile.Flag(&o.NoEndpoints)},
		h.fallThrough.Option(),
		corefile.Option{Name: "upstream", Removed: "removed in CoreDNS 1.7"},
		corefile.Option{Name: "resyncperiod", Removed: "removed in CoreDNS 1.7"},
		corefile.Option{Name: "ignore", Min: 1, Max: 1, Set: corefile.OneOf(&ignored, "empty_service")},
		corefile.Option{Name: "multicluster", Max: -1, Set: func(e corefile.Directive) (err error) {
			if len(e.Args) == 0 {
				o.multicluster = []wire.Name{clusterset}
				return nil
			}
			o.multicluster, err = config.ParseZones(e.Path, e.Args)
			return err
		}},
		corefile.Option{Name: "zonal", Set: corefile.Flag(&o.Zones)},
		corefile.Option{Name: "compatible", Min: 1, Max: 1, Set: corefile.OneOf(&compatible, "kube-dns")},
		corefile.Option{Name: "wildcards", Set: corefile.Flag(&h.wildcards)},
		corefile.Option{Name: "startup_timeout", Min: 1, Max: 1, Set: corefile.Duration(&o.startupTimeout, 0, time.Hour)},
		corefile.Option{Name: "apiserver_qps", Min: 1, Max: 1, Set: corefile.Float(&qps, 0, 1e6)},
		corefile.Option{Name: "apiserver_burst", Min: 1, Max: 1, Set: corefile.Int(&o.Burst, 0, 1e6)},
		corefile.Option{Name: "apiserver_max_inflight", Min: 1, Max: 1, Set: corefile.Int(&o.MaxInflight, 0, 1e6)},
	)
	o.QPS = float32(qps)
	h.scans = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	o.ignoreEmpty, h.kubeDNS = ignored != "", compatible != ""
	switch mode {
	case "insecure":
		h.podMode = podsInsecure
	case "verified":
		h.podMode, o.Pods = podsVerified, true
	}
	if o.ignoreEmpty && o.NoEndpoints {
		err = errors.Join(err, d.Errorf("ignore empty_service needs endpoints: it cannot stand beside noendpoints"))
	}
	return err
}

// clusterset is the zone of the multi-cluster specification (M1).
const clusterset wire.Name = "\x0aclusterset\x05local\x00"

func words(s *string) func(corefile.Directive) error {
	return nonEmpty(func(e corefile.Directive) error {
		*s = strings.Join(e.Words(), " ")
		return nil
	})
}

// given refuses empty arguments: the name of a variable that is not set would
// take away what limits a server to some namespaces or Services.
func nonEmpty(set func(corefile.Directive) error) func(corefile.Directive) error {
	return func(e corefile.Directive) error {
		if slices.Contains(e.Words(), "") {
			return e.Errorf(`want a value, got ""`)
		}
		return set(e)
	}
}

// serve gives h its zones.
func (h *Handler) setZones(d corefile.Directive, zones, multicluster []wire.Name) error {
	var errs []error
	for _, z := range multicluster {
		if !slices.Contains(zones, z) {
			errs = append(errs, d.Errorf("multicluster: %s is not among the directive's zones", z))
		}
	}
	for _, z := range zones {
		if len(z) > wire.MaxName-len("\x0ahostmaster") {
			errs = append(errs, d.Errorf("%s is too long for a zone: the name of its hostmaster would have more than 255 bytes", z))
		}
		info := &zoneInfo{name: z, labels: z.Labels(), reverse: isReverse(z), multicluster: slices.Contains(multicluster, z)}
		h.zones = append(h.zones, info)
		if h.primary == "" && !info.reverse && !info.multicluster {
			h.primary = z
		}
	}
	if h.primary == "" && len(multicluster) == 0 {
		errs = append(errs, d.Errorf("want at least one zone that is not a reverse zone, such as cluster.local"))
	}
	slices.SortStableFunc(h.zones, func(a, b *zoneInfo) int { return b.labels - a.labels })
	return errors.Join(errs...)
}

// running is a watched cluster: it outlives reloads that do not change it.
type watchedCluster struct {
	*Index
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// Stop ends the watch.
func (r *watchedCluster) Stop() {
	r.cancel()
	r.tasks.Wait()
}

// start watches the cluster, unless the old plan does already. A reload waits
// for the data and fails without it; a first start serves at once.
func (o *options) start(s *config.Start, d corefile.Directive, b *config.Block, h *Handler) error {
	type key struct {
		cluster.Options
		settings
	}
	set := settings{uint32(o.ttl), o.ignoreEmpty, o.podsByAddr, o.k8sExternal}
	made := false
	r, err := config.Keep(s, key{o.Options, set}, func() (*watchedCluster, error) {
		made = true
		ctx, cancel := context.WithCancel(context.Background())
		r := &watchedCluster{Index: NewIndex(set, o.Kinds(), b.Log), cancel: cancel}
		r.latency = newLatency(b.Metrics)
		source := cluster.Open(o.Options, b.Log, b.Metrics)
		r.tasks.Go(func() { source.Run(ctx, r.Index) })
		r.tasks.Go(func() { o.logSync(ctx, b.Log, h.zoneNames(), r.Index) })
		return r, nil
	})
	if err != nil {
		return err
	}
	h.index, h.local = r.Index, b.Addresses()
	if !s.Reload || !made {
		return nil
	}
	// The old plan serves what it knows meanwhile, and goes on if this one has
	// nothing to put in its place.
	timeout := time.NewTimer(o.startupTimeout)
	defer timeout.Stop()
	select {
	case <-h.index.synced:
		return nil
	case <-timeout.C:
		return d.Errorf("the cluster's data did not come within %v (startup_timeout): no list of %s yet", o.startupTimeout, h.index.unlisted())
	case <-s.Context.Done():
		return s.Context.Err()
	}
}

// report says in the log when the data has come, and when it does not.
func (o *options) logSync(ctx context.Context, log *slog.Logger, zones string, ix *Index) {
	timeout := time.NewTimer(o.startupTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-ix.synced:
			log.Info("kubernetes: the cluster's data is complete", "zones", zones)
			return
		case <-timeout.C:
			log.Warn("kubernetes: still without the cluster's data: names that depend on what is missing are answered SERVFAIL", "zones", zones, "missing", ix.unlisted())
		case <-ctx.Done():
			return
		}
	}
}

// zoneNames gives the handler's zones as people write them.
func (h *Handler) zoneNames() string {
	var names []string
	for _, z := range h.zones {
		names = append(names, z.name.String())
	}
	return strings.Join(names, " ")
}
