package manifests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// A head has the fields of every object, and the items of a list.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items json.RawMessage `json:"items"`
}

// fields returns the fields of every object.
func (h *head) fields() [4]*string {
	return [...]*string{&h.APIVersion, &h.Kind, &h.Metadata.Name, &h.Metadata.Namespace}
}

// An item is one object of a manifest: the slim object, and the fields that a
// cluster's controllers would use to create EndpointSlices. Items are kept while the
// file does not change, so they have no other fields.
type item struct {
	kind   string // "" if only the namespace is used
	key    cluster.Key
	line   int32
	wanted bool // its labels match the selector of the options

	object  cluster.Object   // slim; nil if it is not delivered
	mirrors []*cluster.Slice // of Endpoints
	service string           // the Service of an EndpointSlice or Endpoints
	needs   *folderService   // of a Service that needs slices or an address
	pod     *folderPod       // of a Pod that may be an endpoint
}

var errNoObject = errors.New("not a Kubernetes object: it needs apiVersion and kind")

// object adds an object or the items of a list. An item of a typed list, such as a
// ServiceList, need not have a kind.
func (d *decoder) object(raw json.RawMessage, list *head, at position) {
	h, err := d.head(raw)
	d.typed(raw, h, err, list, at)
}

func (d *decoder) head(raw json.RawMessage) (h head, err error) {
	err = json.Unmarshal(raw, &h)
	return h, err
}

// typed does the same for an object whose head has been decoded.
func (d *decoder) typed(raw json.RawMessage, h head, err error, list *head, at position) {
	if bytes.Equal(raw, []byte("null")) {
		return
	}
	if err != nil {
		d.fail(jsonFault(at, err))
		return
	}
	if list != nil && list.Kind != "List" {
		h.Kind = cmp.Or(h.Kind, strings.TrimSuffix(list.Kind, "List"))
		h.APIVersion = cmp.Or(h.APIVersion, list.APIVersion)
	}

	if h.Kind == "" || h.APIVersion == "" {
		d.fail(at.line, errNoObject)
		return
	}
	if strings.HasSuffix(h.Kind, "List") && len(h.Items) > 0 && h.Items[0] == '[' {
		d.list(&h, at)
		return
	}

	// The objects of a folder share the memory of their kinds and namespaces.
	it := &item{kind: unique.Make(h.Kind).Value(), line: int32(at.line)}
	it.key = cluster.Key{Namespace: unique.Make(h.Metadata.Namespace).Value(), Name: h.Metadata.Name}
	if it.key.Namespace == "" && !clusterScoped(h.Kind) {
		it.key.Namespace = "default"
	}
	about := func(more ...any) []any {
		return append([]any{"kind", h.Kind, "namespace", it.key.Namespace, "name", it.key.Name}, more...)
	}

	read := d.reader(h.APIVersion, h.Kind)
	if read == nil {
		it.kind = ""
		if d.isOurs(h.Kind) && ourGroup(h.APIVersion) {
			d.warn(at.line, "Ignored object of an unknown apiVersion", about("value", h.APIVersion)...)
		}
	} else if err := checkName(h.Kind, it.key); err != nil {
		d.warn(at.line, "Ignored object", about("error", err)...)
		return
	} else if err := read(raw, it); err != nil {
		line, err := jsonFault(at, err)
		d.fail(line, fmt.Errorf("%s %s: %w", h.Kind, it.key, err))
		return
	}

	if d.decoded != nil {
		d.decoded(raw, it)
	}
	d.items = append(d.items, it)
}

func (d *decoder) list(h *head, at position) {
	var items []json.RawMessage
	_ = json.Unmarshal(h.Items, &items) // its syntax is correct, as a part of the list
	from := bytes.Index(at.text, h.Items)
	for _, item := range items {
		begin := at
		if from >= 0 {
			from += max(0, bytes.Index(at.text[from:], item))
			begin = position{text: item, line: at.lineOf(from)}
			from += len(item)
		}
		d.object(item, h, begin)
	}
}

