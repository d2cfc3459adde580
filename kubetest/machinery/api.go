package machinery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	requestunion "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/feature"
	restclient "k8s.io/client-go/rest"

	"github.com/seamark/seamark/kubetest/control"
)

// An apiRun is one run of the API server, from a start to a stop.
type apiRun struct {
	ln     *listener
	cancel context.CancelFunc
	done   chan struct{} // closed at the end of the run
	err    error         // the reason of the end; valid after done
}

// startRun starts the API server on ln and waits until it is ready. It takes
// ownership of ln, even if it fails.
func (s *Server) startRun(ctx context.Context, ln *listener, etcdURL string) (*apiRun, error) {
	stores, err := s.openStores(etcdURL)
	if err != nil {
		ln.Close()
		return nil, err
	}

	api, err := s.newAPI(ln, stores, etcdURL)
	if err != nil {
		destroy(stores)
		ln.Close()
		return nil, err
	}

	runCtx, cancel := context.WithCancel(context.Background())
	r := &apiRun{ln: ln, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer ln.Close()
		r.err = api.PrepareRun().RunWithContext(runCtx)
	}()

	if err := s.waitReady(ctx, r); err != nil {
		r.stop()
		return nil, fmt.Errorf("waiting for readiness: %w", err)
	}
	return r, nil
}

// stop cuts all connections and waits until the run has ended. The order matters:
// clients must see a cut and not an orderly shutdown, and the server panics if its
// listener is closed before its context ends.
func (r *apiRun) stop() {
	r.ln.die()
	r.cancel()
	<-r.done
}

// waitReady polls /readyz until it responds 200.
func (s *Server) waitReady(ctx context.Context, r *apiRun) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.certs.Pool()}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := isReady(ctx, client, "https://"+r.ln.Addr().String()+"/readyz")
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-r.done:
			return errors.Join(errors.New("the server ended"), r.err)
		}
	}
}

// isReady requests url once and reports whether the response is 200.
func isReady(ctx context.Context, client *http.Client, url string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK, fmt.Errorf("/readyz responds %s", resp.Status)
}

// openStores opens the storage of each kind, in the table's order.
func (s *Server) openStores(etcdURL string) ([]*registry.Store, error) {
	var stores []*registry.Store
	for _, k := range s.kinds {
		store, err := s.types.newStore(k, etcdURL)
		if err != nil {
			destroy(stores)
			return nil, fmt.Errorf("opening the storage of %s: %w", k.resource, err)
		}
		stores = append(stores, store)
	}
	return stores, nil
}

// destroy closes stores.
func destroy(stores []*registry.Store) {
	for _, store := range stores {
		store.Destroy()
	}
}

// keepAnonymous lets clients without credentials keep their HTTP/2 connections. kube-apiserver ends
// each after one request, against floods; a TLS handshake for every request of every test is half of
// what the tests cost.
var keepAnonymous = sync.OnceValue(func() error {
	return feature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.UnauthenticatedHTTP2DOSMitigation): false})
})

// newAPI assembles the API server of this run. It closes the stores when its
// own run ends.
func (s *Server) newAPI(ln *listener, stores []*registry.Store, etcdURL string) (*server.GenericAPIServer, error) {
	cert, err := dynamiccertificates.NewStaticCertKeyContent("kubetest", s.certs.Cert, s.certs.Key)
	if err != nil {
		return nil, err
	}

	if err := keepAnonymous(); err != nil {
		return nil, err
	}

	c := server.NewConfig(s.types.codecs)
	c.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	c.ExternalAddress = ln.Addr().String()
	c.SecureServing = &server.SecureServingInfo{Listener: ln, Cert: cert}
	c.LoopbackClientConfig = &restclient.Config{
		Host:            "https://" + ln.Addr().String(),
		TLSClientConfig: restclient.TLSClientConfig{CAData: s.certs.CA},
	}

	c.Authentication.Authenticator = requestunion.New(bearertoken.New(tokens(control.APIAudience)),
		anonymous.NewAuthenticator(nil))
	c.Authorization.Authorizer = s.newAuthorizer(stores)
	c.OpenAPIV3Config = s.types.describe(s.kinds)
	c.SkipOpenAPIInstallation = true
	c.EnableProfiling = false
	c.EnableMetrics = false // they belong to the process, not to this server
	c.DisabledPostStartHooks = sets.NewString("max-in-flight-filter", "storage-object-count-tracker-hook")

	c.ReadyzChecks = append(c.ReadyzChecks, healthz.NamedCheck("storage", func(*http.Request) error {
		return ready(stores)
	}))

	// Definitions add their resources to the same discovery document.
	c.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	custom, err := newExtensions(*c, etcdURL)
	if err != nil {
		return nil, fmt.Errorf("serving custom resources: %w", err)
	}

	api, err := c.Complete(nil).New("kubetest", custom)
	if err != nil {
		return nil, err
	}

	installed := map[string]bool{}
	for _, gv := range groupVersions(s.kinds) {
		if installed[gv.Group] {
			continue
		}
		installed[gv.Group] = true
		if err := s.install(api, gv.Group, stores); err != nil {
			api.Destroy()
			return nil, fmt.Errorf("installing %s: %w", gv, err)
		}
	}

	for gv, resources := range reviewVersions(c.Authorization.Authorizer, s.types.scheme) {
		info := server.NewDefaultAPIGroupInfo(gv.Group, s.types.scheme, s.types.params, s.types.codecs)
		info.VersionedResourcesStorageMap[gv.Version] = resources
		if err := api.InstallAPIGroup(&info); err != nil {
			api.Destroy()
			return nil, fmt.Errorf("installing %s: %w", gv, err)
		}
	}

	return api, nil
}

// ready fails until every watch cache is filled.
func ready(stores []*registry.Store) error {
	for _, store := range stores {
		if err := store.ReadinessCheck(); err != nil {
			return fmt.Errorf("%s: %w", store.DefaultQualifiedResource, err)
		}
	}
	return nil
}

// install adds the kinds of one group, with all versions, to the server.
func (s *Server) install(api *server.GenericAPIServer, group string, stores []*registry.Store) error {
	info := server.NewDefaultAPIGroupInfo(group, s.types.scheme, s.types.params, s.types.codecs)
	for i, k := range s.kinds {
		if k.gv.Group != group {
			continue
		}
		resources := info.VersionedResourcesStorageMap[k.gv.Version]
		if resources == nil {
			resources = map[string]rest.Storage{}
			info.VersionedResourcesStorageMap[k.gv.Version] = resources
		}
		resources[k.resource] = stores[i]
		if k.hasStatus {
			resources[k.resource+"/status"] = s.types.newStatusStore(k, stores[i])
		}
		if k.custom {
			info.NegotiatedSerializer = noProtobuf{info.NegotiatedSerializer}
		}
	}
	if group == "" {
		return api.InstallLegacyAPIGroup(server.DefaultLegacyAPIPrefix, &info)
	}
	return api.InstallAPIGroup(&info)
}
