package resolvconf

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seamark/seamark/cluster/document"
	"github.com/seamark/seamark/sys/order"
)

// A reader reads the fields for DNS and validates them as the API server does. It
// continues after an error.
type reader struct {
	object
	file     string
	errs     []error
	comments []string
}

func (r *reader) fail(line int, path, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s:%d: %s: %s: %s", r.file, line, r.name(), path, fmt.Sprintf(format, args...)))
}

func (r *reader) manifest() Manifest {
	spec := r.At(r.path...)
	at := strings.Join(r.path, ".") + "."
	m := Manifest{Name: r.name(), file: r.file, line: spec.Line}

	namespace := r.At("metadata", "namespace")
	if s, ok := r.text(namespace, namespace.Line, "metadata.namespace"); ok && s != "" {
		if err := CheckNamespace(s); err != nil {
			r.fail(namespace.Line, "metadata.namespace", "%v", err)
		}
		m.Namespace = s
	}

	policy := spec.At("dnsPolicy")
	if s, ok := r.text(policy, policy.Line, at+"dnsPolicy"); ok && s != "" {
		var err error
		if m.Policy, err = ParsePolicy(s); err != nil {
			r.fail(policy.Line, at+"dnsPolicy", "%v", err)
		}
		m.line = policy.Line
	}

	if t := spec.At("hostNetwork"); !t.IsNull() {
		host, ok := t.Scalar.(bool)
		if !ok {
			r.fail(t.Line, at+"hostNetwork", "want true or false, got %s", t.Kind())
		}
		m.HostNetwork = &host
	}

	if t := spec.At("dnsConfig"); !t.IsNull() {
		m.Config = r.config(t, at+"dnsConfig")
		m.line = t.Line
	}
	return m
}

func (r *reader) config(t document.Value, path string) *Config {
	if !r.mapping(t, path, "nameservers", "searches", "options") {
		return nil
	}
	c := Config{
		Nameservers: r.texts(t.At("nameservers"), path+".nameservers", maxNameservers, checkServer),
		Searches:    r.texts(t.At("searches"), path+".searches", maxSearches, checkSearch),
	}
	if n := len(strings.Join(c.Searches, " ")); n > maxSearchChars {
		r.fail(t.At("searches").Line, path+".searches",
			"%d characters including spaces, the API server accepts at most %d", n, maxSearchChars)
	}
	options := t.At("options")
	for i, item := range r.list(options, path+".options") {
		c.Options = append(c.Options, r.option(item, item.LineIn(options), fmt.Sprintf("%s.options[%d]", path, i)))
	}
	return &c
}

// texts reads a list of at most limit strings and validates each with check.
func (r *reader) texts(t document.Value, path string, limit int, check func(string) error) (all []string) {
	items := r.list(t, path)
	if len(items) > limit {
		r.fail(t.Line, path, "got %d, the API server accepts at most %d", len(items), limit)
	}
	for i, item := range items {
		line, path := item.LineIn(t), fmt.Sprintf("%s[%d]", path, i)
		s, ok := r.text(item, line, path)
		if !ok {
			continue
		}
		if err := check(s); err != nil {
			r.fail(line, path, "%v", err)
		}
		all = append(all, s)
	}
	return all
}

func (r *reader) option(t document.Value, line int, path string) (o Option) {
	if t.IsNull() {
		r.fail(line, path, "want a name, and a value if the option has one")
		return o
	}
	if !r.mapping(t, path, "name", "value") {
		return o
	}
	name, value := t.At("name"), t.At("value")
	var ok bool
	if o.Name, ok = r.text(name, name.LineIn(t), path+".name"); ok && o.Name == "" {
		r.fail(name.LineIn(t), path+".name", "want a name such as ndots")
	}
	o.Value, _ = r.text(value, value.LineIn(t), path+".value")
	if strings.ContainsAny(o.Name+o.Value, " \t\r\n") {
		r.comments = append(r.comments,
			fmt.Sprintf("%s:%d: %s: the option contains spaces and becomes several words", r.file, line, path))
	}
	return o
}

