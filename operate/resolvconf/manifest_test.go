package resolvconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// spec is a pod's, to be put behind "spec:" at any depth.
const spec = `{dnsPolicy: None, hostNetwork: true, dnsConfig: {
  nameservers: [192.0.2.1, "2001:DB8::1"],
  searches: [a.example., _tcp.b_c, .],
  options: [{name: ndots, value: "2"}, {name: edns0}, {name: timeout, value: ""}]}, containers: []}
`

const specFile = "nameserver 192.0.2.1\nnameserver 2001:DB8::1\nsearch a.example. _tcp.b_c .\noptions ndots:2 edns0 timeout\n"

// describe shows a manifest in one text.
func describe(m Manifest) string {
	host := "?"
	if m.HostNetwork != nil {
		host = fmt.Sprint(*m.HostNetwork)
	}
	text := fmt.Sprintf("%s|%s|%s|%s", m.Name, m.Namespace, m.Policy, host)
	if m.Config != nil {
		text += "\n" + m.Config.String()
	}
	return text
}

func TestParseManifest(t *testing.T) {
	for _, tc := range []struct {
		name, text, want string
	}{
		{"Pod", "kind: Pod\nmetadata: {name: web, namespace: shop}\nspec: " + spec, "Pod shop/web|shop|None|true\n" + specFile},
		{"Deployment", "kind: Deployment\nmetadata: {name: web}\nspec:\n template:\n  spec: " + spec, "Deployment web||None|true\n" + specFile},
		{"StatefulSet", "kind: StatefulSet\nmetadata: {name: web}\nspec:\n template:\n  spec: " + spec, "StatefulSet web||None|true\n" + specFile},
		{"DaemonSet", "kind: DaemonSet\nmetadata: {name: web}\nspec:\n template:\n  spec: " + spec, "DaemonSet web||None|true\n" + specFile},
		{"ReplicaSet", "kind: ReplicaSet\nmetadata: {name: web}\nspec:\n template:\n  spec: " + spec, "ReplicaSet web||None|true\n" + specFile},
		{"ReplicationController", "kind: ReplicationController\nmetadata: {name: web}\nspec:\n template:\n  spec: " + spec, "ReplicationController web||None|true\n" + specFile},
		{"Job", "kind: Job\nmetadata: {generateName: web-}\nspec:\n template:\n  spec: " + spec, "Job web-||None|true\n" + specFile},
		{"CronJob", "kind: CronJob\nmetadata: {name: web}\nspec:\n jobTemplate:\n  spec:\n   template:\n    spec: " + spec, "CronJob web||None|true\n" + specFile},
		{"PodTemplate", "kind: PodTemplate\nmetadata: {name: web}\ntemplate:\n spec: " + spec, "PodTemplate web||None|true\n" + specFile},
		{"a custom kind", "kind: Rollout\nmetadata: {name: web}\nspec:\n template:\n  spec: " + spec, "Rollout web||None|true\n" + specFile},
		{"the namespace is the outer one", "kind: Job\nmetadata: {name: a, namespace: outer}\nspec: {template: {metadata: {namespace: inner}, spec: {}}}", "Job outer/a|outer||?"},
		{"nothing said", "kind: Pod\nspec: {}", "Pod (no name)|||?"},
		{"nothing said in words", "kind: Pod\nmetadata: {namespace: ''}\nspec: {dnsPolicy: '', hostNetwork: null, dnsConfig: null}", "Pod (no name)|||?"},
		{"false is said", "kind: Pod\nspec: {hostNetwork: false, dnsConfig: {}}", "Pod (no name)|||false\n"},
		{"among others", "# a shop\n---\nkind: Service\n---\n---\nkind: Pod\nspec: {dnsPolicy: Default}\n---\nkind: ConfigMap\ndata: {dnspolicies: x}\n...\n", "Pod (no name)||Default|?"},
		{"in a list", "kind: List\nitems:\n- kind: Service\n- kind: Pod\n  spec: {dnsPolicy: Default}\n", "Pod (no name)||Default|?"},
		{"in a list of pods", "kind: PodList\nitems:\n- metadata: {name: a}\n  spec: {dnsPolicy: Default}\n", "Pod a||Default|?"},
		{"JSON", "{\n \"kind\": \"Pod\",\n \"metadata\": {\"name\": \"a\\/\\ud83d\\ude00\", \"n\": [1, null, {}]},\n \"spec\": {\"hostNetwork\": true, \"dnsConfig\": {\"options\": [{\"name\": \"a\"}]}}\n}\n",
			"Pod a/\U0001f600|||true\noptions a\n"},
		{"JSON, several", `{"kind": "Service"} {"kind": "Pod", "spec": {}}`, "Pod (no name)|||?"},
		{"YAML in braces", "{kind: Pod, spec: {hostNetwork: yes}}", "Pod (no name)|||true"},
		{"anchors and merges", "kind: Pod\nspec:\n  dnsConfig: {nameservers: [&ns 192.0.2.1], options: [&o {name: a, value: b}, {<<: *o, name: c}]}\nstatus: [*ns]\n",
			"Pod (no name)|||?\nnameserver 192.0.2.1\noptions a:b c:b\n"},
		{"a mark at the start", "\ufeffkind: Pod\nspec: {}", "Pod (no name)|||?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, comments, err := ParseManifest("a.yaml", []byte(tc.text))
			if err != nil || describe(m) != tc.want || len(comments) > 0 {
				t.Errorf("%v, %q and\n%s\nwant\n%s", err, comments, describe(m), tc.want)
			}
		})
	}
}

