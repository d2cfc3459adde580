package kubernetes

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/zone"
)

// Setup sets up the kubernetes directive, which answers names of a cluster's Services
// and Pods.
//
//	kubernetes [ZONES...] {
//	    endpoint URL                       # an API server; http:// may be a kubectl proxy
//	    tls CERT KEY CA                    # files, for endpoint
//	    kubeconfig FILE [CONTEXT]          # takes precedence over endpoint
//	    manifests DIR                      # a folder of YAML and JSON instead of a cluster
//	    namespaces NAMESPACE...            # only these
//	    namespace_labels EXPRESSION        # only namespaces with these labels
//	    labels EXPRESSION                  # only Services, EndpointSlices and Pods with these
//	    pods disabled|insecure|verified    # names of Pods by their addresses; disabled
//	    ptr all|verified                   # PTR records of endpoints: all; or of addresses of Pods only
//	    endpoint_pod_names                 # an endpoint without hostname has its Pod's name
//	    ttl SECONDS                        # 0 to 3600; 5
//	    only services                      # do not watch EndpointSlices: forward knows the names of endpoints
//	    node [NAME]                        # this server's node, $NODE_NAME: pods verified watches its Pods only
//	    noendpoints                        # do not watch EndpointSlices: names of endpoints do not exist
//	    fallthrough [ZONES...]             # the next handler answers names that do not exist
//	    ignore empty_service               # a Service with ClusterIPs needs a ready endpoint to have a name
//	    multicluster [ZONES...]            # the zones that hold ServiceImports; clusterset.local
//	    zonal [prefer [ZONE]]              # names for the endpoints of one topology zone; prefer those in this one
//	    compatible kube-dns                # SRV records, endpoint labels and names below Services as in kube-dns
//	    wildcards                          # the label * matches any
//	    snapshot FILE                      # keeps the objects, for a start without the API server
//	    startup_timeout DURATION           # a reload fails if it has no data after that time; 5s
//	    apiserver_qps N
//	    apiserver_burst N
//	    apiserver_max_inflight N
//	}
//
// Use it once in a server block. Without ZONES it serves the zones of the block. At least
// one must not be a reverse zone; PTR records point to names in the first of those. You
// may write reverse zones as CIDRs.
//
// # Names
//
// These are the names in a ZONE. The option ttl sets their TTL.
//
//	SVC.NS.svc                      A, AAAA: the ClusterIPs, or the ready endpoints of a headless Service
//	                                CNAME: the target of an ExternalName, with the target's own answer;
//	                                the name of endpoints of addressType FQDN
//	                                SRV: every port, named or not
//	_PORT._PROTO.SVC.NS.svc         SRV: a named port; A, AAAA as above
//	EP.SVC.NS.svc                   A, AAAA, SRV: one ready endpoint; EP is its hostname, its Pod's name
//	                                (endpoint_pod_names), or its address with dashes
//	EP.CLUSTER.SVC.NS.svc           the same in a zone of multicluster
//	TOPOLOGY.pin._zone.SVC.NS.svc   endpoints of a headless Service in one topology zone (zonal);
//	                                with prefer instead of pin all endpoints if the zone has none
//	10-1-2-3.NS.pod                 A, AAAA: the address itself (pods insecure, verified)
//	dns-version                     TXT: the version of the specification, TTL 28800
//	ns.dns                          A, AAAA: the addresses of this server
//	(the zone)                      SOA, NS
//
// A reverse name has the PTR record of the Service that has the ClusterIP, or else one for
// each endpoint that has the address. The NS record names the Service kube-dns in
// kube-system; without it, the Services with a ClusterIP that have this server as an
// endpoint; without these, ns.dns. So it does not change with the addresses of Pods.
//
// If several endpoints have one address, the endpoints whose targetRef names a Pod of
// their namespace or a Node have PTR records, and so have the endpoints of
// default/kubernetes. The others have PTR records only if there are no such endpoints: a
// tenant with write access to EndpointSlices can give them any address. Such a tenant can
// also write any targetRef. Use ptr verified to reject all claims to addresses that are
// not the tenant's: an endpoint then has a PTR record only if a Pod of its Service's
// namespace has its address. It watches Pods, as pods verified does, which needs the
// permission to list and watch them; endpoints outside the cluster lose their PTR records.
//
// A headless Service whose EndpointSlices have addressType FQDN is answered like an
// ExternalName, and so are the names of its endpoints and ports, if all ready endpoints
// have the same name. If they have several names, or one has an address, the names are
// ignored.
//
// # Until the data is complete
//
// Until every kind of object has been listed once, ready reports false. A name is then
// answered with SERVFAIL, and not passed to the next handler, if objects that are not
// listed yet may decide its answer: before Namespaces and Services are listed that is every
// name, before EndpointSlices it is names that depend on endpoints. Later the last known
// state is served while the API server is away. A missing kubeconfig or permission is
// logged and tried again. The message is repeated after 1, 2, 4 ... 60 minutes with the age
// of the data.
//
// If a list lacks more than half of the known objects of a kind, the API server may have
// lost its data. The objects are kept until another list, 3 seconds later, lacks them, too.
// Both are logged.
//
// # Snapshot
//
// Use snapshot FILE so that a start needs no API server: on nodes, and where the API server
// needs DNS itself. The server writes all objects into FILE once they have been received,
// then at most once a minute if records have changed, and when it stops. At the next start
// it answers from FILE at once, until all objects have been received: what FILE has and the
// lists lack is then deleted. Meanwhile seamark_kubernetes_stale is 1, and a message in the
// log has the age of FILE. ready reports true, so that the server gets queries while the
// API server is away; use the metric to know of it.
//
// FILE is relative to root, if that is used. Its directory must exist and be writable for
// the server: FILE.new is written and then renamed. In a pod mount a hostPath or an emptyDir,
// which lasts as long as the pod. 10,000 Services with 150,000 endpoints need 2 MB. A
// FILE that is corrupt, of another version of the format, or written with other zones,
// selectors or another API server, is rejected with the reason in the log, and the server
// starts without it. A reload does not read FILE. If FILE cannot be written, the error and
// what to do are logged, again after 1, 2, 4 ... 60 minutes, and queries are answered.
//
// # Manifests
//
// manifests DIR reads every .yaml, .yml and .json file below DIR, with several documents
// and Lists, and follows changes. A namespace exists if any object is in it. Endpoints
// become EndpointSlices. A Service with a selector and without slices gets the Pods that it
// selects as endpoints. A Service without its ClusterIP gets one from 10.96.0.0/16, always
// the same, which is logged. A file with an error keeps its last valid content.
//
// Use JSON for a large cluster: kubectl get namespaces,services,endpointslices -A -o json
// writes a List, whose items are decoded one by one. 10,000 Services with 150,000
// endpoints (112 MB) need 55 MB of memory and 6 s of CPU time; a YAML file of them needs
// about 180 MB and 9 s. A YAML file may have up to 64 MB, a JSON file 1 GB.
//
// pods verified and ptr verified watch all Pods, with node the Pods of one node; other
// options do not. EXPRESSION is a label selector as in the API: "tier in (front, back),
// !internal".
//
//	.:1053 {
//	    kubernetes cluster.local 10.96.0.0/16 10.244.0.0/16 {
//	        manifests examples
//	        pods insecure
//	        fallthrough 10.in-addr.arpa
//	    }
//	}
//
// # On a node
//
// With only services the server watches Namespaces and Services, and no EndpointSlices. It
// answers the names of Services with ClusterIPs, their ports and their reverse names, and
// ExternalNames. Names that depend on endpoints go to the next handler, which must be a
// forward of all the zones, to servers that watch everything: the names of headless Services
// and below them, the names of the endpoints of Services with ClusterIPs, and reverse names
// of other addresses. So does every name until the lists have been received, and ready
// reports true meanwhile. Other names that do not exist are NXDOMAIN at once. The options
// noendpoints, ignore empty_service, zonal, endpoint_pod_names, ptr verified, compatible
// kube-dns, wildcards and multicluster need EndpointSlices, as do transfer, federation and
// k8s_external with headless: with only services they are refused.
//
// With node, pods verified watches the Pods of that node only (spec.nodeName), which is what
// autopath @kubernetes, client metadata and views by them need if the clients are the node's
// Pods. Names of other Pods go to the next handler, which must be a forward of all the zones.
// NAME is by default the environment variable NODE_NAME:
//
//	env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
//
// The service account needs the permission to list and watch Pods; RBAC cannot limit it to
// a node.
//
//	.:1053 {
//	    metadata
//	    autopath @kubernetes
//	    kubernetes cluster.local in-addr.arpa ip6.arpa {
//	        manifests examples
//	        only services
//	        pods verified
//	        node worker-1
//	    }
//	    forward . 10.96.0.11
//	}
//
// With zonal prefer the names of a headless Service and of its ports have only the ready
// endpoints in the server's topology zone, if there are any, and all otherwise; for A and
// AAAA this is decided for each. That is what trafficDistribution: PreferClose does for
// ClusterIPs. All, in some order, would not do: resolvers and clients do not keep the order
// of records. The zone is ZONE, or the label topology.kubernetes.io/zone of the Node that the
// option node names, which needs the permission to list and watch nodes; until it is known
// all endpoints are answered. An endpoint is in the zones of its hints
// (EndpointSlice, hints.forZones), otherwise in its own; of several hints its own zone
// counts, or else the first. The names of topology zones use the same zone. Services with
// publishNotReadyAddresses have all endpoints: their members look for each other. The names
// of endpoints and reverse names do not depend on the zone, nor do zone transfers.
//
// # compatible kube-dns
//
// Use compatible kube-dns for clients that depend on kube-dns where the specification
// leaves a choice. The label of an endpoint without hostname is then the hash that kube-dns
// makes of its address, up to 16 digits, in SRV and PTR records. In a query EP may be the
// hash, the address with dashes or the hostname. SRV records have priority 10 and weight
// 100/n, rounded down, where n is the number of addresses times the number of ports. These
// names differ or are new:
//
//	SVC.NS.svc                      SRV: port 0 at HASH.SVC.NS.svc for each ClusterIP, at EP.SVC.NS.svc for each endpoint
//	HASH.SVC.NS.svc                 A, AAAA, SRV: the ClusterIP with that hash; SRV has port 0
//	EP.SVC.NS.svc                   SRV: port 0 at the endpoint's own label
//	HASH._PORT._PROTO.SVC.NS.svc    A, AAAA, SRV: the port of that ClusterIP; the hash is the address's
//	EP._PORT._PROTO.SVC.NS.svc      A, AAAA, SRV: the port of that endpoint
//
// Where kube-dns violates the specification, the specification applies: all addresses of a
// hostname are answered, endpoints without hostname have PTR records, and ANY is answered.
// An ExternalName that is an address has no name, as without the option. To have kube-dns's
// TTL write ttl 30.
//
// # wildcards
//
// With wildcards a label * in a query matches any label in its place that does not begin
// with an underscore: *.NS.svc, SVC.*.svc, SVC.NS.*, EP.*.NS.svc, _http._tcp.*.NS.svc and
// 10-1-2-3.*.pod. The answer has the addresses or SRV records of all Services and endpoints
// that match, each once, with the query's name as the owner. If they do not fit it has some
// of them. In front of a Service with ClusterIPs * matches these, in front of a headless
// one its endpoints. Names of topology zones have no wildcards. An ExternalName is answered
// only if nothing else matches, since a CNAME excludes other records; of several the first
// by name. If nothing matches the answer is NXDOMAIN. Queries with * as a Service or a
// namespace scan all Services, on half of the processors at most.
//
// # Zone transfers
//
// Use the directive transfer in the server block to let other servers copy ZONES, such as
// Knot, NSD, BIND and the directive secondary, and answer cluster names from the copies.
// Without it transfers are refused.
//
//	cluster.local 10.96.0.0/16 {
//	    kubernetes {
//	        manifests examples
//	    }
//	    transfer {
//	        to 10.0.0.53
//	    }
//	}
//
// A copy follows the cluster: changes of up to 20 ms make one version of a zone, the
// servers are notified, and transfer the differences with IXFR. A zone keeps up to 8 MB of
// differences; a server that has an older version, or one from before a restart, transfers
// the whole zone with AXFR. So it does after a change that would need more than 32 MB of
// answers to be compared: a Service with hundreds of endpoints and thousands of ports.
//
// A change of one Service is a message of 500 bytes for each copy, and 2 to 5 ms of CPU
// time in this server. Of a cluster with 1,000 endpoints half of the changes are in a copy
// by secondary, Knot or BIND after 40 ms. NSD applies changes at intervals of seconds by
// default (xfrd-reload-timeout), and NSD 4.6 may discard one that arrives meanwhile until
// its retry timer: set its option max-retry-time, for example to 5.
//
// The serial number of a version is its time in units of 1/64 second, and at least one
// more than that before, so it increases also when the clock is set back while the server
// runs, and when the server is restarted. Two servers have different versions: let a copy
// have a single primary.
//
// A copy has the records of all names above, with their TTLs, of endpoints and, with pods
// verified, of Pods. It does not have answers that are made for any name: answers of pods
// insecure, of wildcards, of prefer for topology zones without endpoints, and other spellings
// of the IPv6 address of a Pod. Names without records that have no records below them do not
// exist in a copy, such as pod with pods disabled, and namespaces without Services. A name has
// at most 4 MB of records of a type: the rest of a larger Service, with tens of thousands of
// ports and endpoints, is missing. BIND logs a warning for the addresses of _PORT._PROTO, whose
// names are not host names, and accepts them. It rejects a zone with a name that has more than
// 100 records of a type, such as a headless Service with 101 endpoints, unless its option
// max-records-per-type is larger, or 0 for no limit.
//
// # Limits
//
// The CPU time of an answer depends on the size of its reply, whatever an object holds. Where
// slices of one Service share endpoints, their ports are merged up to 65,536 in total; further
// ports of such an endpoint are left out.
//
// # Metadata
//
// With the metadata directive other directives know the parts of a query's name as
// kubernetes/KEY: kind (svc or pod), namespace, service (for a Pod its label), endpoint,
// port-name and protocol (without underscores), cluster (multicluster) and zone (zonal).
// Any may be empty. parse-error is set for other names. With pods verified they also know
// the client, if its address belongs to one Pod only and not to the node:
// client-namespace, client-pod-name and client-label/LABEL. This, and autopath
// @kubernetes, costs 100 bytes for each address of a Pod. metadata and pods verified
// together keep the labels of every Pod.
//
// # Metrics
//
// seamark_kubernetes_data_age_seconds, _events_total, _relists_total and _watch_errors_total,
// each by resource. seamark_kubernetes_comparisons_total{resource,result}: every ten minutes
// the versions of all objects are compared with a list of their metadata, in pages of 500. If
// a watch has missed a change, the result is different, a warning is logged, and the objects
// are listed again. A comparison whose requests fail is failed. More than 30,000 objects are
// compared less often, and with only services or node it is done every hour.
// seamark_kubernetes_ptr_conflicts{zones} is the number of addresses that endpoints of
// Services in several namespaces share, with at least one endpoint that no targetRef
// identifies. One such address is logged, at most once a minute.
// seamark_kubernetes_records_hash{zones} is a hash of all records: replicas with equal data
// and options have equal hashes. seamark_kubernetes_stale{zones} is 1 while answers are from a
// snapshot. seamark_kubernetes_synced{zones,resource} is 1 once all objects of the kind have
// been received, and seamark_kubernetes_objects{zones,resource} is their number.
// coredns_kubernetes_dns_programming_duration_seconds{service_kind} is the time from a change
// of endpoints (endpoints.kubernetes.io/last-change-trigger-time of the EndpointSlice) until
// it is answered. service_kind is cluster_ip, headless_with_selector or
// headless_without_selector; lists are not observed.
// coredns_kubernetes_rest_client_request_duration_seconds{verb,host},
// _rate_limiter_duration_seconds{verb,host} (the wait for apiserver_qps) and
// _requests_total{method,code,host} are about requests to the API server. A watch is observed
// when its response begins.
//
// Same as CoreDNS: options, defaults, metrics and metadata. Differs: answers for which the
// specification or an RFC requires others; each is in docs/reference/differences.md. Ours:
// manifests, snapshot, only services, node, zonal prefer, zone transfers with differences, ptr verified, compatible kube-dns, and wildcards, which CoreDNS had before 1.9 (any is not a
// wildcard, as in kube-dns). Differs from kube-dns: there *.NS.svc has the ExternalNames of
// the namespace only.
func Setup(b *config.Block, uses []corefile.Directive) error {
	if err := config.Once(uses); err != nil {
		return err
	}
	d := uses[0]
	zones, errZones := b.ZonesOr(d)
	o := options{ttl: 5, startupTimeout: 5 * time.Second}
	h := new(Handler)
	errs := []error{errZones, o.read(b, d, zones, h)}
	if errZones == nil {
		errs = append(errs, h.setZones(d, zones, o.multicluster))
	}
	o.Multicluster = len(o.multicluster) > 0
	if errs[1] == nil { // the missing zone may be in an option that failed
		errs = append(errs, d.Each(o.Options.Check()))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := o.Options.CheckFiles(); err != nil { // the server waits for them
		b.Warn(d.Each(err))
	}
	h.ttl, h.zonal, h.server = uint32(o.ttl), o.Zones, serverLabels
	h.nodePods = o.NodeName != ""
	h.options = &o
	b.Handle(h)
	b.OnPlanned(func() error {
		if h.podMode == podsVerified && b.UsesMetadata() {
			o.podsByAddr, o.PodLabels = true, true
		}
		for _, t := range config.Find[zone.Transferrer](b) {
			for _, z := range h.zones {
				if t.Transfers(z.name) {
					h.transferred = append(h.transferred, z)
				}
			}
		}
		return h.checkNext(b, d)
	})
	b.OnStart(func(s *config.Start) error {
		if err := errors.Join(o.start(s, d, b, h), o.startZone(s, b, h)); err != nil {
			return err
		}
		return h.startLiveZones(s)
	})
	return nil
}

// options are the directive's options that are not fields of the handler.
type options struct {
	cluster.Options
	ttl            int
	ignoreEmpty    bool
	multicluster   []wire.Name
	startupTimeout time.Duration
	snapshot       string // file
	podsByAddr     bool   // another directive finds pods by address
	preferZone     bool   // zonal prefer
	zone           string // its ZONE; "" means the node's
	k8sExternal    externalSettings
}

func (o *options) read(b *config.Block, d corefile.Directive, zones []wire.Name, h *Handler) error {
	var mode, ignored, compatible, ptr, only string
	node := false
	var qps float64
	err := d.Options(append(sources.LocationOptions(&o.Options, func(file string) string { return file }),
		corefile.Option{Usage: "endpoint URL...", Set: nonEmpty(func(e corefile.Directive) error {
			o.Endpoint = e.Args[0].Text
			if len(e.Args) > 1 {
				b.Warn(e.Errorf("only the first URL is used, %s", o.Endpoint))
			}
			return nil
		})},
		corefile.Option{Usage: "namespaces NAMESPACE...", Set: nonEmpty(func(e corefile.Directive) error {
			all := append(strings.FieldsFunc(o.Namespaces, func(c rune) bool { return c == ',' }), e.Words()...)
			slices.Sort(all)
			o.Namespaces = strings.Join(slices.Compact(all), ",")
			return nil
		})},
		corefile.Option{Usage: "namespace_labels EXPRESSION...", Set: words(&o.NamespaceLabels)},
		corefile.Option{Usage: "labels EXPRESSION...", Set: words(&o.Labels)},
		corefile.Option{Usage: "pods disabled|insecure|verified", Set: corefile.OneOf(&mode, "disabled", "insecure", "verified")},
		corefile.Option{Usage: "ptr all|verified", Set: corefile.OneOf(&ptr, "all", "verified")},
		corefile.Option{Usage: "endpoint_pod_names", Set: corefile.Flag(&o.PodNames)},
		corefile.Option{Usage: "ttl SECONDS", Set: corefile.Int(&o.ttl, 0, 3600)},
		corefile.Option{Usage: "noendpoints", Set: corefile.Flag(&o.NoEndpoints)},
		corefile.Option{Usage: "only services", Set: corefile.OneOf(&only, "services")},
		corefile.Option{Usage: "node [NAME]", Set: func(e corefile.Directive) error {
			node = true
			if o.NodeName = os.Getenv(nodeNameVariable); len(e.Args) > 0 {
				o.NodeName = e.Args[0].Text
			}
			if o.NodeName == "" {
				return e.Errorf("want NAME, or the environment variable %s, which a manifest sets from spec.nodeName", nodeNameVariable)
			}
			return nil
		}},
		h.fallThrough.Option(),
		corefile.Option{Usage: "upstream", Removed: "removed in CoreDNS 1.7"},
		corefile.Option{Usage: "resyncperiod", Removed: "removed in CoreDNS 1.7"},
		corefile.Option{Usage: "ignore empty_service [WORDS...]", Set: func(e corefile.Directive) error {
			e.Args = e.Args[:1] // CoreDNS accepts more
			return corefile.OneOf(&ignored, "empty_service")(e)
		}},
		corefile.Option{Usage: "multicluster [ZONES...]", Set: func(e corefile.Directive) (err error) {
			if len(e.Args) == 0 {
				if slices.Contains(zones, clusterset) {
					o.multicluster = []wire.Name{clusterset}
				} else {
					b.Warn(e.Errorf("ignored, since clusterset.local is not a zone of the directive"))
				}
				return nil
			}
			o.multicluster, err = config.ParseZones(e.Path, e.Args)
			return err
		}},
		corefile.Option{Usage: "zonal [prefer [ZONE]]", Set: o.parseZonal},
		corefile.Option{Usage: "compatible kube-dns", Set: corefile.OneOf(&compatible, "kube-dns")},
		corefile.Option{Usage: "wildcards", Set: corefile.Flag(&h.wildcards)},
		corefile.Option{Usage: "snapshot FILE", Set: corefile.String(&o.snapshot)},
		corefile.Option{Usage: "startup_timeout DURATION", Set: corefile.Duration(&o.startupTimeout, 0, time.Hour)},
		corefile.Option{Usage: "apiserver_qps N", Set: corefile.Float(&qps, 0, 1e6)},
		corefile.Option{Usage: "apiserver_burst N", Set: corefile.Int(&o.Burst, 0, 1e6)},
		corefile.Option{Usage: "apiserver_max_inflight N", Set: corefile.Int(&o.MaxInflight, 0, 1e6)},
	)...)
	o.QPS = float32(qps)
	h.scans = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
	o.ignoreEmpty, h.kubeDNS = ignored != "", compatible != ""
	switch mode {
	case "insecure":
		h.podMode = podsInsecure
	case "verified":
		h.podMode, o.Pods = podsVerified, true
	}
	if h.verifyPTR = ptr == "verified"; h.verifyPTR {
		o.Pods = true
	}
	h.onlyServices = only != ""
	return errors.Join(err, o.checkConflicts(d, h, node))
}

// clusterset is the zone of the Multi-Cluster Services specification (M1).
const clusterset wire.Name = "\x0aclusterset\x05local\x00"

// setZones sets the zones of h.
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
		info := &zoneInfo{name: z, labels: z.Labels(), reverse: wire.WithinReverse(z), multicluster: slices.Contains(multicluster, z)}
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

// zoneNames returns the handler's zones in presentation form.
func (h *Handler) zoneNames() string {
	var names []string
	for _, z := range h.zones {
		names = append(names, z.name.String())
	}
	return strings.Join(names, " ")
}