// jsonFault returns the line of a JSON error, and the error with the field that it
// is about.
func jsonFault(at position, err error) (int, error) {
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := cmp.Or(t.Field, "document")
		return at.lineOf(int(t.Offset) - 1), fmt.Errorf("%s: got %s, want %s", field, t.Value, jsonType(t.Type))
	}
	return at.line, err
}

// jsonType returns the JSON type that t is decoded from.
func jsonType(t reflect.Type) string {
	switch kind := t.Kind(); kind {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice:
		return "array"
	case reflect.String, reflect.Bool:
		return kind.String()
	default:
		return "number"
	}
}

// checkName returns an error if an API server would reject the object's name. A dot in a
// Service's name would make it an endpoint of another one.
func checkName(kind string, key cluster.Key) error {
	check := validation.IsDNS1123Subdomain
	if kind == "Namespace" || kind == "Service" || kind == "ServiceImport" || kind == "Endpoints" {
		check = validation.IsDNS1123Label
	}
	if key.Name == "" {
		return errors.New("it has no name")
	}
	if len(check(key.Name)) > 0 {
		return errors.New("invalid name")
	}
	if key.Namespace != "" && len(validation.IsDNS1123Label(key.Namespace)) > 0 {
		return errors.New("invalid namespace")
	}
	return nil
}

// clusterScoped reports whether objects of the kind have no namespace. It knows the
// kinds that are common in manifests.
func clusterScoped(kind string) bool {
	switch kind {
	case "Namespace", "Node", "PersistentVolume", "StorageClass", "IngressClass", "GatewayClass",
		"RuntimeClass", "PriorityClass", "CustomResourceDefinition", "APIService":
		return true
	}
	return strings.HasPrefix(kind, "Cluster") || strings.HasSuffix(kind, "WebhookConfiguration")
}

// isOurs reports whether an object of the kind is missed if its apiVersion is unknown.
func (d *decoder) isOurs(name string) bool {
	switch name {
	case "Namespace", "Service", "EndpointSlice", "Endpoints", "Pod", "ServiceImport":
		return d.opts.ConfigMap == "" && !d.opts.Nodes && !d.opts.Records() && d.opts.Published == 0
	case "DNSEndpoint":
		return d.opts.DNSEndpoints
	}
	kind, known := cluster.KindNamed(name)
	return known && d.opts.Published.Has(kind)
}

// ourGroup reports whether objects of a group are decoded.
func ourGroup(apiVersion string) bool {
	group, _, ok := strings.Cut(apiVersion, "/")
	for kind := cluster.Slices; ok && kind < cluster.Kinds; kind++ {
		if own := api.Versions(kind)[0].Group; own != "" && own == group {
			return true
		}
	}
	return !ok
}

// reader returns the function that decodes objects of a kind, nil if there is none.
func (d *decoder) reader(apiVersion, name string) func(json.RawMessage, *item) error {
	kind, known := cluster.KindNamed(name)
	switch isVersion := func(v schema.GroupVersion) bool { return v.String() == apiVersion }; {
	case name == "Endpoints" && apiVersion == "v1" && d.selects(cluster.Slices):
		if d.opts.NoEndpoints {
			return ignore
		}
		return reading(d, d.endpoints)
	case !known || !d.selects(kind) || !slices.ContainsFunc(api.Versions(kind), isVersion):
		return nil
	}
	return d.readerOf(kind)
}

// selects reports whether objects of a kind have a reader. Without an option for others these are the objects that
// names of the cluster come from, of which readerOf ignores those that the options leave out.
func (d *decoder) selects(kind cluster.Kind) bool {
	o := d.opts
	if o.ConfigMap != "" || o.Nodes || o.Records() || o.Published != 0 {
		return slices.Contains(o.Kinds(), kind) || o.Published != 0 && kind == cluster.Namespaces
	}
	return kind <= cluster.Imports
}