// text reads a string; null is "". It returns false after an error.
func (r *reader) text(t document.Value, line int, path string) (string, bool) {
	if t.IsNull() {
		return "", true
	}
	s, ok := t.Scalar.(string)
	if !ok {
		advice := ""
		if t.Scalar != nil {
			advice = ": put it in quotes"
		}
		r.fail(line, path, "want a string, got %s%s", t.Kind(), advice)
	}
	return s, ok
}

func (r *reader) list(t document.Value, path string) []document.Value {
	if !t.IsNull() && (t.Scalar != nil || t.Fields != nil) {
		r.fail(t.Line, path, "want a list, got %s", t.Kind())
	}
	return t.Items
}

// mapping returns an error for fields other than the known ones. An API server
// without strict validation would ignore them.
func (r *reader) mapping(t document.Value, path string, known ...string) bool {
	if t.Fields == nil {
		r.fail(t.Line, path, "want the fields %s, got %s", strings.Join(known, ", "), t.Kind())
		return false
	}
	for _, key := range slices.Sorted(maps.Keys(t.Fields)) {
		if !slices.Contains(known, key) {
			r.fail(t.Fields[key].LineIn(t), path, "unknown field %q: want %s", key, strings.Join(known, ", "))
		}
	}
	return true
}

// misplaced returns warnings about fields with the name of a DNS field at a place
// where they have no effect: spec.dnsPolicy of a Deployment, dnspolicy.
func (r *reader) misplaced() []string {
	type stray struct {
		line int
		path string
		want string
	}

	var found []stray
	spec := strings.Join(r.path, ".")

	var walk func(t document.Value, path string)
	walk = func(t document.Value, path string) {
		for key, value := range t.Fields {
			at := strings.TrimPrefix(path+"."+key, ".")
			for _, field := range []string{"dnsPolicy", "dnsConfig", "hostNetwork"} {
				if want := spec + "." + field; strings.EqualFold(key, field) && at != want {
					found = append(found, stray{value.LineIn(t), at, want})
				}
			}
			walk(value, at)
		}
		for i, item := range t.Items {
			walk(item, fmt.Sprintf("%s[%d]", path, i))
		}
	}

	walk(r.Value, "")
	order.Slice(found, func(a, b stray) int { return cmp.Or(a.line-b.line, strings.Compare(a.path, b.path)) })
	for _, s := range found {
		r.comments = append(r.comments,
			fmt.Sprintf("%s:%d: %s is ignored: the pod's field is %s", r.file, s.line, s.path, s.want))
	}
	return r.comments
}

// checkServer validates a nameserver of dnsConfig.
func checkServer(text string) error {
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return fmt.Errorf("want an IP address, got %q", text)
	case addr.Zone() != "":
		return fmt.Errorf("want an IP address without an interface, got %q", text)
	}
	return nil
}

// checkSearch validates a search domain of dnsConfig: a name or the root.
func checkSearch(text string) error {
	if text == "." {
		return nil
	}
	return CheckDomain(text)
}

// CheckDomain validates a domain name as the API server validates search domains:
// lower case; underscores and a trailing dot are allowed.
func CheckDomain(text string) error {
	name := strings.TrimSuffix(text, ".")
	if len(name) > maxName {
		return fmt.Errorf("want a name of at most %d characters, got %d", maxName, len(name))
	}
	if len(validation.IsDNS1123SubdomainWithUnderscore(name)) > 0 {
		return fmt.Errorf("want a domain name of a-z, 0-9, - and _, got %q", text)
	}
	return nil
}

// CheckNamespace validates the name of a namespace.
func CheckNamespace(text string) error {
	if len(validation.IsDNS1123Label(text)) > 0 {
		return fmt.Errorf("want the name of a namespace: at most 63 characters a-z, 0-9 and -, got %q", text)
	}
	return nil
}
