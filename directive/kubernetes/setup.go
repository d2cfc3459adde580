package kubernetes

import (
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/sources"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
)

// Setup sets up the kubernetes directive, which answers names of a cluster's Services and
// Pods. Its reference page is docs/reference/directives/kubernetes.md.
func Setup(b *config.Block, uses []corefile.Directive) error {
	if err := config.Once(uses); err != nil {
		return err
	}

	d := uses[0]
	zones, errZones := b.ZonesOr(d)
	var o options
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
	b.WarnExposed(d, o.Kubeconfig, o.Key)
	if err := o.Options.CheckFiles(); err != nil { // the server waits for them
		b.Warn(d.Each(err))
	}

	h.ttl, h.zonal, h.server = uint32(o.ttl), o.Zones, serverLabels
	h.nodePods = o.NodeName != ""
	h.options = &o
	b.Handle(h)
	b.Answers(config.Extent{
		Use: d, Zones: zones, Through: &h.fallThrough, Option: "fallthrough", Open: h.onlyServices || h.nodePods,
	})
	b.OnPlanned(func() error {
		if h.podMode == podsVerified && b.UsesMetadata() {
			o.podsByAddr, o.PodLabels = true, true
		}
		h.planTransfers(b)
		return h.checkNext(b, d)
	})

	b.OnStart(func(s *config.Start) error {
		if err := errors.Join(o.start(s, d, b, h), o.startZone(s, b, h)); err != nil {
			return err
		}
		return h.startLiveZones(s)
	})
	b.OnSwap(func() { h.live.serve() })
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
	k8sExternal    index.ExternalSettings
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
		corefile.Option{
			Usage: "pods disabled|insecure|verified", Default: "disabled",
			Set: corefile.OneOf(&mode, "disabled", "insecure", "verified"),
		},
		corefile.Option{Usage: "ptr all|verified", Default: "all", Set: corefile.OneOf(&ptr, "all", "verified")},
		corefile.Option{Usage: "endpoint_pod_names", Set: corefile.Flag(&o.PodNames)},
		corefile.Option{Usage: "ttl SECONDS", Default: "5", Set: corefile.Int(&o.ttl, 0, 3600)},
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
		corefile.Option{
			Usage: "startup_timeout DURATION", Default: "5s", Set: corefile.Duration(&o.startupTimeout, 0, time.Hour),
		},
		corefile.Option{Usage: "apiserver_qps N", Set: corefile.Float(&qps, 0, 1e6)},
		corefile.Option{Usage: "apiserver_burst N", Set: corefile.Int(&o.Burst, 0, 1e6)},
		corefile.Option{Usage: "apiserver_max_inflight N", Set: corefile.Int(&o.MaxInflight, 0, 1e6)},
	)...)

	o.QPS = float32(qps)
	h.scans = slots.NewProcessors()
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
		info := &zoneInfo{name: z, labels: z.Labels(), reverse: wire.WithinReverse(z),
			multicluster: slices.Contains(multicluster, z)}
		h.zones = append(h.zones, info)
		if h.primary == "" && !info.reverse && !info.multicluster {
			h.primary = z
		}
	}

	if h.primary == "" && len(multicluster) == 0 {
		errs = append(errs, d.Errorf("want at least one zone that is not a reverse zone, such as cluster.local"))
	}

	slices.SortStableFunc(h.zones, func(a, b *zoneInfo) int { return b.labels - a.labels })
	for _, z := range h.zones {
		h.byName.Set(z.name, z)
	}
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
