package kubedns

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/test/chaintest"
)

// text writes a block's directives, one a line.
func text(s corefile.Server) string {
	var lines []string
	for _, d := range s.Directives {
		lines = append(lines, line(d))
	}
	return strings.Join(lines, "\n")
}

func line(d corefile.Directive) string {
	words := []string{d.Text}
	for _, a := range d.Args {
		words = append(words, a.Text)
	}
	if d.Block {
		words = append(words, "{")
		for _, o := range d.Body {
			words = append(words, line(o)+";")
		}
		words = append(words, "}")
	}
	return strings.Join(words, " ")
}

// expand adds the directives for a ConfigMap to a server block.
func TestExpand(t *testing.T) {
	const stubs = `{"corp.example": ["10.0.0.1", "10.0.0.2:5353", "10.0.0.1:53"], "example": ["fd00::1"]}`
	for _, c := range []struct {
		name, key, block, options, stubs, ups, federations string
		want                                               string
	}{
		{name: "the defaults", want: "DIRECTIVE\nforward . /etc/resolv.conf"},
		{name: "none", options: "default none", want: "DIRECTIVE"},
		{name: "others", options: "default 9.9.9.9 tls://1.1.1.1", want: "DIRECTIVE\nforward . 9.9.9.9 tls://1.1.1.1"},
		{name: "the block's own", block: "forward . 9.9.9.9", want: "forward . 9.9.9.9\nDIRECTIVE"},
		{name: "before the block's own", block: "forward . 9.9.9.9", ups: `["8.8.8.8", "8.8.8.8:53", "8.8.4.4:54"]`,
			want: "forward . 8.8.8.8:53 8.8.4.4:54\nforward . 9.9.9.9\nDIRECTIVE"},
		{name: "beside the block's own", options: "join_upstreams", block: "forward . 9.9.9.9 /etc/resolv.conf 8.8.8.8:53 {\npolicy sequential\n}", ups: `["8.8.8.8", "8.8.4.4:54"]`,
			want: "forward . 9.9.9.9 8.8.8.8:53 8.8.4.4:54 { policy sequential; }\nDIRECTIVE"},
		{name: "without other upstreams", options: "join_upstreams", ups: `["8.8.8.8"]`, want: "DIRECTIVE\nforward . 8.8.8.8:53"},
		{name: "a zone in a prefix", block: "forward 10.0.0.0/8 10.9.9.9\nforward . 9.9.9.9", stubs: `{"0.10.in-addr.arpa": ["10.0.0.1"]}`,
			want: "forward 0.10.in-addr.arpa 10.0.0.1:53\nforward 10.0.0.0/8 10.9.9.9\nforward . 9.9.9.9\nDIRECTIVE"},
		{name: "the longest zone counts", block: "cache\nforward . 9.9.9.9\nforward a.corp.example 10.9.9.9\n", stubs: stubs,
			want: "cache\nforward corp.example 10.0.0.1:53 10.0.0.2:5353\nforward example [fd00::1]:53\nforward . 9.9.9.9\nforward a.corp.example 10.9.9.9\nDIRECTIVE"},
		{name: "behind a longer one", block: "forward a.corp.example 10.9.9.9\nforward EXAMPLE. 10.1.1.1\nforward . 9.9.9.9\n", stubs: stubs,
			want: "forward a.corp.example 10.9.9.9\nforward corp.example 10.0.0.1:53 10.0.0.2:5353\nforward example [fd00::1]:53\nforward EXAMPLE. 10.1.1.1\nforward . 9.9.9.9\nDIRECTIVE"},
		{name: "options of forward", options: "policy sequential\nmax_concurrent 5", stubs: `{"a": ["10.0.0.1"]}`,
			want: "DIRECTIVE\nforward a 10.0.0.1:53 { policy sequential; max_concurrent 5; }\nforward . /etc/resolv.conf { policy sequential; max_concurrent 5; }"},
		{name: "names elsewhere", stubs: `{"a": ["ns.example.org"]}`, want: "DIRECTIVE\nforward a ns.example.org:53\nforward . /etc/resolv.conf"},
		{name: "names of the cluster", key: "example.org:54 .:1053", block: "kubernetes cluster.home 10.0.0.0/8", stubs: `{"a": ["ns.x.svc.cluster.home", "1.1.1.1"]}`,
			want: "kubernetes cluster.home 10.0.0.0/8\nDIRECTIVE\nforward a ns.x.svc.cluster.home:53 1.1.1.1:53 { resolver 127.0.0.1:54; }\nforward . /etc/resolv.conf"},
		{name: "of another server's cluster", options: "resolver 10.0.0.5:10053", block: "bind 10.0.0.6\nforward cluster.local 127.0.0.1:10053", stubs: `{"a": ["ns.cluster.local"]}`,
			want: "bind 10.0.0.6\nforward cluster.local 127.0.0.1:10053\nDIRECTIVE\nforward a ns.cluster.local:53 { resolver 10.0.0.5:10053; }\nforward . /etc/resolv.conf"},
		{name: "bound", block: "bind 10.0.0.6\nkubernetes cluster.local", stubs: `{"a": ["ns.cluster.local"]}`,
			want: "bind 10.0.0.6\nkubernetes cluster.local\nDIRECTIVE\nforward a ns.cluster.local:53 { resolver 10.0.0.6:53; }\nforward . /etc/resolv.conf"},
		{name: "bound to all", block: "bind ::\nkubernetes cluster.local", stubs: `{"a": ["ns.cluster.local"]}`,
			want: "bind ::\nkubernetes cluster.local\nDIRECTIVE\nforward a ns.cluster.local:53 { resolver [::1]:53; }\nforward . /etc/resolv.conf"},
		{name: "zones without other upstreams", block: "screen {\nlocal corp.example other. example\nlocal a\nplain_names\n}\nforward . 9.9.9.9", stubs: `{"corp.example": ["10.0.0.1"], "a": ["10.0.0.1"], "b.other": ["10.0.0.1"], "c": ["10.0.0.1"]}`,
			want: "screen { local other. example; plain_names; except b.other; except corp.example; }\nforward a 10.0.0.1:53\nforward b.other 10.0.0.1:53\nforward c 10.0.0.1:53\nforward corp.example 10.0.0.1:53\nforward . 9.9.9.9\nDIRECTIVE"},
		{name: "no such zone left", block: "screen {\nlocal corp.example\n}\nforward . 9.9.9.9", stubs: `{"corp.example": ["10.0.0.1"]}`,
			want: "forward corp.example 10.0.0.1:53\nforward . 9.9.9.9\nDIRECTIVE"},
		{name: "a zone within the cluster's", block: "kubernetes cluster.local 10.0.0.0/8 {\nttl 5\nfallthrough 10.in-addr.arpa\n}\nforward . 9.9.9.9", stubs: `{"a.cluster.local": ["10.0.0.1"], "local": ["10.0.0.2"], "other.local": ["10.0.0.3"]}`,
			want: "kubernetes cluster.local 10.0.0.0/8 { ttl 5; fallthrough 10.in-addr.arpa a.cluster.local; }\nforward a.cluster.local 10.0.0.1:53\nforward other.local 10.0.0.3:53\nforward local 10.0.0.2:53\nforward . 9.9.9.9\nDIRECTIVE"},
		{name: "within the block's", key: "cluster.local", block: "kubernetes\nforward . 9.9.9.9", stubs: `{"a.cluster.local": ["10.0.0.1"], "b.cluster.local": ["10.0.0.1"]}`,
			want: "kubernetes { fallthrough a.cluster.local b.cluster.local; }\nforward a.cluster.local 10.0.0.1:53\nforward b.cluster.local 10.0.0.1:53\nforward . 9.9.9.9\nDIRECTIVE"},
		{name: "all names pass on already", block: "kubernetes cluster.local {\nfallthrough\n}\nforward . 9.9.9.9", stubs: `{"a.cluster.local": ["10.0.0.1"]}`,
			want: "kubernetes cluster.local { fallthrough; }\nforward a.cluster.local 10.0.0.1:53\nforward . 9.9.9.9\nDIRECTIVE"},
		{name: "federations", block: "kubernetes a\nforward . 9.9.9.9", federations: "b=b.example,a=a.example",
			want: "kubernetes a\nforward . 9.9.9.9\nDIRECTIVE\nfederation { a a.example; b b.example; }"},
		{name: "federations need endpoints", block: "kubernetes a {\nnoendpoints\n}\nforward . 9.9.9.9", federations: "b=b.example",
			want: "kubernetes a { noendpoints; }\nforward . 9.9.9.9\nDIRECTIVE"},
		{name: "federations beside others", block: "kubernetes a\nfederation a {\nc c.example\n}\nforward . 9.9.9.9", federations: "b=b.example",
			want: "kubernetes a\nfederation a { c c.example; b b.example; }\nforward . 9.9.9.9\nDIRECTIVE"},
		{name: "hosts that forward takes for mistyped addresses", stubs: `{"a": ["1.1.1.256", "10.0.0.1"], "b": ["` + strings.Repeat("1.", 126) + `1"]}`,
			want: "DIRECTIVE\nforward a 1.1.1.256.invalid:53 10.0.0.1:53\nforward b " + strings.Repeat("1.", 122) + "1.invalid:53\nforward . /etc/resolv.conf"},
		{name: "more servers than forward takes", stubs: `{"a": ["10.0.0.1` + strings.Repeat(`", "10.0.0.1`, 15) + `", "10.0.0.2"], "b": ["h` + strings.Join(strings.Split("abcdefghijklmnop", ""), `", "h`) + `"]}`,
			want: "DIRECTIVE\nforward a 10.0.0.1:53 10.0.0.2:53\nforward b ha:53 hb:53 hc:53 hd:53 he:53 hf:53 hg:53 hh:53 hi:53 hj:53 hk:53 hl:53 hm:53 hn:53 ho:53\nforward . /etc/resolv.conf"},
		{name: "names of a cluster whose zones are the block's", key: "cluster.home:54", block: "kubernetes", stubs: `{"a": ["ns.x.svc.cluster.home"]}`,
			want: "kubernetes\nDIRECTIVE\nforward a ns.x.svc.cluster.home:53 { resolver 127.0.0.1:54; }\nforward . /etc/resolv.conf"},
		{name: "federations without a cluster, as in front of kube-dns", block: "forward . 9.9.9.9", federations: "a=a.example",
			want: "forward . 9.9.9.9\nDIRECTIVE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := c.key
			if key == "" {
				key = "."
			}
			directive := "kubedns_config ./map {\n" + c.options + "\n}\n"
			servers, err := corefile.Parse("Corefile", []byte(key+" {\n"+c.block+"\n"+directive+"}\n"))
			must(t, err)
			u, at, ok := findUse(servers[0])
			if !ok {
				t.Fatalf("%s: got an invalid directive, want a valid one", directive)
			}
			data := map[string]string{}
			for key, value := range map[string]string{stubDomains: c.stubs, upstreams: c.ups, federations: c.federations} {
				if value != "" {
					data[key] = value
				}
			}
			config, err := kubednsconfig.Parse(data)
			must(t, err)
			before := text(servers[0])
			got := strings.Replace(text(u.expand(servers[0], at, config)), line(servers[0].Directives[at]), "DIRECTIVE", 1)
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if text(servers[0]) != before {
				t.Errorf("expand changed its argument: got\n%s\nwant\n%s", text(servers[0]), before)
			}
		})
	}
}

