package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serialjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
)

// annotationListed marks the bookmark at the end of a streamed list.
const annotationListed = metav1.InitialEventsAnnotationKey

// An arrived object is a decoded object: slimmed, with the metadata that the
// reflector uses. There is one for each object of a list, so it is small: all other
// metadata come from ObjectMeta, which is empty and shared by a stream's objects.
type arrived struct {
	*metav1.ObjectMeta
	name, namespace, version string
	annotations              map[string]string // of a bookmark: annotationListed
	object                   Object            // nil if it is not delivered
	changed                  time.Time         // time of annotationChanged; zero if the object does not have it
	ending                   bool              // has a deletion timestamp
}

func (a *arrived) GetName() string                   { return a.name }
func (a *arrived) GetNamespace() string              { return a.namespace }
func (a *arrived) GetResourceVersion() string        { return a.version }
func (a *arrived) GetAnnotations() map[string]string { return a.annotations }
func (a *arrived) GetObjectKind() schema.ObjectKind  { return schema.EmptyObjectKind }

// DeepCopyObject returns a shallow copy: arrived objects are immutable.
func (a *arrived) DeepCopyObject() runtime.Object { c := *a; return &c }

// take copies the metadata of an object in JSON.
func (a *arrived) take(m *apiMeta) {
	a.name, a.namespace, a.version = m.Name, intern(m.Namespace), m.ResourceVersion
	a.ending = m.DeletionTimestamp != nil
	a.since([]byte(m.Annotations[annotationChanged]))
	if listed, ok := m.Annotations[annotationListed]; ok {
		a.annotations = map[string]string{annotationListed: listed}
	}
}

// since parses annotationChanged. An invalid time is ignored.
func (a *arrived) since(text []byte) {
	if a.changed.UnmarshalText(text) != nil {
		a.changed = time.Time{}
	}
}

// forms is the client-go serializer of a resource: JSON and protobuf. client-go
// requests a decoder for each request, so a decoder serves one goroutine.
type forms struct{ resource }

func (f forms) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{
		MediaType: runtime.ContentTypeProtobuf, MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf",
		Serializer:       &codec{resource: f.resource},
		StreamSerializer: &runtime.StreamSerializerInfo{Serializer: frames{event: protobufEvent}, Framer: protobuf.LengthDelimitedFramer},
	}, {
		MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true,
		Serializer:       &codec{resource: f.resource},
		StreamSerializer: &runtime.StreamSerializerInfo{Serializer: frames{event: jsonEvent}, Framer: serialjson.Framer},
	}}
}

func (f forms) EncoderForVersion(e runtime.Encoder, _ runtime.GroupVersioner) runtime.Encoder {
	return e
}

func (f forms) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return d
}

// reading implements the unused half of runtime.Serializer.
type reading struct{}

func (reading) Encode(runtime.Object, io.Writer) error { return errors.New("nothing is written") }
func (reading) Identifier() runtime.Identifier         { return "seamark" }

// frames decodes the frames of a watch except for the object in them.
type frames struct {
	reading
	event func(frame []byte, e *metav1.WatchEvent) error
}

// Decode decodes into a *metav1.WatchEvent, whose object refers to the frame. It is
// valid until the next frame; client-go decodes it before.
func (f frames) Decode(frame []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	e, ok := into.(*metav1.WatchEvent)
	if !ok {
		return nil, nil, fmt.Errorf("decoding the event of a watch into %T", into)
	}
	if err := f.event(frame, e); err != nil {
		return nil, nil, fmt.Errorf("decoding the event of a watch: %w", err)
	}
	return e, nil, nil
}

func jsonEvent(frame []byte, e *metav1.WatchEvent) error { return utiljson.Unmarshal(frame, e) }

func protobufEvent(frame []byte, e *metav1.WatchEvent) error {
	m := message{rest: frame}
	for m.next() {
		switch m.number {
		case 1:
			e.Type = eventType(m.bytes())
		case 2:
			object := message{rest: m.bytes()}
			for object.next() {
				if object.number == 1 {
					e.Object.Raw = object.bytes()
				}
			}
			m.fail(object.err)
		}
	}
	return m.err
}

