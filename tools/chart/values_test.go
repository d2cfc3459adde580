package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// A valueSet is a section of testdata/values.txt or rejected.txt.
type valueSet struct {
	name, values string
	comments     []string // lines that begin with "# "
}

// valueSets reads a file of testdata. Each set has an image unless it has one of its own.
func valueSets(t *testing.T, file string) (sets []valueSet) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split(string(text), "\n-- ")[1:] {
		name, values, _ := strings.Cut(section, " --\n")
		set := valueSet{name: name}
		v := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(values), &v); err != nil {
			t.Fatalf("%s: %s: %v", file, name, err)
		}
		image, _ := v["image"].(map[string]any)
		if image == nil {
			image = map[string]any{}
		}
		if image["repository"] == nil {
			image["repository"] = "registry.example/seamark"
		}
		v["image"] = image
		merged, err := yaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		set.values = string(merged)
		for line := range strings.Lines(values) {
			if comment, ok := strings.CutPrefix(line, "# "); ok {
				set.comments = append(set.comments, strings.TrimSpace(comment))
			}
		}
		sets = append(sets, set)
	}
	return sets
}

// Each set of values makes objects that Kubernetes 1.30 to 1.36 have, with a Corefile that
// the server accepts.
func TestValuesAccepted(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	c, versions, seamark := loadChart(t), schemas(t), buildSeamark(t)
	checkSchemas(t, versions)
	sets := valueSets(t, "values.txt")
	if len(sets) < 60 {
		t.Errorf("got %d sets, want 60 or more", len(sets))
	}
	for _, set := range sets {
		t.Run(strings.ReplaceAll(set.name, " ", "-"), func(t *testing.T) {
			r, err := render(c, set.values, "seamark", "kube-system", nil)
			if err != nil {
				t.Fatalf("%s\n%v", set.values, err)
			}
			for _, comment := range set.comments {
				checkWanted(t, r, comment)
			}
			for _, o := range r.objects {
				for _, s := range versions {
					if err := s.validate(o); err != nil {
						t.Error(err)
					}
				}
			}
			checkObjects(t, r)
			checkCorefile(t, seamark, r)
		})
	}
}

// checkWanted checks a comment "want KIND PATH JSON". A path has keys and indexes; a key may
// have dots itself.
func checkWanted(t *testing.T, r *rendering, comment string) {
	t.Helper()
	word := strings.SplitN(comment, " ", 4)
	if len(word) != 4 || word[0] != "want" {
		t.Fatalf("got the comment %q, want KIND PATH JSON", comment)
	}
	var got []string
	for _, o := range r.find(word[1]) {
		text, err := json.Marshal(lookup(o.Object, word[2]))
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, string(text)); string(text) == canonical(t, word[3]) {
			return
		}
	}
	if word[3] != "null" || len(got) > 0 {
		t.Errorf("%s %s: got %v, want %s", word[1], word[2], got, word[3])
	}
}

func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	out, _ := json.Marshal(v)
	return string(out)
}

func lookup(v any, path string) any {
	if path == "" {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		for key, below := range v {
			if rest, ok := strings.CutPrefix(path+".", key+"."); ok {
				return lookup(below, strings.TrimSuffix(rest, "."))
			}
		}
	case []any:
		index, rest, _ := strings.Cut(path, ".")
		if i, err := strconv.Atoi(index); err == nil && i < len(v) {
			return lookup(v[i], rest)
		}
	}
	return nil
}

// checkObjects checks what no schema has: what the API server warns about, and what goes
// wrong later.
func checkObjects(t *testing.T, r *rendering) {
	t.Helper()
	seen := map[string]bool{}
	for _, o := range r.objects {
		id := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if seen[id] || len(o.GetName()) > 63 {
			t.Errorf("%s: got it twice or with a name of more than 63 characters, want neither", id)
		}
		seen[id] = true
		if _, ok := o.GetLabels()["k8s-app"]; ok && o.GetKind() == "Deployment" {
			t.Errorf("%s: got the label k8s-app, want none: kubeadm counts Deployments with it", id)
		}
		if o.GetKind() == "Deployment" {
			checkPodSpec(t, o, "spec.template.spec")
		}
		if o.GetKind() == "Pod" {
			checkPodSpec(t, o, "spec")
		}
	}
	if len(r.find("Deployment")) == 0 {
		return
	}
	d := r.server(t)
	pods := field(d, "spec.template.metadata.labels").(map[string]any)
	for _, o := range r.objects {
		if o.GetKind() != "Service" && o.GetKind() != "PodDisruptionBudget" && o.GetKind() != "Deployment" {
			continue
		}
		selector, _ := field(o, "spec.selector.matchLabels").(map[string]any)
		if o.GetKind() == "Service" {
			selector, _ = field(o, "spec.selector").(map[string]any)
		}
		for _, test := range r.find("Pod") {
			if matches(selector, test.GetLabels()) {
				t.Errorf("%s %s: got the selector %v, want one that does not match the pod of helm test", o.GetKind(), o.GetName(), selector)
			}
		}
		if o.GetKind() == "Deployment" && o.GetName() == d.GetName() {
			for key, value := range selector {
				if pods[key] != value {
					t.Errorf("label %s of the pods: got %v, want %v", key, pods[key], value)
				}
			}
		}
	}
}