func TestSetup(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"kubedns_config", `Corefile:2: kubedns_config: want 1 argument, got 0`},
		{"kubedns_config kube-dns", `Corefile:2: kubedns_config: configmap: want NAMESPACE/NAME, got "kube-dns"`},
		{"kubedns_config kube-system/kube-dns {\nendpoint x\n}", `Corefile:2: kubedns_config: endpoint: want a URL such as https://10.0.0.1:6443, got "x"`},
		{"kubedns_config /dir {\nendpoint http://127.0.0.1\n}", "Corefile:2: kubedns_config: endpoint, tls, kubeconfig and manifests are for a ConfigMap in a cluster, and /dir is a directory: remove them"},
		{"kubedns_config /dir {\nresolver ns.example 1.1.1.1 ::1 [::1]:5\nperiod 1\n}", "Corefile:3: kubedns_config: resolver: want IP or IP:PORT, got \"ns.example\"\nCorefile:4: kubedns_config: period: want a duration of 10ms..24h, got \"1\""},
		{"kubedns_config /dir {\nnext NXDOMAIN\n}", `Corefile:3: kubedns_config: unknown option "next"`},
	} {
		servers, err := corefile.Parse("Corefile", []byte(".:53 {\n"+c.text+"\n}\n"))
		must(t, err)
		_, err = parseUse(servers[0].Directives[0], "")
		if err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
}