// Each error has the position, the input and the expected form.
func TestParseManifestErrors(t *testing.T) {
	pod := func(spec string) string { return "kind: Pod\nmetadata: {name: a}\nspec:\n  " + spec + "\n" }
	list := func(n int, item string) string { return "[" + strings.Repeat(item+", ", n) + "]" }
	long := strings.Repeat("a", 253)
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", "", "a.yaml: no pod or pod template, only no objects: want a Pod, Deployment, StatefulSet, DaemonSet, Job or CronJob"},
		{"no pod", "kind: Service\n---\nkind: ConfigMap\n---\nkind: Service\n", "a.yaml: no pod or pod template, only ConfigMap, Service: want a Pod,"},
		{"an empty list", `{"kind": "List", "items": []}`, "a.yaml: no pod or pod template, only List: want"},
		{"two", "kind: Pod\nmetadata: {name: a}\nspec: {}\n---\nkind: Job\nmetadata: {name: b, namespace: c}\nspec: {template: {spec: {}}}\n",
			"a.yaml: 2 objects with pods, Pod a (line 1), Job c/b (line 5): keep one in the file, or pipe one (kubectl get ... -o yaml | seamark resolvconf --pod -)"},
		{"no kind", "a: b\n---\nkind: Pod\nspec: {}\n", "a.yaml:1: not a Kubernetes object: no kind"},
		{"not a mapping", "kind: Pod\nspec: {}\n---\nhello\n", "a.yaml:4: not a Kubernetes object: no kind"},
		{"no template", "---\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n", "a.yaml:2: Deployment web: spec.template.spec is missing"},
		{"no spec", "kind: Pod\n", "a.yaml:1: Pod (no name): spec is missing"},

		{"grammar", "kind: Pod\nspec: [\nb: c\n", "a.yaml:3: did not find expected ',' or ']'"},
		{"words", "kind: Pod\nspec: x: y\n", "a.yaml:2: mapping values are not allowed in this context"},
		{"tabs", "kind: Pod\n\tspec: 1\n", "a.yaml:2: found a tab character that violates indentation"},
		{"a template of Helm", "kind: Pod\nmetadata:\n  name: {{ .Values.name }}\n", "a.yaml:3: a mapping or list as a key: if this is a template, render it first"},
		{"twice", "kind: Pod\nspec:\n  dnsPolicy: None\n  dnsPolicy: Default\n", `a.yaml:4: key "dnsPolicy" already set in map`},
		{"twice beside a merge", "a: &a {b: c}\nd: {<<: *a, b: e}\nkind: Pod\n", "a.yaml:1: Pod (no name): spec is missing"},
		{"aliases that grow", "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n" +
			"d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\n",
			"a.yaml: document contains excessive aliasing"},
		{"not text", "kind: \xff\n", "a.yaml: invalid leading UTF-8 octet"},
		{"JSON, half", "{\"kind\": \"Pod\",\n\"spec\": {\n", "a.yaml:2: did not find expected node content"},
		{"JSON, twice", "{\"kind\": \"Pod\",\n\"spec\": {},\n\"spec\": {}}\n", `a.yaml:3: key "spec" already set in map`},

		{"policy", pod("dnsPolicy: clusterFirst"), `a.yaml:4: Pod a: spec.dnsPolicy: want ClusterFirst, ClusterFirstWithHostNet, Default or None, got "clusterFirst"`},
		{"policy that is no string", pod("dnsPolicy: [None]"), "a.yaml:4: Pod a: spec.dnsPolicy: want a string, got a list"},
		{"hostNetwork", pod(`hostNetwork: "true"`), `a.yaml:4: Pod a: spec.hostNetwork: want true or false, got the string "true"`},
		{"namespace", "kind: Pod\nmetadata: {name: a,\n  namespace: A.b}\nspec: {}\n", `a.yaml:3: Pod A.b/a: metadata.namespace: want the name of a namespace: at most 63 characters a-z, 0-9 and -, got "A.b"`},
		{"namespace of 64", "kind: Pod\nmetadata: {namespace: " + long[:64] + "}\nspec: {}\n", "metadata.namespace: want the name of a namespace"},
		{"dnsConfig", pod("dnsConfig: [192.0.2.1]"), "a.yaml:4: Pod a: spec.dnsConfig: want the fields nameservers, searches, options, got a list"},
		{"a field of dnsConfig", pod("dnsConfig:\n    nameserver: [192.0.2.1]"), `a.yaml:5: Pod a: spec.dnsConfig: unknown field "nameserver": want nameservers, searches, options`},
		{"nameservers", pod("dnsConfig: {nameservers: 192.0.2.1}"), `a.yaml:4: Pod a: spec.dnsConfig.nameservers: want a list, got the string "192.0.2.1"`},
		{"nameservers by key", pod("dnsConfig: {nameservers: {a: b}}"), "a.yaml:4: Pod a: spec.dnsConfig.nameservers: want a list, got a mapping"},
		{"four nameservers", pod("dnsConfig: {nameservers: " + list(4, "192.0.2.1") + "}"), "a.yaml:4: Pod a: spec.dnsConfig.nameservers: got 4, the API server accepts at most 3"},
		{"a name for a nameserver", pod("dnsConfig:\n    nameservers:\n    - 192.0.2.1\n    - dns.example"), `a.yaml:7: Pod a: spec.dnsConfig.nameservers[1]: want an IP address, got "dns.example"`},
		{"a port", pod("dnsConfig: {nameservers: ['192.0.2.1:53']}"), `spec.dnsConfig.nameservers[0]: want an IP address, got "192.0.2.1:53"`},
		{"an interface", pod("dnsConfig: {nameservers: ['fe80::1%eth0']}"), `spec.dnsConfig.nameservers[0]: want an IP address without an interface, got "fe80::1%eth0"`},
		{"zeros that lead", pod("dnsConfig: {nameservers: [010.0.0.1]}"), `spec.dnsConfig.nameservers[0]: want an IP address, got "010.0.0.1"`},
		{"no nameserver", pod("dnsConfig: {nameservers: [~]}"), `a.yaml:4: Pod a: spec.dnsConfig.nameservers[0]: want an IP address, got ""`},
		{"a number", pod("dnsConfig: {searches: [1.5]}"), "a.yaml:4: Pod a: spec.dnsConfig.searches[0]: want a string, got the number 1.5: put it in quotes"},
		{"33 searches", pod("dnsConfig: {searches: " + list(33, "a") + "}"), "spec.dnsConfig.searches: got 33, the API server accepts at most 32"},
		{"3 nameservers", pod("dnsConfig: {nameservers: " + list(3, "192.0.2.1") + "}"), ""},
		{"32 searches", pod("dnsConfig: {searches: " + list(32, "a") + "}"), ""},
		{"2048 characters", pod("dnsConfig: {searches: [" + strings.Repeat(long+", ", 8) + long[:16] + "]}"), ""},
		{"2049 characters", pod("dnsConfig: {searches: [" + strings.Repeat(long+", ", 8) + long[:17] + "]}"), "spec.dnsConfig.searches: 2049 characters including spaces, the API server accepts at most 2048"},
		{"254 characters", pod("dnsConfig: {searches: [" + long + "a]}"), "spec.dnsConfig.searches[0]: want a name of at most 253 characters, got 254"},
		{"253 and a dot", pod("dnsConfig: {searches: [" + long + ".]}"), ""},
		{"upper case", pod("dnsConfig: {searches: [Example.com]}"), "spec.dnsConfig.searches[0]: want a domain name of a-z, 0-9, - and _, got \"Example.com\""},
		{"two dots at the end", pod("dnsConfig: {searches: [a..]}"), "spec.dnsConfig.searches[0]: want a domain name"},
		{"two dots", pod("dnsConfig: {searches: ['..']}"), "spec.dnsConfig.searches[0]: want a domain name"},
		{"a hyphen first", pod("dnsConfig: {searches: [a.-b]}"), "spec.dnsConfig.searches[0]: want a domain name"},
		{"an underscore last", pod("dnsConfig: {searches: [a_.b]}"), "spec.dnsConfig.searches[0]: want a domain name"},
		{"two underscores first", pod("dnsConfig: {searches: [__a.b]}"), "spec.dnsConfig.searches[0]: want a domain name"},
		{"a space", pod("dnsConfig: {searches: [a b]}"), "spec.dnsConfig.searches[0]: want a domain name"},
		{"an empty search", pod("dnsConfig: {searches: ['']}"), "spec.dnsConfig.searches[0]: want a domain name"},
		{"a value without quotes", pod("dnsConfig:\n    options:\n    - name: ndots\n      value: 2"), "a.yaml:7: Pod a: spec.dnsConfig.options[0].value: want a string, got the number 2: put it in quotes"},
		{"such a value in JSON", "{\"kind\": \"Pod\", \"spec\": {\"dnsConfig\": {\n\"options\": [{\"name\": \"a\",\n\"value\": 2}]}}}", "a.yaml:3: Pod (no name): spec.dnsConfig.options[0].value: want a string, got the number 2: put it in quotes"},
		{"a name without quotes", pod("dnsConfig: {options: [{name: on}]}"), "spec.dnsConfig.options[0].name: want a string, got the boolean true: put it in quotes"},
		{"no name", pod("dnsConfig:\n    options:\n    - value: '2'"), "a.yaml:6: Pod a: spec.dnsConfig.options[0].name: want a name such as ndots"},
		{"an empty name", pod("dnsConfig: {options: [{name: ''}]}"), "spec.dnsConfig.options[0].name: want a name such as ndots"},
		{"a word for an option", pod("dnsConfig: {options: ['ndots:2']}"), `a.yaml:4: Pod a: spec.dnsConfig.options[0]: want the fields name, value, got the string "ndots:2"`},
		{"no option", pod("dnsConfig: {options: [~]}"), "a.yaml:4: Pod a: spec.dnsConfig.options[0]: want a name, and a value if the option has one"},
		{"a field of an option", pod("dnsConfig: {options: [{name: a, values: b}]}"), `spec.dnsConfig.options[0]: unknown field "values": want name, value`},
		{"options by name", pod("dnsConfig: {options: {ndots: 2}}"), "a.yaml:4: Pod a: spec.dnsConfig.options: want a list, got a mapping"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := ParseManifest("a.yaml", []byte(tc.text))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%v, want\n%s", err, tc.want)
			}
		})
	}
	_, _, err := ParseManifest("a.json", []byte("{\"kind\": \"Pod\",\n\"spec\" {}}\n"))
	if want := "a.json:2: invalid character '{' after object key"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// All errors are reported at once.
