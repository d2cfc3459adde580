package kubernetes

import (
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubernetes/index"
	"github.com/seamark/seamark/test/chaintest"
)

// planBoth sets up k8s_external and kubernetes as the registry orders them.
func planBoth(text string) (*config.Block, error) {
	b, err := chaintest.Setup(text, chaintest.QuietLog(),
		config.Directive{Name: "k8s_external", Setup: SetupExternal}, config.Directive{Name: "kubernetes", Setup: Setup})
	if err != nil {
		return b, err
	}
	return b, corefile.Sorted(b.Planned()...)
}

func TestExternalSetupErrors(t *testing.T) {
	for _, c := range []struct{ directive, want string }{
		{"k8s_external example.org", "Corefile:2: k8s_external: needs the directive kubernetes in the same server block"},
		{"kubernetes cluster.local\nk8s_external example.org\nk8s_external example.net", "Corefile:4: k8s_external: already given at Corefile:3, and can be given once in a server block"},
		{"k8s_external a..b", `Corefile:2: k8s_external: not a zone: "a..b": empty label`},
		{"k8s_external 10.0.0.0/8", "Corefile:2: k8s_external: want at least one zone that is not a reverse zone, such as cluster.local"},
		{"k8s_external example.org {\n apex\n}", "Corefile:3: k8s_external: apex: got no arguments, usage: apex LABEL"},
		{"k8s_external example.org {\n apex a b\n}", "Corefile:3: k8s_external: apex: got 2 arguments, usage: apex LABEL"},
		{"k8s_external example.org {\n apex a.b\n}", `Corefile:3: k8s_external: apex: want one label, got "a.b"`},
		{"k8s_external example.org {\n apex .\n}", `Corefile:3: k8s_external: apex: want one label, got "."`},
		{"k8s_external example.org {\n ttl\n}", "Corefile:3: k8s_external: ttl: got no arguments, usage: ttl SECONDS"},
		{"k8s_external example.org {\n ttl 3601\n}", `Corefile:3: k8s_external: ttl: want 0..3600, got "3601"`},
		{"k8s_external example.org {\n ttl -1\n}", `Corefile:3: k8s_external: ttl: want 0..3600, got "-1"`},
		{"k8s_external example.org {\n headless yes\n}", "Corefile:3: k8s_external: headless: want no argument, got 1"},
		{"k8s_external example.org {\n fallthrough a..b\n}", `Corefile:3: k8s_external: fallthrough: not a zone: "a..b": empty label`},
		{"k8s_external example.org {\n headles\n}", `Corefile:3: k8s_external: unknown option "headles"; did you mean "headless"?`},
	} {
		_, err := planBoth(".:53 {\n" + c.directive + "\n}\n")
		if err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.directive, err, c.want)
		}
	}
}

// The index keeps external addresses, and makes entries of them, only if the
// block has k8s_external beside kubernetes.
func TestExternalChangesSourceOptions(t *testing.T) {
	for text, want := range map[string]index.ExternalSettings{
		"kubernetes cluster.local":                                                    {},
		"kubernetes cluster.local\nk8s_external example.org":                          {Enabled: true, TTL: 5},
		"k8s_external example.org {\n ttl 30\n headless\n}\nkubernetes cluster.local": {Enabled: true, TTL: 30, Headless: true},
	} {
		b, err := planBoth(".:53 {\n" + text + "\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		o := config.Find[*Handler](b)[0].options
		if o.k8sExternal != want || o.External != want.Enabled {
			t.Errorf("%s: got %+v, External %v, want %+v", text, o.k8sExternal, o.External, want)
		}
	}
}