// The Sum of a Follower's Corefile depends on the Corefile and the ConfigMap alone.
func TestFollower(t *testing.T) {
	m := newMount(t, stub("10.0.0.1"))
	const corefiles = ".:53 {\nroot %s\nkubedns_config ./%s\n}\nexample.org:53 {\nwhoami\n}\n"
	now := fmt.Sprintf(corefiles, filepath.Dir(m.dir), filepath.Base(m.dir))
	w := &watcher{T: t, metrics: new(metrics.Registry)}
	f := NewFollower(func() corefile.Reading { return corefile.ReadText("Corefile", []byte(now)) }, w.logger(), w.metrics)
	defer f.Stop()

	first := f.Read()
	has := func(server string) bool {
		return strings.Contains(text(f.Read().Servers[0]), "forward acme.local "+server+":53\nforward . /etc/resolv.conf")
	}
	changed := func() {
		t.Helper()
		select {
		case <-f.Changed():
		case <-time.After(time.Minute):
			t.Fatal("got no signal of a change within a minute, want one")
		}
	}
	changed()
	if first.Err != nil || !has("10.0.0.1") || len(first.Servers) != 2 || f.Read().Sum != first.Sum {
		t.Fatalf("first Read: got error %v and %v, want two blocks with 10.0.0.1 and the same sum each time", first.Err, first.Servers)
	}
	m.swap(stub("10.0.0.2"))
	changed()
	if second := f.Read(); !has("10.0.0.2") || second.Sum == first.Sum || second.Sum == (corefile.Sum{}) {
		t.Fatalf("Read after a change: got %s, want 10.0.0.2 and another sum", text(second.Servers[0]))
	}
	m.swap(stub("10.0.0.1"))
	changed()
	if f.Read().Sum != first.Sum {
		t.Error("Read of the first state again: got another sum, want the first")
	}
	m.swap(stub("$$$$"))
	w.eventuallySays("Refused kube-dns")
	if f.Read().Sum != first.Sum || !has("10.0.0.1") {
		t.Errorf("after an invalid state: got sum %x, want the last valid state", f.Read().Sum)
	}

	// One that is not named any more is not watched, and a Corefile that cannot be
	// read ends nothing.
	now = ".:53 {\n"
	if r := f.Read(); r.Err == nil || len(f.watched) != 1 {
		t.Errorf("%d are watched after a Corefile that is wrong, want 1", len(f.watched))
	}
	now = ".:53 {\nkubedns_config ./x {\nperod 5s\n}\n}\n"
	if r := f.Read(); r.Err != nil || len(f.watched) != 1 {
		t.Errorf("%d are watched after a directive that is wrong, want 1", len(f.watched))
	}
	now = ".:53 {\nwhoami\n}\n"
	if r := f.Read(); r.Sum != corefile.ReadText("Corefile", []byte(now)).Sum || len(f.watched) != 0 {
		t.Errorf("Read without kubedns_config: got %d watches and the sum %v, want none and the Corefile's", len(f.watched), r.Sum)
	}
}

