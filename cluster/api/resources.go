package api

import (
	"errors"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/seamark/seamark/cluster"
)

// AnnotationListEnd marks the bookmark at the end of a streamed list.
const AnnotationListEnd = metav1.InitialEventsAnnotationKey

// A Decoded object is a slim object with the metadata that a watch needs. There is one
// for each object of a list.
type Decoded struct {
	Name, Namespace, Version string
	ListEnd                  string         // of a bookmark: the value of AnnotationListEnd
	Slim                     cluster.Object // nil if it is not delivered
	Changed                  time.Time      // of annotationChanged; zero if the object does not have it
	Created                  Seconds
	Ending                   bool // has a deletion timestamp
}

// Key returns the object's key.
func (o *Decoded) Key() cluster.Key { return cluster.Key{Namespace: o.Namespace, Name: o.Name} }

// setMeta copies the metadata of an object in JSON.
func (o *Decoded) setMeta(m *Meta) {
	o.Name, o.Namespace, o.Version = m.Name, intern(m.Namespace), m.ResourceVersion
	o.Created, o.Ending, o.ListEnd = m.CreationTimestamp, m.DeletionTimestamp != nil, m.Annotations[AnnotationListEnd]
	o.setChanged([]byte(m.Annotations[annotationChanged]))
}

// setChanged parses annotationChanged. An invalid time is ignored.
func (o *Decoded) setChanged(text []byte) {
	if o.Changed.UnmarshalText(text) != nil {
		o.Changed = time.Time{}
	}
}

// A Resource describes the requests for one kind of object, and decodes it.
type Resource struct {
	Group          schema.GroupVersion
	Version        string // Group as in an object's apiVersion
	Name           string
	Kind           string         // of an object; a list has the suffix List
	Namespace      string         // "" is all
	Labels, Fields string         // selectors
	Kinds          []cluster.Kind // of the slim objects
	MetadataOnly   bool           // request only the metadata
	// Versions are the versions of a custom resource, the newest first; Group is the first one.
	// The fields that are read are the same in all. An API server may not have the definition of
	// such a resource, and sends its objects in JSON only. Other resources have none.
	Versions []schema.GroupVersion

	// ReadProtobuf and ReadJSON decode and slim an object. The result does not refer to
	// raw. ReadProtobuf may use the bytes of room, and replace them by more.
	ReadProtobuf func(raw []byte, o *Decoded, room *[]byte) error
	ReadJSON     func(raw []byte, o *Decoded) error
}

// String returns the name as in a Role, followed by the group.
func (r Resource) String() string {
	return strings.TrimSuffix(r.Name+"."+r.Group.Group, ".")
}

// Resources returns the resources that the options select. EndpointSlices are watched
// once: their labels tell imported ones from the cluster's own.
func (s Slimmer) Resources() (rs []Resource) {
	for _, kind := range s.Options.Kinds() {
		if kind != cluster.ImportSlices {
			rs = append(rs, s.resource(kind))
		}
	}
	return rs
}

// resource returns the resource of a kind that the options select.
func (s Slimmer) resource(kind cluster.Kind) (r Resource) {
	o := s.Options
	switch kind {
	case cluster.Namespaces:
		if o.Published == 0 {
			r = newResource(kind, readNamespace, s.Namespace)
		} else {
			r = newResource(kind, readLabels, s.Namespace)
			r.MetadataOnly = true
		}
		r.Labels = o.NamespaceLabels
	case cluster.Services:
		if o.Published == 0 {
			r = newResource(kind, readService, s.Service)
		} else {
			r = newResource(kind, readFrontend, s.Frontend)
		}
		r.Labels = o.Labels
	case cluster.Slices:
		r = newResource(kind, nil, s.Slice)
		r.ReadProtobuf, r.Labels = s.readSlice, o.Labels
		if o.Multicluster {
			r.Kinds = append(r.Kinds, cluster.ImportSlices)
		}
	case cluster.Pods:
		r = newResource(kind, s.readPod, s.Pod)
		r.Labels, r.Fields = o.Labels, "status.phase!=Succeeded,status.phase!=Failed,status.phase!=Unknown"
		if o.NodeName != "" { // API servers find these watches by an index of the field
			r.Fields = "spec.nodeName=" + o.NodeName + "," + r.Fields
		}

	case cluster.ConfigMaps:
		r = newResource(kind, readConfigMap, s.ConfigMap)
		r.Labels = o.ConfigMapLabels
		if o.ConfigMap != "" {
			// A selector of one object allows a Role to name the object in resourceNames.
			key := o.ConfigMapKey()
			r.Namespace, r.Fields = key.Namespace, "metadata.name="+key.Name
		}
	case cluster.Nodes:
		r = newResource(kind, readNode, s.Node)
		r.MetadataOnly = true // the status of a node is long and changes often
		if o.NodeName != "" {
			r.Fields = "metadata.name=" + o.NodeName
		}

	case cluster.Imports:
		r = newResource(kind, nil, s.ServiceImport).custom()
	case cluster.DNSEndpoints:
		r = newResource(kind, nil, s.DNSEndpoint).custom()
	case cluster.Gateways:
		r = newResource(kind, nil, s.Gateway).custom()
	case cluster.ListenerSets:
		r = newResource(kind, nil, s.ListenerSet).custom()
	case cluster.Ingresses:
		r = newResource(kind, nil, s.Ingress).custom()
	case cluster.NetworkPolicies:
		r = newResource(kind, nil, s.NetworkPolicy).custom()
	default:
		r = newResource(kind, nil, func(r *Route) *cluster.Route { return s.Route(kind, r) }).custom()
	}
	return r
}

