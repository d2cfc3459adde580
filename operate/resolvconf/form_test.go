package resolvconf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// node is the file of the nodes in these tests.
var node = Config{
	Nameservers: []string{"192.0.2.1", "192.0.2.2"},
	Searches:    []string{"node.example", "example"},
	Options:     []Option{{"edns0", ""}, {"timeout", "1"}},
}

// kubelet is one of a dual-stack cluster.
func kubelet() Kubelet {
	return Kubelet{
		ClusterDomain: "cluster.local",
		ClusterDNS:    []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Node:          &node,
		File:          "node.conf",
	}
}

const (
	clusterFile = "nameserver 10.96.0.10\n" +
		"search shop.svc.cluster.local svc.cluster.local cluster.local node.example example\n" +
		"options ndots:5\n"
	nodeFile = "nameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch node.example example\noptions edns0 timeout:1\n"
)

func TestForm(t *testing.T) {
	for _, tc := range []struct {
		name     string
		pod      Pod
		kubelet  func(*Kubelet)
		want     string
		comments []string // a part of each
	}{
		{"ClusterFirst", Pod{Policy: ClusterFirst}, nil, clusterFile, nil},
		{"ClusterFirst on the node's network is Default", Pod{Policy: ClusterFirst, HostNetwork: true}, nil, nodeFile,
			[]string{"hostNetwork changes dnsPolicy ClusterFirst to Default: to resolve the cluster's names, set ClusterFirstWithHostNet"}},
		{"ClusterFirstWithHostNet", Pod{Policy: ClusterFirstWithHostNet, HostNetwork: true}, nil, clusterFile, nil},
		{"ClusterFirstWithHostNet needs no such network", Pod{Policy: ClusterFirstWithHostNet}, nil, clusterFile, nil},
		{"Default", Pod{Policy: Default}, nil, nodeFile, nil},
		{"None", Pod{Policy: None, Config: &Config{Nameservers: []string{"192.0.2.9"}}}, nil, "nameserver 192.0.2.9\n", nil},
		{"None with all", Pod{Policy: None, Config: &Config{
			Nameservers: []string{"192.0.2.9"}, Searches: []string{"a.example"}, Options: []Option{{"ndots", "2"}, {"edns0", ""}},
		}}, nil, "nameserver 192.0.2.9\nsearch a.example\noptions ndots:2 edns0\n", nil},

		{"no address of the cluster's DNS", Pod{Policy: ClusterFirst}, func(k *Kubelet) { k.ClusterDNS = nil }, nodeFile,
			[]string{"dnsPolicy ClusterFirst falls back to Default (event MissingClusterDNS)"}},
		{"no address of the cluster's DNS on the node's network", Pod{Policy: ClusterFirstWithHostNet, HostNetwork: true},
			func(k *Kubelet) { k.ClusterDNS = nil }, nodeFile,
			[]string{"dnsPolicy ClusterFirstWithHostNet falls back to Default (event MissingClusterDNS)"}},
		{"None needs none", Pod{Policy: None, Config: &Config{Nameservers: []string{"192.0.2.9"}}},
			func(k *Kubelet) { k.ClusterDNS = nil }, "nameserver 192.0.2.9\n", nil},
		{"both families, as the library writes them", Pod{Policy: ClusterFirst}, func(k *Kubelet) {
			k.Node = &Config{}
			k.ClusterDNS = []netip.Addr{netip.MustParseAddr("FD00:0::A"), netip.MustParseAddr("::ffff:10.96.0.10")}
		}, "nameserver fd00::a\nnameserver 10.96.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n", nil},
		{"another domain", Pod{Policy: ClusterFirst}, func(k *Kubelet) { k.ClusterDomain, k.Node = "k8s.example", &Config{} },
			"nameserver 10.96.0.10\nsearch shop.svc.k8s.example svc.k8s.example k8s.example\noptions ndots:5\n", nil},
		{"no domain", Pod{Policy: ClusterFirst}, func(k *Kubelet) { k.ClusterDomain = "" },
			"nameserver 10.96.0.10\nsearch node.example example\noptions ndots:5\n", nil},
		{"the node searches the cluster, too", Pod{Policy: ClusterFirst},
			func(k *Kubelet) {
				k.Node = &Config{Searches: []string{"cluster.local", "node.example", "node.example"}}
			},
			"nameserver 10.96.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local node.example\noptions ndots:5\n", nil},
		{"the node searches the root", Pod{Policy: ClusterFirst}, func(k *Kubelet) { k.Node = &Config{Searches: []string{"."}} },
			"nameserver 10.96.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local .\noptions ndots:5\n", nil},

		{"an empty file", Pod{Policy: Default}, func(k *Kubelet) { k.Node = &Config{} }, "", nil},
		{"no file", Pod{Policy: Default}, func(k *Kubelet) { k.Node = nil }, "nameserver 127.0.0.1\nsearch .\n",
			[]string{"the kubelet's resolvConf is empty: the pod's only nameserver is itself"}},
		{"no file, and a pod of the cluster", Pod{Policy: ClusterFirst}, func(k *Kubelet) { k.Node = nil },
			"nameserver 10.96.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n", nil},
		{"the node's words twice stay twice", Pod{Policy: Default},
			func(k *Kubelet) {
				k.Node = &Config{Nameservers: []string{"192.0.2.1", "192.0.2.1"}, Searches: []string{"a", "a"}}
			},
			"nameserver 192.0.2.1\nnameserver 192.0.2.1\nsearch a a\n", nil},
		{"until there is a dnsConfig", Pod{Policy: Default, Config: &Config{}},
			func(k *Kubelet) {
				k.Node = &Config{Nameservers: []string{"192.0.2.1", "192.0.2.1"}, Searches: []string{"a", "a"}}
			},
			"nameserver 192.0.2.1\nsearch a\n", nil},

		{"systemd-resolved's stub", Pod{Policy: Default}, func(k *Kubelet) { k.Node = &Config{Nameservers: []string{"127.0.0.53"}} },
			"nameserver 127.0.0.53\n",
			[]string{"node.conf: 127.0.0.53 is systemd-resolved's stub on the node, but in the pod it is the pod itself: a DNS server that forwards there loops"}},
		{"another resolver of the node's own", Pod{Policy: Default}, func(k *Kubelet) { k.Node = &Config{Nameservers: []string{"::1"}} },
			"nameserver ::1\n", []string{"node.conf: ::1 is a resolver on the node, but in the pod it is the pod itself"}},
		{"which is there on the node's network", Pod{Policy: Default, HostNetwork: true},
			func(k *Kubelet) { k.Node = &Config{Nameservers: []string{"127.0.0.53"}} }, "nameserver 127.0.0.53\n", nil},
		{"and which a pod of the cluster does not ask", Pod{Policy: ClusterFirst},
			func(k *Kubelet) { k.Node = &Config{Nameservers: []string{"127.0.0.53"}} },
			"nameserver 10.96.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n", nil},

		{"dnsConfig is added", Pod{Policy: ClusterFirst, Config: &Config{
			Nameservers: []string{"192.0.2.9", "10.96.0.10"},
			Searches:    []string{"own.example", "svc.cluster.local", "example"},
			Options:     []Option{{"edns0", ""}, {"ndots", "2"}, {"edns0", ""}, {"timeout", "3"}},
		}}, nil, "nameserver 10.96.0.10\nnameserver 192.0.2.9\n" +
			"search shop.svc.cluster.local svc.cluster.local cluster.local node.example example own.example\n" +
			"options ndots:2 edns0 timeout:3\n", nil},
		{"dnsConfig with Default", Pod{Policy: Default, Config: &Config{
			Nameservers: []string{"2001:DB8::1"}, Searches: []string{"own.example."}, Options: []Option{{"timeout", ""}},
		}}, nil, "nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 2001:DB8::1\n" +
			"search node.example example own.example.\noptions edns0 timeout\n", nil},
		{"words are compared as text", Pod{Policy: ClusterFirst, Config: &Config{Searches: []string{"example.", "EXAMPLE"}}}, nil,
			"nameserver 10.96.0.10\n" +
				"search shop.svc.cluster.local svc.cluster.local cluster.local node.example example example. EXAMPLE\noptions ndots:5\n", nil},

		{"four nameservers", Pod{Policy: Default, Config: &Config{Nameservers: []string{"192.0.2.3", "192.0.2.4", "192.0.2.5"}}}, nil,
			"nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nsearch node.example example\noptions edns0 timeout:1\n",
			[]string{"nameservers: more than 3, omitted (event DNSConfigForming): 192.0.2.4 192.0.2.5"}},
		{"four addresses of the cluster's DNS", Pod{Policy: ClusterFirst}, func(k *Kubelet) {
			k.Node = nil
			k.ClusterDNS = slices.Repeat(k.ClusterDNS, 4)
		}, "nameserver 10.96.0.10\nnameserver 10.96.0.10\nnameserver 10.96.0.10\n" +
			"search shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n",
			[]string{"nameservers: more than 3, omitted (event DNSConfigForming): 10.96.0.10"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := kubelet()
			if tc.kubelet != nil {
				tc.kubelet(&k)
			}
			tc.pod.Namespace = "shop"
			c, comments := k.Form(tc.pod)
			if got := c.String(); got != tc.want {
				t.Errorf("the file is\n%swant\n%s", got, tc.want)
			}
			expect(t, comments, tc.comments)
		})
	}
}

