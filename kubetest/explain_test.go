package kubetest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/test/bound"
	"github.com/seamark/seamark/test/chaintest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An explanation has the metadata of the objects as the API server has them, and says why
// there are none.
func TestExplainObjects(t *testing.T) {
	t.Parallel()
	api := start(t)
	w := writer(t, api)
	add(t, w.CoreV1().Namespaces(), namespace("shop"))
	web := service("web", "10.0.0.7")
	web.Namespace = "shop"
	created := add(t, w.CoreV1().Services("shop"), web)
	w.slice("shop", "web", nil, "10.1.0.1")
	proxy := must(NewProxy(api))(t)
	t.Cleanup(proxy.Close)
	admin := freeAddress(t)
	d := serve(t, ". {\n admin "+admin+"\n kubernetes cluster.local {\n  kubeconfig "+must(proxy.Kubeconfig())(t)+"\n }\n}\n")
	d.await(lookupA("web.shop.svc.cluster.local", "NOERROR 10.0.0.7"))

	type object struct {
		Kind, Namespace, Name, ResourceVersion, Unknown string
		Created                                         time.Time
	}
	explain := func(name string) (rcode string, found []object) {
		t.Helper()
		response, err := http.Get("http://" + admin + "/v1/explain?name=" + url.QueryEscape(name))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var result struct {
			RCode string
			Steps []struct{ Causes []struct{ Object *object } }
		}
		if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
			t.Fatal(err)
		}
		for _, s := range result.Steps {
			for _, c := range s.Causes {
				if c.Object != nil {
					found = append(found, *c.Object)
				}
			}
		}
		return result.RCode, found
	}
	expect := func(state, version, unknown string) {
		t.Helper()
		rcode, found := explain("web.shop.svc.cluster.local")
		if rcode != "NOERROR" || len(found) != 2 || found[0].Kind != "Service" || found[1].Kind != "EndpointSlice" {
			t.Fatalf("%s: got %s and %+v, want NOERROR, a Service and an EndpointSlice", state, rcode, found)
		}
		o := found[0]
		if o.ResourceVersion != version || o.Created.Equal(created.CreationTimestamp.Time) != (version != "") || !strings.HasPrefix(o.Unknown, unknown) || o.Unknown != "" && unknown == "" {
			t.Errorf("%s: got %+v, want version %q and %q", state, o, version, unknown)
		}
		if slice := found[1]; version != "" && (slice.ResourceVersion == "" || slice.Created.IsZero()) {
			t.Errorf("%s: got %+v, want a version and a time", state, slice)
		}
	}
	chaintest.Eventually(t, "both objects in the explanation", func() bool {
		_, found := explain("web.shop.svc.cluster.local")
		return len(found) == 2
	})
	expect("after the start", created.ResourceVersion, "")

	changed := created.DeepCopy()
	changed.Annotations = map[string]string{"a": "b"}
	changed, err := w.CoreV1().Services("shop").Update(t.Context(), changed, metav1.UpdateOptions{})
	if err != nil || changed.ResourceVersion == created.ResourceVersion {
		t.Fatalf("update: got version %s and error %v, want another version", changed.ResourceVersion, err)
	}
	expect("after a change", changed.ResourceVersion, "")

	proxy.Set(Faults{Forbidden: []string{"services"}})
	expect("forbidden", "", "forbidden: the server may not list services")

	proxy.Set(Faults{Only: []string{"services"}, Stall: true})
	begin := time.Now()
	expect("stalled", "", "no response from the API server in time")
	bound.AtMost(t, "an explanation without an answer of the API server", time.Since(begin), 10*time.Second)
	proxy.Set(Faults{})
	expect("recovered", changed.ResourceVersion, "")
}