// eventType returns text as a string, without an allocation for known types.
func eventType(text []byte) string {
	for _, known := range [...]watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(text) == string(known) {
			return string(known)
		}
	}
	return string(text)
}

// A codec decodes a resource's objects and lists, and the API server's errors.
type codec struct {
	reading
	resource
	empty metav1.ObjectMeta // of every object; read-only
	room  []byte            // of the previous object
}

// typed is the type of an object.
type typed struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// protobufPrefix begins every object in protobuf.
const protobufPrefix = "k8s\x00"

// Decode returns an *arrived object, a *metav1.Status, or into if that is *records.
// The result does not refer to data.
func (c *codec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := c.decode(data, into)
	if err != nil {
		return nil, nil, fmt.Errorf("decoding %s: %w", c.resource, err)
	}
	return object, kind, nil
}

func (c *codec) decode(data []byte, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var is typed
	raw, inProtobuf := bytes.CutPrefix(data, []byte(protobufPrefix))
	var err error
	if inProtobuf {
		is, raw, err = c.envelope(raw)
	} else {
		err = utiljson.Unmarshal(data, &is)
	}
	if err != nil {
		return nil, nil, err
	}
	if is == (typed{"v1", "Status"}) {
		status := new(metav1.Status)
		if inProtobuf {
			err = status.Unmarshal(raw)
		} else {
			err = utiljson.Unmarshal(data, status)
		}
		return status, &schema.GroupVersionKind{Version: "v1", Kind: "Status"}, err
	}
	list, isList := into.(*records)
	switch {
	case isList && (is == typed{} || c.fits(is, "List")): // a list without a type is accepted
		if inProtobuf {
			err = c.protobufList(raw, list)
		} else {
			err = c.jsonList(data, list)
		}
		return list, nil, err
	case !isList && c.fits(is, ""):
		a := &arrived{ObjectMeta: &c.empty}
		if inProtobuf {
			err = c.read(c, raw, a)
		} else {
			err = c.parse(data, a)
		}
		return a, nil, err
	}
	return nil, nil, fmt.Errorf("got apiVersion %q and kind %q", is.APIVersion, is.Kind)
}

// fits reports whether is is the type of the resource's objects or, with the suffix
// List, of its lists. If only metadata are requested, PartialObjectMetadata fits.
func (c *codec) fits(is typed, suffix string) bool {
	return is == typed{c.version, c.kind + suffix} ||
		c.metadata && is == typed{metav1.SchemeGroupVersion.String(), "PartialObjectMetadata" + suffix}
}

// envelope decodes the runtime.Unknown message around every object in protobuf.
func (c *codec) envelope(data []byte) (is typed, raw []byte, err error) {
	m := message{rest: data}
	for m.next() {
		switch m.number {
		case 1:
			t := message{rest: m.bytes()}
			for t.next() {
				switch t.number {
				case 1:
					is.APIVersion = known(t.bytes(), c.version)
				case 2:
					is.Kind = known(t.bytes(), c.kind)
				}
			}
			m.fail(t.err)
		case 2:
			raw = m.bytes()
		}
	}
	return is, raw, m.err
}

// known returns text as a string, without an allocation if it is the expected one.
func known(text []byte, expected string) string {
	if string(text) == expected {
		return expected
	}
	return string(text)
}

func (c *codec) protobufList(raw []byte, list *records) error {
	m := message{rest: raw}
	for m.next() {
		switch m.number {
		case 1:
			meta := message{rest: m.bytes()}
			for meta.next() {
				switch meta.number {
				case 2:
					list.ResourceVersion = meta.string()
				case 3:
					list.Continue = meta.string()
				}
			}
			m.fail(meta.err)
		case 2:
			var a arrived
			if item := m.bytes(); m.err == nil {
				m.fail(c.read(c, item, &a))
			}
			if m.err == nil {
				list.take(&a)
			}
		}
	}
	return m.err
}

func (c *codec) jsonList(data []byte, list *records) error {
	var all struct {
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := utiljson.Unmarshal(data, &all); err != nil {
		return err
	}
	list.ResourceVersion, list.Continue = all.ResourceVersion, all.Continue
	for _, item := range all.Items {
		var a arrived
		if err := c.parse(item, &a); err != nil {
			return err
		}
		list.take(&a)
	}
	return nil
}
