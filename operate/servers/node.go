package servers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/health"
)

// supervisorPort is the port of the metrics of a node cache's supervisor.
const supervisorPort = 9353

// maxMetrics bounds the bytes of a supervisor's metrics that are read.
const maxMetrics = 4 << 20

// NodeConditions returns what is wrong with the capture of a node cache. The supervisor knows it, whose
// metrics are not those of the process that answers queries. Of counters it knows the sum since the
// supervisor has begun, and not when they increased. It returns nothing for other servers.
func (s *Server) NodeConditions(ctx context.Context) (found []health.Condition, err error) {
	if s.supervisor == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	transport := &http.Transport{DialContext: s.supervisor.Dial}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of the supervisor of %s: %w", s.Pod, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading the metrics of the supervisor of %s: %s", s.Pod, response.Status)
	}

	page, err := io.ReadAll(io.LimitReader(response.Body, maxMetrics))
	all := func(string) bool { return true }
	for series, value := range metrics.Parse(string(page), all) {
		if c, ok := nodeCondition(series, value); ok {
			found = append(found, c)
		}
	}
	health.Sort(found)
	return found, err
}

// nodeCondition returns the condition that the value of a series shows. The alerts are those of
// deploy/helm/seamark/files/node-alerts.yaml.
func nodeCondition(series string, value float64) (c health.Condition, ok bool) {
	switch family, labels := metrics.ParseSeries(series); {
	case family == "seamark_node_gate_open" && value == 0:
		return health.Condition{Severity: health.Warning, Alert: "SeamarkNodeGateClosed",
			Text: "the cache captures no queries: the cluster's DNS servers answer the pods of the node"}, true
	case family == "seamark_node_capture_paused_interfaces" && value > 0:
		return health.Condition{Severity: health.Warning, Alert: "SeamarkNodeCapturePaused",
			Text: fmt.Sprintf("queries of %.0f pods go to the cluster's DNS servers: replies do not reach them",
				value)}, true
	case family == "seamark_node_worker_restarts_total" && value > 0:
		return health.Condition{Severity: health.Note, Alert: "SeamarkNodeWorkerRestarts",
			Text: fmt.Sprintf("the worker was started again %.0f times since the start", value)}, true
	case family == "coredns_nodecache_setup_errors_total" && value > 0:
		return health.Condition{Severity: health.Note, Alert: "SeamarkNodeSetupErrors", Object: labels["errortype"],
			Text: fmt.Sprintf("the setup of %s has failed %.0f times since the start", labels["errortype"], value)}, true
	}
	return c, false
}

// supervise lets NodeConditions read the metrics of the pod's supervisor.
func (s *Server) supervise(o *Options, p *pod) {
	port := supervisorPort
	if address := Flag(p.words(), "metrics-listen-address"); address != "" {
		if n, err := strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:]); err == nil {
			port = n
		}
	}
	s.supervisor, s.timeout = apiserver.PortForward(o.Cluster, s.Pod, port), o.Timeout
}