// readerOf returns the function that decodes objects of a kind that the options select.
func (d *decoder) readerOf(kind cluster.Kind) func(json.RawMessage, *item) error {
	switch kind {
	case cluster.Namespaces:
		return reading(d, d.namespace)
	case cluster.Services:
		return reading(d, d.service)
	case cluster.Slices:
		if !d.opts.NoEndpoints {
			return reading(d, d.slice)
		}
	case cluster.Pods:
		if !d.opts.NoEndpoints || d.opts.Pods {
			return reading(d, d.pod)
		}
	case cluster.Imports:
		if d.opts.Multicluster {
			return reading(d, func(it *item, s *api.ServiceImport) { it.object = d.slimmer(it).ServiceImport(s) })
		}

	case cluster.ConfigMaps:
		return d.configMap
	case cluster.Nodes:
		return reading(d, func(it *item, n *api.Node) {
			it.key.Namespace = ""
			it.object = d.slimmer(it).Node(n)
		})
	case cluster.DNSEndpoints:
		return reading(d, func(it *item, e *api.DNSEndpoint) { it.object = d.slimmer(it).DNSEndpoint(e) })
	default:
		return d.publishedReader(kind)
	}
	return ignore
}

// ignore leaves an object undecoded, except for its namespace.
func ignore(json.RawMessage, *item) error { return nil }

func (d *decoder) slimmer(it *item) api.Slimmer {
	return api.Slimmer{Options: d.opts, Warn: func(msg string, attrs ...any) { d.warn(int(it.line), msg, attrs...) }}
}

// reading returns a function that decodes an object and passes it to use. It replaces the object's key
// by the item's, so that the strings are kept once.
func reading[T any, P interface {
	*T
	Metadata() *api.Meta
}](d *decoder, use func(*item, P)) func(json.RawMessage, *item) error {
	return func(raw json.RawMessage, it *item) error {
		object := P(new(T))
		if err := json.Unmarshal(raw, object); err != nil {
			return err
		}
		m := object.Metadata()
		m.Namespace, m.Name = it.key.Namespace, it.key.Name
		it.wanted = d.scope.objects.Matches(labels.Set(m.Labels))
		use(it, object)
		return nil
	}
}

func (d *decoder) namespace(it *item, n *api.Namespace) {
	it.key.Namespace, n.Namespace = "", ""
	it.wanted = d.scope.exposes(n.Name, n.Labels)
	it.object = d.slimmer(it).Namespace(n)
}

func (d *decoder) service(it *item, s *api.Service) {
	if s.Spec.ClusterIP == "" && len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	it.object = d.slimmer(it).Service(s)
	if d.opts.Published != 0 {
		it.object = d.slimmer(it).Frontend(s)
	}
	it.needs = newFolderService(s)
}

func (d *decoder) slice(it *item, s *api.EndpointSlice) {
	if s.Labels[api.LabelImportService] == "" {
		it.service = api.ShareName(it.key.Name, []byte(s.Labels[api.LabelServiceName]))
		if it.service == "" {
			d.warn(int(it.line), "Ignored EndpointSlice without a label",
				"namespace", it.key.Namespace, "name", it.key.Name, "label", api.LabelServiceName)
		}
	}
	if slim := d.slimmer(it).Slice(s); slim != nil {
		it.object = slim
	}
}

func (d *decoder) endpoints(it *item, e *endpoints) {
	it.service = e.Name
	for _, s := range mirror(e) {
		if slim := d.slimmer(it).Slice(s); slim != nil {
			it.mirrors = append(it.mirrors, slim)
		}
	}
}

func (d *decoder) pod(it *item, p *api.Pod) {
	if slim := d.slimmer(it).Pod(p); slim != nil {
		it.pod = newFolderPod(p, slim.IPs)
		if d.opts.NodeName == "" || d.opts.NodeName == p.Spec.NodeName {
			it.object = slim
		}
	}
}

// configMap ignores a ConfigMap that the options do not select, except for its namespace.
func (d *decoder) configMap(raw json.RawMessage, it *item) error {
	if d.opts.ConfigMap != "" && it.key != d.opts.ConfigMapKey() {
		it.kind = ""
		return nil
	}
	return reading(d, func(it *item, c *api.ConfigMap) {
		if !it.wanted {
			it.kind = ""
			return
		}
		it.object = d.slimmer(it).ConfigMap(c)
	})(raw, it)
}