func (w *watcher) eventuallySays(words string) {
	w.Helper()
	chaintest.Eventually(w.T, words, func() bool { return len(w.said(words)) > 0 })
}

// ExpandOnce reads directories; a ConfigMap in a cluster counts as the defaults.
func TestExpandOnce(t *testing.T) {
	m := newMount(t, stub("10.0.0.1"))
	r := ExpandOnce(corefile.ReadText("Corefile", []byte(".:53 {\nkubedns_config "+m.dir+"\n}\n.:54 {\nkubedns_config kube-system/kube-dns\n}\n")))
	if got := text(r.Servers[0]); !strings.Contains(got, "forward acme.local 10.0.0.1:53") {
		t.Errorf("directory: got\n%s\nwant a forward of acme.local", got)
	}
	if got := text(r.Servers[1]); !strings.HasSuffix(got, "kubedns_config kube-system/kube-dns\nforward . /etc/resolv.conf") {
		t.Errorf("ConfigMap in a cluster: got\n%s\nwant the defaults", got)
	}
}

// Read waits once for a cluster that does not respond, and then uses the defaults.
func TestFollowerWithoutCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	w := &watcher{T: t, metrics: new(metrics.Registry)}
	f := NewFollower(func() corefile.Reading {
		return corefile.ReadText("Corefile", []byte(".:53 {\nkubedns_config kube-system/kube-dns {\nendpoint http://127.0.0.1:1\n}\n}\n"))
	}, w.logger(), w.metrics)
	defer f.Stop()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		done := make(chan string)
		go func() { done <- text(f.Read().Servers[0]) }()
		select {
		case got := <-done:
			if !strings.HasSuffix(got, "forward . /etc/resolv.conf") {
				t.Errorf("got\n%s\nwant the defaults", got)
			}
		case <-ctx.Done():
			t.Fatal("Read did not return within a minute")
		}
		cancel()
	}
	if n := len(w.said("not available yet, using the defaults")); n != 1 {
		t.Errorf("got %d warnings about the missing ConfigMap, want 1", n)
	}
}

