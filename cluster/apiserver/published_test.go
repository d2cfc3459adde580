package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
)

// Each kind of a group has versions of its own, of which the first that is served is requested.
func TestLiveVersionsOfKinds(t *testing.T) {
	a := serve(t, &fakeServer{
		objects: map[string]string{
			"gateways":   `{"metadata":{"namespace":"infra","name":"public"}}`,
			"grpcroutes": `{"metadata":{"namespace":"shop","name":"rpc"}}`,
			"tlsroutes":  `{"metadata":{"namespace":"shop","name":"tls"}}`,
		},
		refuse: func(r *http.Request) int {
			served := map[string]string{"gateways": "v1", "grpcroutes": "v1alpha2", "tlsroutes": "v1alpha2"}
			for resource, version := range served {
				if strings.HasSuffix(r.URL.Path, resource) && !strings.Contains(r.URL.Path, "/"+version+"/") {
					return http.StatusNotFound
				}
			}
			return 0
		},
	})
	f, stop := watchCluster(t, cluster.Options{
		Endpoint: a.URL, NoEndpoints: true, Published: cluster.SetOf(cluster.Gateways, cluster.GRPCRoutes, cluster.TLSRoutes),
	})
	f.waitForCall(t, "listed gateways infra/public")
	f.waitForCall(t, "listed grpcroutes shop/rpc")
	f.waitForCall(t, "listed tlsroutes shop/tls")
	stop()
}