func TestParseManifestAllErrors(t *testing.T) {
	_, _, err := ParseManifest("a.yaml", []byte("kind: Pod\nspec:\n  dnsPolicy: X\n  hostNetwork: 1\n  dnsConfig:\n    nameservers: [a, b]\n    options: 1\n"))
	var lines []string
	for line := range strings.Lines(fmt.Sprint(err)) {
		at, _, _ := strings.Cut(line, " ")
		lines = append(lines, at)
	}
	if got, want := strings.Join(lines, " "), "a.yaml:3: a.yaml:4: a.yaml:6: a.yaml:6: a.yaml:7:"; got != want {
		t.Errorf("errors at %s, want %s:\n%v", got, want, err)
	}
}

func TestParseManifestComments(t *testing.T) {
	for _, tc := range []struct {
		text     string
		comments []string
	}{
		{"kind: Deployment\nspec:\n  dnsPolicy: None\n  template:\n    spec:\n      dnspolicy: Default\n      containers:\n      - dnsConfig: {}\n", []string{
			"a.yaml:3: spec.dnsPolicy is ignored: the pod's field is spec.template.spec.dnsPolicy",
			"a.yaml:6: spec.template.spec.dnspolicy is ignored: the pod's field is spec.template.spec.dnsPolicy",
			"a.yaml:8: spec.template.spec.containers[0].dnsConfig is ignored: the pod's field is spec.template.spec.dnsConfig",
		}},
		{"kind: Pod\nhostNetwork: true\nspec: {hostnetwork: true}\n", []string{
			"a.yaml:2: hostNetwork is ignored: the pod's field is spec.hostNetwork",
			"a.yaml:3: spec.hostnetwork is ignored",
		}},
		{"kind: Pod\nspec: {dnsConfig: {options: [{name: a b}]}}\n", []string{
			"a.yaml:2: spec.dnsConfig.options[0]: the option contains spaces and becomes several words",
		}},
	} {
		_, comments, err := ParseManifest("a.yaml", []byte(tc.text))
		if err != nil {
			t.Error(err)
		}
		expect(t, comments, tc.comments)
	}
}

