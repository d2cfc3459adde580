package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/kubernetes/index"
)

// A node is a node of the tree that kube-dns's status page shows.
type node struct {
	ChildNodes map[string]*node
	Entries    map[string]*skydns
}

// A skydns is a message of SkyDNS.
type skydns struct {
	Host        string `json:"host,omitempty"`
	Port        int    `json:"port,omitempty"`
	Priority    int    `json:"priority,omitempty"`
	Weight      int    `json:"weight,omitempty"`
	Text        string `json:"text,omitempty"`
	Mail        bool   `json:"mail,omitempty"`
	TTL         uint32 `json:"ttl,omitempty"`
	TargetStrip int    `json:"targetstrip,omitempty"`
	Group       string `json:"group,omitempty"`
}

// treeOf returns the tree of a cluster. It checks that the page equals the
// encoding of the same nodes by encoding/json, as kube-dns writes it.
func treeOf(t *testing.T, d directive, objects ...cluster.Object) *node {
	t.Helper()
	h := d.handler(t, load(d.newIndex(), objects...))
	var b bytes.Buffer
	if err := h.WriteTree(&b); err != nil {
		t.Fatal(err)
	}
	root := new(node)
	read := json.NewDecoder(bytes.NewReader(b.Bytes()))
	read.DisallowUnknownFields()
	if err := read.Decode(root); err != nil {
		t.Fatalf("decoding the tree: %v\n%s", err, &b)
	}
	want, err := json.MarshalIndent(root, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", &b, want)
	}
	return root
}

// lines returns a line for each entry of a tree, and for each empty leaf, with
// the labels from left to right.
func (n *node) lines() (all []string) {
	var walk func(n *node, name string)
	walk = func(n *node, name string) {
		if len(n.ChildNodes)+len(n.Entries) == 0 {
			all = append(all, name+" is empty")
		}
		for _, label := range slices.Sorted(maps.Keys(n.Entries)) {
			m := n.Entries[label]
			line := label + "." + name + " " + m.Host
			if m.Port > 0 {
				line += fmt.Sprintf(" :%d", m.Port)
			}
			if m.Priority != 10 || m.Weight != 10 || m.TTL != 30 {
				line += fmt.Sprintf(" %+v", *m)
			}
			all = append(all, line)
		}
		for _, label := range slices.Sorted(maps.Keys(n.ChildNodes)) {
			walk(n.ChildNodes[label], strings.TrimSuffix(label+"."+name, "."))
		}
	}
	walk(n, "")
	return all
}

// hash returns the label of an address.
func hash(ip string) string { return string(index.AppendHashLabel(nil, netip.MustParseAddr(ip))) }

func expectLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTree(t *testing.T) {
	d := defaultOptions()
	d.ttl = 30
	h := d.handler(t, load(d.newIndex(), namespaceObject("shop"),
		clusterIP("shop", "api", "http 80/tcp, 9090/tcp", "1.2.3.4"), external("shop", "web", "www.example.com")))
	var b strings.Builder
	if err := h.WriteTree(&b); err != nil {
		t.Fatal(err)
	}
	const want = `{
	"ChildNodes": {
		"local": {
			"ChildNodes": {
				"cluster": {
					"ChildNodes": {
						"svc": {
							"ChildNodes": {
								"shop": {
									"ChildNodes": {
										"api": {
											"ChildNodes": {
												"_tcp": {
													"ChildNodes": {
														"_http": {
															"ChildNodes": {},
															"Entries": {
																"6263626163303737": {
																	"host": "api.shop.svc.cluster.local.",
																	"port": 80,
																	"priority": 10,
																	"weight": 10,
																	"ttl": 30
																}
															}
														}
													},
													"Entries": {}
												}
											},
											"Entries": {
												"6263626163303737": {
													"host": "1.2.3.4",
													"priority": 10,
													"weight": 10,
													"ttl": 30
												}
											}
										}
									},
									"Entries": {
										"web": {
											"host": "www.example.com",
											"priority": 10,
											"weight": 10,
											"ttl": 30
										}
									}
								}
							},
							"Entries": {}
						}
					},
					"Entries": {}
				}
			},
			"Entries": {}
		}
	},
	"Entries": {}
}`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", &b, want)
	}
}

