package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serialjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	serialprotobuf "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/cluster/protobuf"
)

// An arrived object is a decoded object for the reflector. All metadata that it does not
// have itself come from ObjectMeta, which is empty and shared by a stream's objects.
type arrived struct {
	*metav1.ObjectMeta
	api.Decoded
}

func (a *arrived) GetName() string                  { return a.Decoded.Name }
func (a *arrived) GetNamespace() string             { return a.Decoded.Namespace }
func (a *arrived) GetResourceVersion() string       { return a.Version }
func (a *arrived) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

func (a *arrived) GetAnnotations() map[string]string {
	if a.ListEnd == "" {
		return nil
	}
	return map[string]string{api.AnnotationListEnd: a.ListEnd}
}

// DeepCopyObject returns a shallow copy: arrived objects are immutable.
func (a *arrived) DeepCopyObject() runtime.Object { c := *a; return &c }

// forms is the client-go serializer of a resource: JSON and protobuf. client-go
// requests a decoder for each request, so a decoder serves one goroutine.
type forms struct{ api.Resource }

func (f forms) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{
		MediaType: runtime.ContentTypeProtobuf, MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf",
		Serializer:       &codec{Resource: f.Resource},
		StreamSerializer: &runtime.StreamSerializerInfo{Serializer: frames{event: protobufEvent}, Framer: serialprotobuf.LengthDelimitedFramer},
	}, {
		MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true,
		Serializer:       &codec{Resource: f.Resource},
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
	m := protobuf.Message{Rest: frame}
	for m.Next() {
		switch m.Number {
		case 1:
			e.Type = eventType(m.Bytes())
		case 2:
			object := protobuf.Message{Rest: m.Bytes()}
			for object.Next() {
				if object.Number == 1 {
					e.Object.Raw = object.Bytes()
				}
			}
			m.Fail(object.Err)
		}
	}
	return m.Err
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
	api.Resource
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
		return nil, nil, fmt.Errorf("decoding %s: %w", c.Resource, err)
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
			err = c.ReadProtobuf(raw, &a.Decoded, &c.room)
		} else {
			err = c.ReadJSON(data, &a.Decoded)
		}
		return a, nil, err
	}
	return nil, nil, fmt.Errorf("got apiVersion %q and kind %q", is.APIVersion, is.Kind)
}

// fits reports whether is is the type of the resource's objects or, with the suffix
// List, of its lists. If only metadata are requested, PartialObjectMetadata fits.
func (c *codec) fits(is typed, suffix string) bool {
	return is == typed{c.Version, c.Kind + suffix} ||
		c.MetadataOnly && is == typed{metav1.SchemeGroupVersion.String(), "PartialObjectMetadata" + suffix}
}

// envelope decodes the runtime.Unknown message around every object in protobuf.
func (c *codec) envelope(data []byte) (is typed, raw []byte, err error) {
	m := protobuf.Message{Rest: data}
	for m.Next() {
		switch m.Number {
		case 1:
			t := protobuf.Message{Rest: m.Bytes()}
			for t.Next() {
				switch t.Number {
				case 1:
					is.APIVersion = known(t.Bytes(), c.Version)
				case 2:
					is.Kind = known(t.Bytes(), c.Kind)
				}
			}
			m.Fail(t.Err)
		case 2:
			raw = m.Bytes()
		}
	}
	return is, raw, m.Err
}

// known returns text as a string, without an allocation if it is the expected one.
func known(text []byte, expected string) string {
	if string(text) == expected {
		return expected
	}
	return string(text)
}

func (c *codec) protobufList(raw []byte, list *records) error {
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		switch m.Number {
		case 1:
			meta := protobuf.Message{Rest: m.Bytes()}
			for meta.Next() {
				switch meta.Number {
				case 2:
					list.ResourceVersion = meta.String()
				case 3:
					list.Continue = meta.String()
				}
			}
			m.Fail(meta.Err)
		case 2:
			var o api.Decoded
			if item := m.Bytes(); m.Err == nil {
				m.Fail(c.ReadProtobuf(item, &o, &c.room))
			}
			if m.Err == nil {
				list.take(&o)
			}
		}
	}
	return m.Err
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
		var o api.Decoded
		if err := c.ReadJSON(item, &o); err != nil {
			return err
		}
		list.take(&o)
	}
	return nil
}