func TestManifestPod(t *testing.T) {
	parse := func(text string) Manifest {
		m, _, err := ParseManifest("a.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	full := parse("kind: Pod\nmetadata: {name: a, namespace: shop}\nspec: {dnsPolicy: Default, hostNetwork: false}\n")
	bare := parse("kind: Pod\nmetadata: {name: a}\nspec: {}\n")
	for _, tc := range []struct {
		name     string
		manifest Manifest
		flags    Flags
		want     string // namespace, policy, network
		comments []string
	}{
		{"nothing", Manifest{}, Flags{}, "default ClusterFirst false", nil},
		{"flags", Manifest{}, Flags{"a", Default, true}, "a Default true", nil},
		{"flags for what is missing", bare, Flags{"a", Default, true}, "a Default true", nil},
		{"a manifest", full, Flags{}, "shop Default false", nil},
		{"flags that agree", full, Flags{"shop", Default, false}, "shop Default false", nil},
		{"flags that do not", full, Flags{"b", None, true}, "shop Default false", []string{
			"--namespace b is ignored: Pod shop/a sets shop",
			"--dns-policy None is ignored: Pod shop/a sets Default",
			"--host-network true is ignored: Pod shop/a sets false",
		}},
	} {
		p, comments, err := tc.manifest.Pod(tc.flags)
		if got := fmt.Sprint(p.Namespace, " ", p.Policy, " ", p.HostNetwork); err != nil || got != tc.want {
			t.Errorf("%s: %v, %s, want %s", tc.name, err, got, tc.want)
		}
		expect(t, comments, tc.comments)
	}

	for _, tc := range []struct {
		name     string
		manifest Manifest
		want     string
	}{
		{"flags", Manifest{}, "dnsPolicy None needs a dnsConfig with at least one nameserver: set a manifest with --pod"},
		{"spec", bare, "a.yaml:3: Pod a: dnsPolicy None needs a dnsConfig with at least one nameserver"},
		{"policy", parse("kind: Pod\nspec:\n  hostNetwork: true\n  dnsPolicy: None\n"), "a.yaml:4: Pod (no name): dnsPolicy None needs a dnsConfig"},
		{"config", parse("kind: Pod\nspec:\n  dnsPolicy: None\n  dnsConfig:\n    searches: [a]\n"), "a.yaml:5: Pod (no name): dnsPolicy None needs a dnsConfig"},
	} {
		if _, _, err := tc.manifest.Pod(Flags{Policy: None}); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}

func TestReadManifest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: of-file}\nspec: {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	in := "kind: Pod\nmetadata: {name: of-input}\nspec: {}\n"
	for name, want := range map[string]string{file: "Pod of-file", "-": "Pod of-input"} {
		if m, _, err := ReadManifest(name, strings.NewReader(in)); err != nil || m.Name != want {
			t.Errorf("%s: %v, %q, want %s", name, err, m.Name, want)
		}
	}
	for name, want := range map[string]string{
		file + "x": "reading the manifest: open " + file + "x: no such file or directory",
		"-":        "(standard input):1: Pod (no name): spec is missing",
	} {
		if _, _, err := ReadManifest(name, strings.NewReader("kind: Pod\n")); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, _, err := ReadManifest("-", strings.NewReader(strings.Repeat("#", maxManifest+1)))
	if want := "reading the manifest: read (standard input): larger than 16 MB"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