func optionsWithTTL30(zones ...string) directive {
	d := defaultOptions()
	d.ttl = 30
	if len(zones) > 0 {
		d.zones = zones
	}
	return d
}

func TestTreeServices(t *testing.T) {
	got := treeOf(t, optionsWithTTL30(),
		namespaceObject("shop"), namespaceObject("a"), namespaceObject("empty"),
		clusterIP("shop", "api", "http 80/tcp, dns 53/udp, dns 53/tcp, 9090/tcp", "10.96.0.1", "fd00::1"),
		slice("shop", "api-1", "api", "http 8080/tcp", "api-0=10.0.0.1"),
		headless("shop", "db"),
		slice("shop", "db-1", "db", "sql 5432/tcp, 1/tcp", "db-0=10.0.0.2", "10.0.0.3", "!10.0.0.4", "fd00::3"),
		headless("shop", "none"),
		slice("shop", "none-1", "none", "sql 5432/tcp", "!10.0.0.5"),
		headless("shop", "plain"), slice("shop", "plain-1", "plain", "", "10.0.0.6"),
		external("shop", "web", "www.Example.com"), external("shop", "bad", "10.0.0.1"),
		clusterIP("a", "one", "", "10.96.0.2"),
		clusterIP("hidden", "api", "http 80/tcp", "10.96.0.3"),
	)
	const zone = ".svc.cluster.local"
	expectLines(t, got.lines(),
		hash("10.96.0.2")+".one.a"+zone+" 10.96.0.2",
		"web.shop"+zone+" www.example.com",
		hash("10.96.0.1")+".api.shop"+zone+" 10.96.0.1",
		hash("fd00::1")+".api.shop"+zone+" fd00::1",
		hash("10.96.0.1")+"._dns._tcp.api.shop"+zone+" api.shop"+zone+". :53",
		hash("fd00::1")+"._dns._tcp.api.shop"+zone+" api.shop"+zone+". :53",
		hash("10.96.0.1")+"._http._tcp.api.shop"+zone+" api.shop"+zone+". :80",
		hash("fd00::1")+"._http._tcp.api.shop"+zone+" api.shop"+zone+". :80",
		hash("10.96.0.1")+"._dns._udp.api.shop"+zone+" api.shop"+zone+". :53",
		hash("fd00::1")+"._dns._udp.api.shop"+zone+" api.shop"+zone+". :53",
		hash("10.0.0.3")+".db.shop"+zone+" 10.0.0.3",
		hash("fd00::3")+".db.shop"+zone+" fd00::3",
		"db-0.db.shop"+zone+" 10.0.0.2",
		hash("10.0.0.3")+"._sql._tcp.db.shop"+zone+" "+hash("10.0.0.3")+".db.shop"+zone+". :5432",
		hash("fd00::3")+"._sql._tcp.db.shop"+zone+" "+hash("fd00::3")+".db.shop"+zone+". :5432",
		"db-0._sql._tcp.db.shop"+zone+" db-0.db.shop"+zone+". :5432",
		hash("10.0.0.6")+".plain.shop"+zone+" 10.0.0.6",
	)
}

