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

// An arrived object is one that the API server has sent: slimmed, and with as
// much of its metadata as the reflector looks at. Of a list there is one for
// each object, so they are small: what metadata they do not have is that of
// ObjectMeta, which is empty and is the same one for all of a stream.
type arrived struct {
	*metav1.ObjectMeta
	name, namespace, version string
	annotations              map[string]string // of a bookmark: annotationListed
	object                   Object            // nil if it is not wanted
	changed                  time.Time         // when what the object was made of has changed; zero if it does not say so
	ending                   bool              // it has a deletion timestamp
}

func (a *arrived) GetName() string                   { return a.name }
func (a *arrived) GetNamespace() string              { return a.namespace }
func (a *arrived) GetResourceVersion() string        { return a.version }
func (a *arrived) GetAnnotations() map[string]string { return a.annotations }
func (a *arrived) GetObjectKind() schema.ObjectKind  { return schema.EmptyObjectKind }

// DeepCopyObject makes a shallow copy: nothing changes an object that has
// arrived.
func (a *arrived) DeepCopyObject() runtime.Object { c := *a; return &c }

// take takes over the metadata of an object that came in JSON.
func (a *arrived) take(m *apiMeta) {
	a.name, a.namespace, a.version = m.Name, intern(m.Namespace), m.ResourceVersion
	a.ending = m.DeletionTimestamp != nil
	a.since([]byte(m.Annotations[annotationChanged]))
	if listed, ok := m.Annotations[annotationListed]; ok {
		a.annotations = map[string]string{annotationListed: listed}
	}
}

// since takes over the annotation that says when the object has changed. What
// is no time says nothing.
func (a *arrived) since(text []byte) {
	if a.changed.UnmarshalText(text) != nil {
		a.changed = time.Time{}
	}
}

// The forms in which a resource's answers come, for client-go. It asks for a
// decoder for each request, so that one serves a single goroutine.
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

// reading is the half of a runtime.Serializer that there is no use for.
type reading struct{}

func (reading) Encode(runtime.Object, io.Writer) error { return errors.New("nothing is written") }
func (reading) Identifier() runtime.Identifier         { return "seamark" }

// frames decodes the frames of a watch as far as the object in them.
type frames struct {
	reading
	event func(frame []byte, e *metav1.WatchEvent) error
}

// Decode wants a *metav1.WatchEvent. Its object lies in the frame, and so is
// gone with the next one; client-go has decoded it by then.
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

// eventType is the text without memory of its own, where it is a known one.
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
	empty metav1.ObjectMeta // of every object; nobody writes to it
	room  []byte            // of the object before
}

// A typed text says what it is, as every answer of an API server does.
type typed struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// protobufPrefix begins every object in protobuf.
const protobufPrefix = "k8s\x00"

// Decode gives an *arrived object, a *metav1.Status, or the list that it is to
// be decoded into, *records. Nothing of it refers to data.
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
	case isList && (is == typed{} || c.fits(is, "List")): // the answer to a list is one even if it does not say so
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

// fits says whether this is what an object of the resource says it is, or its
// metadata where that is all that is wanted; with the suffix List, a list of them.
func (c *codec) fits(is typed, suffix string) bool {
	return is == typed{c.version, c.kind + suffix} ||
		c.metadata && is == typed{metav1.SchemeGroupVersion.String(), "PartialObjectMetadata" + suffix}
}

// envelope opens what is around every object in protobuf.
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

// known is text as a string, without memory of its own where it is the one that
// is expected.
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