// A valid ConfigMap with which the server cannot serve the Corefile is refused.
func TestFollowerChecks(t *testing.T) {
	m := newMount(t, stub("10.0.0.9"))
	w := &watcher{T: t, metrics: new(metrics.Registry)}
	f := NewFollower(func() corefile.Reading {
		return corefile.ReadText("Corefile", []byte(".:53 {\nkubedns_config "+m.dir+"\n}\n"))
	}, w.logger(), w.metrics)
	f.Check = func(servers []corefile.Server) error {
		if strings.Contains(text(servers[0]), "10.0.0.9") {
			return errors.Join(errors.New("one reason"), errors.New("another"))
		}
		return nil
	}
	defer f.Stop()
	first := f.Read()
	if got := text(first.Servers[0]); !strings.HasSuffix(got, "\nforward . /etc/resolv.conf") || strings.Contains(got, "acme") {
		t.Errorf("invalid first state: got\n%s\nwant the defaults", got)
	}
	w.eventuallySays(`error="one reason; another" in_use=defaults`)
	m.swap(stub("10.0.0.1"))
	chaintest.Eventually(t, "the valid state is served", func() bool { return strings.Contains(text(f.Read().Servers[0]), "10.0.0.1:53") })
	m.swap(stub("10.0.0.9"))
	w.eventuallySays(`error="one reason; another" in_use="last valid state"`)
	if got := text(f.Read().Servers[0]); !strings.Contains(got, "10.0.0.1:53") {
		t.Errorf("refused state: got\n%s\nwant the last valid one", got)
	}
}

// A ConfigMap that was refused with one Corefile is served once the Corefile is another one with which it is valid, the
// first state as well as a later one, and without a change of its own.
func TestFollowerMendedCorefile(t *testing.T) {
	for _, states := range [][]map[string]string{{stub("10.0.0.9")}, {stub("10.0.0.1"), stub("10.0.0.9")}} {
		m := newMount(t, states[0])
		w := &watcher{T: t, name: m.dir, metrics: new(metrics.Registry)}
		var now atomic.Value
		now.Store("")
		f := NewFollower(func() corefile.Reading {
			return corefile.ReadText("Corefile", []byte(".:53 {\nkubedns_config "+m.dir+"\n"+now.Load().(string)+"}\n"))
		}, w.logger(), w.metrics)
		f.Check = func(servers []corefile.Server) error {
			if got := text(servers[0]); strings.Contains(got, "10.0.0.9") && !strings.Contains(got, "mended") {
				return errors.New("a reason")
			}
			if strings.Contains(text(servers[0]), "typo") {
				return errors.New("another reason")
			}
			return nil
		}
		defer f.Stop()

		served := func() bool { return strings.Contains(text(f.Read().Servers[0]), "forward acme.local 10.0.0.9:53") }
		f.Read()
		for _, state := range states[1:] {
			w.counts(1, 0, true)
			m.swap(state)
		}
		w.counts(len(states)-1, 1, false)
		for _, corefile := range []string{"errors\n", "typo\n", "errors\n"} {
			now.Store(corefile)
			if served() {
				t.Errorf("got a ConfigMap served that is refused with the Corefile, which has %s", corefile)
			}
		}
		now.Store("mended\n")
		if !served() {
			t.Errorf("with a Corefile that is mended: got\n%s\nwant the ConfigMap served\n%s", text(f.Read().Servers[0]), w.log())
		}
		w.counts(len(states), 1, true)
	}
}