// An object has each name once: of two addresses with one hostname the second is
// at its hash, where kube-dns loses one of them. Entries with one label share its
// ports, as in answers.
func TestTreeSharedLabels(t *testing.T) {
	got := treeOf(t, optionsWithTTL30(), namespaceObject("shop"), headless("shop", "db"),
		slice("shop", "db-1", "db", "sql 5432/tcp", "db-0=10.0.0.1", "db-0=fd00::1", "10.0.0.2"),
		slice("shop", "db-2", "db", "sql 5433/tcp, web 80/tcp", "10.0.0.2", "db-0=10.0.0.1"))
	const zone = ".db.shop.svc.cluster.local"
	expectLines(t, got.lines(),
		hash("fd00::1")+zone+" fd00::1", hash("10.0.0.2")+zone+" 10.0.0.2", "db-0"+zone+" 10.0.0.1",
		hash("fd00::1")+"._sql._tcp"+zone+" "+hash("fd00::1")+zone+". :5432",
		hash("10.0.0.2")+"._sql._tcp"+zone+" "+hash("10.0.0.2")+zone+". :5432",
		"db-0._sql._tcp"+zone+" db-0"+zone+". :5432",
		hash("fd00::1")+"._web._tcp"+zone+" "+hash("fd00::1")+zone+". :80",
		hash("10.0.0.2")+"._web._tcp"+zone+" "+hash("10.0.0.2")+zone+". :80",
		"db-0._web._tcp"+zone+" db-0"+zone+". :80",
	)
}

// Every zone has the Services, except the zones of ServiceImports and reverse
// zones. A zone below svc of another zone hides that part of it.
func TestTreeZones(t *testing.T) {
	objects := []cluster.Object{namespaceObject("shop"), namespaceObject("x"), clusterIP("shop", "api", "", "10.96.0.1"), clusterIP("x", "api", "", "10.96.0.2")}
	at := func(zone string) string { return hash("10.96.0.1") + ".api.shop.svc" + zone + " 10.96.0.1" }
	atX := func(zone string) string { return hash("10.96.0.2") + ".api.x.svc" + zone + " 10.96.0.2" }
	d := optionsWithTTL30("cluster.local.", "local.", "other.example.", "clusterset.local.", "in-addr.arpa.")
	d.multicluster = []string{"clusterset.local."}
	expectLines(t, treeOf(t, d, objects...).lines(),
		at(".other.example"), atX(".other.example"), at(".cluster.local"), atX(".cluster.local"), at(".local"), atX(".local"))
	expectLines(t, treeOf(t, optionsWithTTL30("."), objects...).lines(), at(""), atX(""))
	expectLines(t, treeOf(t, optionsWithTTL30("local.", "svc.local."), objects...).lines(), at(".svc.local"), atX(".svc.local"))
	expectLines(t, treeOf(t, optionsWithTTL30("local.", "x.svc.local."), objects...).lines(), at(".local"), at(".x.svc.local"), atX(".x.svc.local"))
	expectLines(t, treeOf(t, optionsWithTTL30()).lines(), "svc.cluster.local is empty")
}

func TestTreeTTL0(t *testing.T) {
	d := defaultOptions()
	d.ttl = 0
	treeOf(t, d, namespaceObject("shop"), clusterIP("shop", "api", "", "10.96.0.1"))
}

// A failed write ends the output soon, and its error is returned.
func TestTreeWriterFails(t *testing.T) {
	d := defaultOptions()
	objects := []cluster.Object{namespaceObject("shop")}
	for i := range 1000 {
		objects = append(objects, clusterIP("shop", fmt.Sprintf("s%d", i), "http 80/tcp", fmt.Sprintf("10.96.%d.%d", i/250, i%250)))
	}
	h := d.handler(t, load(d.newIndex(), objects...))
	w := &failing{after: 1 << 14}
	if err := h.WriteTree(w); !errors.Is(err, io.ErrClosedPipe) || w.calls != 1 {
		t.Errorf("%v, written to %d times after the error, want once", err, w.calls)
	}
	if w.most > 1<<13 {
		t.Errorf("largest write: got %d bytes, want at most %d", w.most, 1<<13)
	}
}

// A failing writer accepts some bytes and counts the calls after that.
type failing struct{ after, calls, most int }

func (f *failing) Write(p []byte) (int, error) {
	f.most = max(f.most, len(p))
	if f.after -= len(p); f.after < 0 {
		f.calls++
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}