func matches(selector map[string]any, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// checkPodSpec checks the names of ports, the image, and the security context.
func checkPodSpec(t *testing.T, o *unstructured.Unstructured, path string) {
	t.Helper()
	spec := field(o, path).(map[string]any)
	mounted := map[string]bool{}
	volumes, _ := spec["volumes"].([]any)
	for _, v := range volumes {
		mounted[v.(map[string]any)["name"].(string)] = true
	}
	names := map[string]bool{}
	container := spec["containers"].([]any)[0].(map[string]any)
	ports, _ := container["ports"].([]any)
	for _, p := range ports {
		p := p.(map[string]any)
		name := p["name"].(string)
		number := fmt.Sprint(p["containerPort"], p["protocol"])
		if names[name] || names[number] || len(name) > 15 {
			t.Errorf("%s: port %s %s: got it twice or with more than 15 characters, want neither", o.GetName(), name, number)
		}
		names[name], names[number] = true, true
	}
	mounts, _ := container["volumeMounts"].([]any)
	for _, m := range mounts {
		if name := m.(map[string]any)["name"].(string); !mounted[name] {
			t.Errorf("%s: got a mount of the volume %s, want a volume of that name", o.GetName(), name)
		}
	}
	image := container["image"].(string)
	if host, _, _ := strings.Cut(image, "/"); !strings.Contains(host, ".") {
		t.Errorf("%s: got the image %s, want one with the host of a registry", o.GetName(), image)
	}
	security, _ := json.Marshal([]any{spec["securityContext"], container["securityContext"]})
	for _, want := range []string{`"runAsNonRoot":true`, `"seccompProfile":{"type":"RuntimeDefault"}`, `"drop":["ALL"]`, `"allowPrivilegeEscalation":false`, `"readOnlyRootFilesystem":true`, `"runAsUser":65532`} {
		if !strings.Contains(string(security), want) {
			t.Errorf("%s: got the security contexts %s, want %s", o.GetName(), security, want)
		}
	}
	if limits, _ := lookup(container, "resources.limits").(map[string]any); limits["memory"] == nil {
		t.Errorf("%s: got the limits %v, want one of memory", o.GetName(), limits)
	}
}

// buildSeamark builds the server.
func buildSeamark(t *testing.T) string {
	t.Helper()
	return build(t, "../..", "./cmd/seamark")
}

// build builds a program of a module and returns its path.
func build(t *testing.T, module, program string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(program))
	b := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", out, program)
	b.Dir = module
	b.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := b.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", program, err, text)
	}
	return out
}

// checkCorefile runs seamark check on the Corefile, with the files and the environment of the
// container, and the kube-dns command line without serving it.
func checkCorefile(t *testing.T, seamark string, r *rendering) {
	t.Helper()
	if len(r.find("DaemonSet")) == 1 {
		checkNode(t, seamark, r)
	}
	if len(r.find("Deployment")) == 0 {
		return
	}
	container := lookup(r.server(t).Object, "spec.template.spec.containers.0").(map[string]any)
	var p *exec.Cmd
	if text := r.corefile(); text != "" {
		dir := t.TempDir()
		for _, config := range r.find("ConfigMap") {
			for name, content := range field(config, "data").(map[string]any) {
				content := strings.ReplaceAll(content.(string), "/etc/coredns", dir)
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		p = exec.CommandContext(t.Context(), seamark, "check", filepath.Join(dir, "Corefile"))
	} else if container["command"] != nil {
		p = exec.CommandContext(t.Context(), seamark, "kube-dns", "--print-corefile")
		for _, arg := range container["args"].([]any) {
			p.Args = append(p.Args, arg.(string))
		}
	} else {
		return
	}
	p.Env = os.Environ()
	env, _ := container["env"].([]any)
	for _, e := range env {
		p.Env = append(p.Env, fmt.Sprintf("%s=%s", e.(map[string]any)["name"], e.(map[string]any)["value"]))
	}
	if out, err := p.CombinedOutput(); err != nil {
		t.Errorf("%v: got error %v, want none\n%s\n%s", p.Args, err, out, r.corefile())
	}
}

func TestValuesRejected(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	c := loadChart(t)
	for _, set := range valueSets(t, "rejected.txt") {
		_, err := render(c, set.values, "seamark", "kube-system", nil)
		if want := set.comments[0]; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", set.name, err, want)
		}
	}
}

// The chart rejects the same directives as the server does by name.
func TestUnsupportedDirectives(t *testing.T) {
	source, err := os.ReadFile("../../server/unsupported.go")
	if err != nil {
		t.Fatal(err)
	}
	checks, err := os.ReadFile(filepath.Join(chartDir, "templates", "_checks.tpl"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(source), "`")
	list, _, _ = strings.Cut(list, "`")
	if want := `splitList " " "` + strings.Join(strings.Fields(list), " ") + `"`; !strings.Contains(string(checks), want) {
		t.Errorf("_checks.tpl: got another list of directives, want %s", want)
	}
}

// Releases and namespaces with other names have the same objects, with unique names.
func TestReleaseNames(t *testing.T) {
	c := loadChart(t)
	const image = "image: {repository: registry.example/seamark}\nprometheus: {monitor: {enabled: true}}\n"
	for release, want := range map[string]string{"seamark": "seamark", "dns": "dns-seamark", "my-seamark-2": "my-seamark-2", strings.Repeat("a", 53): strings.Repeat("a", 53) + "-seamark"} {
		r, err := render(c, image, release, "dns", nil)
		if err != nil {
			t.Fatal(err)
		}
		checkObjects(t, r)
		if got := r.server(t).GetName(); got != want || field(r.server(t), "spec.template.spec.priorityClassName") != nil {
			t.Errorf("release %s: got the Deployment %s with priority class %v, want %s without", release, got, field(r.server(t), "spec.template.spec.priorityClassName"), want)
		}
	}
}
