package autopath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/wire"
)

// A stub stands for a kubernetes directive, with pods verified or without.
type stub struct {
	backend
	verified bool
	needed   bool
}

func (s *stub) NeedClients() error {
	if !s.verified {
		return errors.New("needs pods verified")
	}
	s.needed = true
	return nil
}

// plan sets up autopath above the handler below, which may be nil.
func plan(t *testing.T, text string, below any) (*AutoPath, error) {
	t.Helper()
	b, err := chaintest.Setup(text, chaintest.QuietLog(), config.Directive{Name: "autopath", Setup: Setup})
	if err != nil {
		return nil, err
	}
	if below != nil {
		b.SetDirective("kubernetes")
		b.Handle(below)
	}
	return config.Find[*AutoPath](b)[0], corefile.Sorted(b.Planned()...)
}

func TestSetupErrors(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(broken, []byte("nameserver 192.0.2.1\nsearch a..b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		directive string
		below     any
		want      string
	}{
		{"autopath", nil, "Corefile:2: autopath: want a file, @kubernetes or @query"},
		{"autopath @query\nautopath @query", nil, "Corefile:3: autopath: already given at Corefile:2, and can be given once in a server block"},
		{"autopath @query {\n ndots 5\n}", nil, `Corefile:3: autopath: takes no options, got "ndots"`},
		{"autopath @kuberntes", nil, `Corefile:2: autopath: want a file, @kubernetes or @query, got "@kuberntes"; did you mean "@kubernetes"?`},
		{"autopath a..b @query", nil, `Corefile:2: autopath: not a zone: "a..b": empty label`},
		{"autopath @query corp.example a..b", nil, `Corefile:2: autopath: not a zone: "a..b": empty label`},
		{"autopath a..b @kubernetes", nil, `Corefile:2: autopath: not a zone: "a..b": empty label`},
		{"autopath /nowhere/resolv.conf", nil, "Corefile:2: autopath: reading the search path: open /nowhere/resolv.conf: no such file or directory"},
		{"autopath " + broken, nil, "Corefile:2: autopath: " + broken + `:2: not a name: "a..b": empty label`},
		{"autopath @query", nil, "Corefile:2: autopath: @query: requires the kubernetes directive in the same server block"},
		{"autopath @kubernetes", nil, "Corefile:2: autopath: @kubernetes: requires the kubernetes directive in the same server block"},
		{"autopath @kubernetes", &stub{}, "Corefile:2: autopath: @kubernetes: needs pods verified"},
	} {
		if _, err := plan(t, ".:53 {\n"+c.directive+"\n}\n", c.below); err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.directive, err, c.want)
		}
	}
}

func TestSetup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# of a node\nnameserver 192.0.2.1\ndomain old.example\nsearch Corp.Example example. .\noptions ndots:5\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	list := func(names []wire.Name) string {
		var all []string
		for _, n := range names {
			all = append(all, n.String())
		}
		return strings.Join(all, " ")
	}
	a, err := plan(t, ".:53 {\nautopath "+file+"\n}\n", nil)
	if err != nil || list(a.search) != "corp.example. example." || list(a.zones.Zones) != "." {
		t.Errorf("file: got %+v, %v, want the search path corp.example. example. and the zone .", a, err)
	}
	a, err = plan(t, ".:53 {\nautopath cluster.local @query corp.example example\n}\n", &stub{})
	if err != nil || list(a.hostSearch) != "corp.example. example." || list(a.zones.Zones) != "cluster.local." {
		t.Errorf("@query: got %+v, %v, want the search path corp.example. example. and the zone cluster.local.", a, err)
	}
	below := &stub{verified: true}
	if _, err = plan(t, ".:53 {\nautopath cluster.local @kubernetes\n}\n", below); err != nil || !below.needed {
		t.Errorf("@kubernetes: got error %v, NeedClients called %v, want no error and a call", err, below.needed)
	}
}