// expect compares comments with a part of each.
func expect(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d comments, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
		return
	}
	for i, w := range want {
		if !strings.Contains(got[i], w) {
			t.Errorf("comment %d is\n%s\nwant\n%s", i, got[i], w)
		}
	}
}

// names returns n domains of the given length.
func names(n, chars int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%0*d", chars, i))
	}
	return all
}

func TestSearchLimits(t *testing.T) {
	long := strings.Repeat("a.", 126) + "a" // 253
	for _, tc := range []struct {
		name     string
		searches []string // of the node
		more     []string // of dnsConfig
		want     []string
		comments []string
	}{
		{"32", names(29, 5), names(32, 5), names(32, 5), nil},
		{"33 together", names(29, 5), names(33, 5), names(32, 5),
			[]string{"search domains: more than 32, omitted (event DNSConfigForming): 00032"}},
		{"the node's leave no room for the cluster's", names(30, 5), nil, names(30, 5),
			[]string{"node.conf: 30 search domains, the kubelet accepts 29 (event CheckLimitsForResolvConf)"}},
		{"33 of the node", names(33, 5), nil, names(32, 5),
			[]string{"node.conf: 33 search domains", "search domains: more than 32, omitted (event DNSConfigForming): 00032"}},
		{"2048 characters", append(names(20, 100), names(1, 28)...), nil, append(names(20, 100), names(1, 28)...), nil},
		{"2049 characters", append(names(20, 100), names(1, 29)...), nil, names(20, 100),
			[]string{"node.conf: search domains of 2049 characters, the kubelet accepts 2048", "more than 2048 characters in total, omitted (event DNSConfigForming): 0000"}},
		{"a domain after a removed one is removed, too", names(20, 100), append(names(1, 29), "a"), names(20, 100),
			[]string{"more than 2048 characters in total, omitted (event DNSConfigForming): " + names(1, 29)[0] + " a"}},
		{"253 characters", []string{long}, nil, []string{long}, nil},
		{"254 characters", []string{"b", long + "a", "c"}, nil, []string{"b", "c"},
			[]string{"search domains: longer than 253 characters, omitted (event DNSConfigForming): " + long + "a"}},
		{"one that is cut is not too long", append(names(29, 3), "x", "y", "z", long+"a"), nil, append(names(29, 3), "x", "y", "z"),
			[]string{"node.conf: 33 search domains", "more than 32, omitted (event DNSConfigForming): " + long + "a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := kubelet()
			k.Node = &Config{Searches: tc.searches}
			p := Pod{Policy: Default}
			if tc.more != nil {
				p.Config = &Config{Searches: tc.more}
			}
			c, comments := k.Form(p)
			if !slices.Equal(c.Searches, tc.want) {
				t.Errorf("searches %q, want %q", c.Searches, tc.want)
			}
			expect(t, comments, tc.comments)
		})
	}

	k := kubelet()
	k.ClusterDomain, k.Node = "", &Config{Searches: names(32, 5)}
	_, comments := k.Form(Pod{Policy: Default})
	expect(t, comments, nil) // there is nothing of the cluster's to leave room for
}

// The arguments do not change: a caller may form one pod after the other.
func TestFormTwice(t *testing.T) {
	k := kubelet()
	p := Pod{Policy: Default, Config: &Config{Nameservers: []string{"192.0.2.9"}, Options: []Option{{"timeout", "9"}}}}
	before := fmt.Sprint(*k.Node, *p.Config)
	one, _ := k.Form(p)
	two, _ := k.Form(p)
	if one.String() != two.String() || fmt.Sprint(*k.Node, *p.Config) != before {
		t.Errorf("first\n%sthen\n%s, of %v %v", one, two, *k.Node, *p.Config)
	}
}
