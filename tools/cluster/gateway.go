//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// envoyModule has the controller of Envoy Gateway. Its proxies would need Envoy, which is no Go module: their
// pods do not start, and the objects are those of a cluster whose proxies are down.
var envoyModule = module{"envoy-gateway", "github.com/envoyproxy/gateway", "1.9.1", "",
	[]program{{"envoy-gateway", "github.com/envoyproxy/gateway/cmd/envoy-gateway", "5 minutes"}}}

const envoyImage = "seamark.local/envoy-gateway:1"

// runGateway has Envoy Gateway accept the objects of two tenants, and checks that the hosts resolve to the
// ClusterIP of the Service that it makes.
func (t *conformance) runGateway(ctx context.Context, s server, of suite) error {
	data, err := os.ReadFile(t.program(envoyModule, "envoy-gateway"))
	if err != nil {
		return err
	}
	entries := []entry{{"envoy-gateway", data, 0o755}, {"tmp/empty", nil, 0o644}}
	if err := t.importImage(ctx, []string{envoyImage}, entries, "/envoy-gateway"); err != nil {
		return err
	}
	envoy, err := downloadModule(ctx, envoyModule)
	if err != nil {
		return err
	}
	standard := t.file("gateway-api.yaml")
	if err := t.writeGatewayAPI(ctx, standard); err != nil {
		return err
	}
	own, err := filepath.Glob(filepath.Join(envoy.Dir, "charts/gateway-helm/charts/crds/crds/generated/*.yaml"))
	if err != nil {
		return err
	}

	return t.with(ctx, scenario{
		definitions: append(own, standard), objects: []string{"gateway.yaml"}, corefile: withGateway,
		data: map[string]any{"Envoy": envoyImage, "Tenants": []string{"infra", "tenant-a", "tenant-b"}},
	}, func() (err error) {
		defer func() { err = errors.Join(err, t.deleteGateways(ctx)) }()
		if err := t.rollout(ctx, "envoy-gateway-system", "envoy-gateway"); err != nil {
			return err
		}
		address, err := t.gatewayAddress(ctx)
		if err != nil {
			return err
		}
		if err := t.checkRules(ctx, s, of, "", gatewayRules(address)); err != nil {
			return err
		}
		return t.checkText(ctx, s, of, "an Event tells the thief", "not delegated to namespace tenant-b",
			"-n", "tenant-b", "get", "events", "-o", "jsonpath={.items[*].message}")
	})
}

// deleteGateways deletes what the controller has to release (finalizers), while there is a controller.
func (t *conformance) deleteGateways(ctx context.Context) error {
	return t.restore(ctx, func(ctx context.Context) error {
		return errors.Join(
			t.do(ctx, "delete", "gateways", "--all", "--all-namespaces"),
			t.do(ctx, "delete", "gatewayclasses", "--all"),
		)
	})
}

// writeGatewayAPI writes the definitions of the kinds that Envoy Gateway and the directive watch, in the
// version of module kubetest.
func (t *conformance) writeGatewayAPI(ctx context.Context, file string) error {
	text, err := goCommand(ctx, filepath.Join(t.Options.Source, "kubetest"), "run", "./gatewayapi/print",
		"backendtlspolicies", "gatewayclasses", "gateways", "grpcroutes", "httproutes", "listenersets", "referencegrants",
		"tcproutes", "tlsroutes", "udproutes")
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// gatewayAddress waits for the Service of the Gateway and returns its ClusterIP.
func (t *conformance) gatewayAddress(ctx context.Context) (address string, err error) {
	err = t.await(ctx, "kube-controller-manager", func() error {
		out, err := t.kubectl(ctx, "-n", "envoy-gateway-system", "get", "services", "-l",
			"gateway.envoyproxy.io/owning-gateway-name=public", "-o", "jsonpath={.items[*].spec.clusterIP}")
		if address = string(out); err == nil && address == "" {
			err = errors.New("there is no Service of Envoy Gateway for its Gateway yet")
		}
		return err
	})
	return address, err
}

// withGateway returns a Corefile that publishes hosts of tenants.
func withGateway(corefile string) string {
	return strings.Replace(corefile, "    errors\n", `    errors
    gateway example.test {
        delegate infra infra.example.test
        delegate tenant-a a.example.test
        delegate tenant-b b.example.test
    }
`, 1)
}

// gatewayRules are what the hosts resolve to. The Route of the thief, tenant-b, is the oldest.
func gatewayRules(address string) []rule {
	inside := "NOERROR " + address
	change := func(args string) []string { return append([]string{"-n", "tenant-a"}, strings.Fields(args)...) }
	return []rule{
		{name: "the tenant's own host", query: "own.b.example.test A", want: inside},
		{name: "HTTPRoute", query: "web.a.example.test A", want: inside},
		{name: "a wildcard of an HTTPRoute", query: "any.wild.a.example.test A", want: inside},
		{name: "GRPCRoute", query: "grpc.a.example.test A", want: inside},
		{name: "TLSRoute", query: "tls.a.example.test A", want: inside},
		{name: "a host of a listener", query: "listener.infra.example.test A", want: inside},
		{name: "a host of a ListenerSet", query: "set.a.example.test A", want: inside},
		{name: "HTTPRoute of a ListenerSet", query: "route.a.example.test A", want: inside},
		{name: "a family that the Service lacks", query: "web.a.example.test AAAA", want: "NOERROR", always: true},

		{name: "a wildcard of the other's zone is not published", query: "any.a.example.test A",
			want: "NXDOMAIN", always: true},
		{name: "a Route that the controller refuses is not published", query: "refused.a.example.test A",
			want: "NXDOMAIN", always: true},
		{name: "a Gateway without a controller is not published", query: "nobody.infra.example.test A",
			want: "NXDOMAIN", always: true},
		{name: "a host of a ListenerSet of the other's zone is not published", query: "stolen.a.example.test A",
			want: "NXDOMAIN", always: true},
		{name: "a ListenerSet that the Gateway does not allow is not published", query: "closed.a.example.test A",
			want: "NXDOMAIN", always: true},

		{name: "a changed host", query: "new.a.example.test A", want: inside,
			before: change(`patch httproute web --type=merge -p {"spec":{"hostnames":["new.a.example.test"]}}`)},
		{name: "its former host, which the thief's older Route has, too", query: "web.a.example.test A",
			want: "NXDOMAIN", always: true},
		{name: "a deleted Route", query: "new.a.example.test A", want: "NXDOMAIN", before: change("delete httproute web")},
		{name: "a deleted ListenerSet", query: "set.a.example.test A", want: "NXDOMAIN",
			before: change("delete listenerset more")},
		{name: "its Route", query: "route.a.example.test A", want: "NXDOMAIN"},
		{name: "without the Gateway", query: "own.b.example.test A", want: "NXDOMAIN",
			before: strings.Fields("-n infra delete gateway public")},
	}
}
