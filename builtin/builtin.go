// Package builtin lists the directives of this binary. The list is registry and
// order at once; package cmd hands it to the server. Nothing else may be here.
package builtin

import (
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/handler"
	"github.com/seamark/seamark/kube"
)

// Directives lists every word a Corefile may use. Order is meaning: a query
// meets the handlers top to bottom, whatever order the Corefile has. It is
// CoreDNS's order.
func Directives() []config.Directive {
	return []config.Directive{
		{Name: "bind", Brief: "listen on some addresses instead of on all", Setup: handler.SetupBind},
		{Name: "ready", Brief: "say over HTTP whether there are answers yet", Setup: handler.SetupReady},
		{Name: "health", Brief: "say over HTTP that the process lives", Setup: handler.SetupHealth},
		{Name: "prometheus", Brief: "count queries and serve the server's metrics", Setup: handler.SetupPrometheus},
		{Name: "errors", Brief: "log queries that failed", Setup: handler.SetupErrors},
		{Name: "log", Brief: "log queries", Setup: handler.SetupLog},
		{Name: "kubernetes", Brief: "answer the names of a Kubernetes cluster, or of a folder of manifests", Setup: kube.Setup},
		{Name: "whoami", Brief: "answer with the client's own address", Setup: handler.SetupWhoami},
	}
}