// custom returns the same resource as a custom one.
func (r Resource) custom() Resource {
	r.Versions = Versions(r.Kinds[0])
	r.ReadProtobuf = func([]byte, *Decoded, *[]byte) error {
		return errors.New("got a custom resource in protobuf, want JSON")
	}
	return r
}

// IsCustom reports whether the resource is a custom one.
func (r Resource) IsCustom() bool { return r.Versions != nil }

// In returns the same resource in another version of its group.
func (r Resource) In(group schema.GroupVersion) Resource {
	r.Group, r.Version = group, group.String()
	return r
}

// VersionsOnly returns a resource that requests only the metadata of the same objects, and
// decodes their keys and versions.
func (r Resource) VersionsOnly() Resource {
	metadata := newResource(r.Kinds[0], readNamespace, func(*Namespace) *cluster.Namespace { return nil })
	r.MetadataOnly, r.ReadProtobuf, r.ReadJSON = true, metadata.ReadProtobuf, metadata.ReadJSON
	return r
}

// Origins returns a resource that requests only the metadata of the same objects, and passes
// the name and the origin of each to found.
func (r Resource) Origins(found func(name string, o cluster.Origin)) Resource {
	read := func(raw []byte, unmarshal func([]byte, *metav1.PartialObjectMetadata) error) error {
		var m metav1.PartialObjectMetadata
		err := unmarshal(raw, &m)
		if err == nil {
			found(m.Name, cluster.Origin{
				ResourceVersion: m.ResourceVersion, UID: string(m.UID), Created: m.CreationTimestamp.Time,
			})
		}
		return err
	}
	r.MetadataOnly = true
	r.ReadProtobuf = func(raw []byte, _ *Decoded, _ *[]byte) error {
		return read(raw, func(raw []byte, m *metav1.PartialObjectMetadata) error { return m.Unmarshal(raw) })
	}
	r.ReadJSON = func(raw []byte, _ *Decoded) error {
		return read(raw, func(raw []byte, m *metav1.PartialObjectMetadata) error { return utiljson.Unmarshal(raw, m) })
	}
	return r
}

// newResource returns the resource whose objects are decoded to In and slimmed to Out. If read is nil, the
// caller replaces ReadProtobuf.
func newResource[In, Out any, PIn interface {
	*In
	Metadata() *Meta
}, POut interface {
	*Out
	cluster.Object
}](of cluster.Kind, read func([]byte, *Decoded) (In, error), slim func(PIn) POut) Resource {
	put := func(in PIn, o *Decoded) {
		if slim := slim(in); slim != nil { // and not an Object that holds a nil pointer
			o.Slim = slim
		}
	}
	group := Versions(of)[0]
	return Resource{
		Group: group, Version: group.String(), Name: of.String(), Kind: of.ObjectKind(), Kinds: []cluster.Kind{of},

		ReadProtobuf: func(raw []byte, o *Decoded, _ *[]byte) error {
			in, err := read(raw, o)
			if err == nil {
				put(&in, o)
			}
			return err
		},

		ReadJSON: func(raw []byte, o *Decoded) error {
			in := new(In)
			err := utiljson.Unmarshal(raw, in)
			if err == nil {
				o.setMeta(PIn(in).Metadata())
				put(in, o)
			}
			return err
		},
	}
}
