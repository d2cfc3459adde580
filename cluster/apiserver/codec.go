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
	"github.com/seamark/seamark/wire/protobuf"
)

// A decodedObject is an api.Decoded with the methods that the reflector needs. Metadata
// that it does not have come from ObjectMeta, which is empty and shared by all objects of
// a stream.
type decodedObject struct {
	*metav1.ObjectMeta
	api.Decoded
}

func (o *decodedObject) GetName() string                  { return o.Decoded.Name }
func (o *decodedObject) GetNamespace() string             { return o.Decoded.Namespace }
func (o *decodedObject) GetResourceVersion() string       { return o.Version }
func (o *decodedObject) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

func (o *decodedObject) GetAnnotations() map[string]string {
	if o.ListEnd == "" {
		return nil
	}
	return map[string]string{api.AnnotationListEnd: o.ListEnd}
}

// DeepCopyObject returns a shallow copy: decoded objects are immutable.
func (o *decodedObject) DeepCopyObject() runtime.Object { c := *o; return &c }

// A negotiatedSerializer is the runtime.NegotiatedSerializer of a resource: JSON and
// protobuf. client-go gets a decoder for each request, so one goroutine uses a decoder.
type negotiatedSerializer struct{ api.Resource }

func (s negotiatedSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{
		MediaType:     runtime.ContentTypeProtobuf,
		MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf",
		Serializer: &codec{Resource: s.Resource},
		StreamSerializer: &runtime.StreamSerializerInfo{
			Serializer: eventDecoder{decode: protobufEvent}, Framer: serialprotobuf.LengthDelimitedFramer,
		},
	}, {
		MediaType:     runtime.ContentTypeJSON,
		MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true,
		Serializer: &codec{Resource: s.Resource},
		StreamSerializer: &runtime.StreamSerializerInfo{
			Serializer: eventDecoder{decode: jsonEvent}, Framer: serialjson.Framer,
		},
	}}
}

func (s negotiatedSerializer) EncoderForVersion(e runtime.Encoder, _ runtime.GroupVersioner) runtime.Encoder {
	return e
}

func (s negotiatedSerializer) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return d
}

// decodeOnly is the runtime.Encoder of a serializer that only decodes.
type decodeOnly struct{}

func (decodeOnly) Encode(runtime.Object, io.Writer) error {
	return errors.New("encoding is not supported")
}
func (decodeOnly) Identifier() runtime.Identifier { return "seamark" }

// An eventDecoder decodes the events of a watch, but not the objects in them.
type eventDecoder struct {
	decodeOnly
	decode func(frame []byte, e *metav1.WatchEvent) error
}

// Decode decodes into a *metav1.WatchEvent, whose object refers to the frame. It is
// valid until the next frame; client-go decodes it before.
func (d eventDecoder) Decode(
	frame []byte, _ *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	e, ok := into.(*metav1.WatchEvent)
	if !ok {
		return nil, nil, fmt.Errorf("decoding the event of a watch into %T", into)
	}
	if err := d.decode(frame, e); err != nil {
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
			e.Type = m.StringOf(string(watch.Added), string(watch.Modified), string(watch.Deleted),
				string(watch.Bookmark), string(watch.Error))
		case 2:
			for object := m.Embedded(); m.NextIn(&object); {
				if object.Number == 1 {
					e.Object.Raw = object.Bytes()
				}
			}
		}
	}
	return m.Err
}

// A codec decodes a resource's objects and lists, and the API server's errors.
type codec struct {
	decodeOnly
	api.Resource
	noMetadata metav1.ObjectMeta // of all decoded objects; read-only
	buf        []byte            // for decoding an object; reused
}

// protobufPrefix begins every object in protobuf.
const protobufPrefix = "k8s\x00"

// Decode returns a *decodedObject, a *metav1.Status, or into if that is an *objectList.
// The result does not refer to data.
func (c *codec) Decode(
	data []byte, _ *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := c.decode(data, into)
	if err != nil {
		return nil, nil, fmt.Errorf("decoding %s: %w", c.Resource, err)
	}
	return object, kind, nil
}

func (c *codec) decode(data []byte, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var meta metav1.TypeMeta
	raw, inProtobuf := bytes.CutPrefix(data, []byte(protobufPrefix))
	var err error
	if inProtobuf {
		meta, raw, err = c.envelope(raw)
	} else {
		err = utiljson.Unmarshal(data, &meta)
	}
	if err != nil {
		return nil, nil, err
	}

	if meta == (metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}) {
		status := new(metav1.Status)
		if inProtobuf {
			err = status.Unmarshal(raw)
		} else {
			err = utiljson.Unmarshal(data, status)
		}
		return status, &schema.GroupVersionKind{Version: "v1", Kind: "Status"}, err
	}

	list, isList := into.(*objectList)
	switch {
	case isList && (meta == metav1.TypeMeta{} || c.isType(meta, "List")): // a list without a type is accepted
		if inProtobuf {
			err = c.protobufList(raw, list)
		} else {
			err = c.jsonList(data, list)
		}
		return list, nil, err
	case !isList && c.isType(meta, ""):
		a := &decodedObject{ObjectMeta: &c.noMetadata}
		if inProtobuf {
			err = c.ReadProtobuf(raw, &a.Decoded, &c.buf)
		} else {
			err = c.ReadJSON(data, &a.Decoded)
		}
		return a, nil, err
	}
	return nil, nil, fmt.Errorf("got apiVersion %q and kind %q", meta.APIVersion, meta.Kind)
}

// isType reports whether meta is the type of the resource's objects or, with the suffix
// List, of its lists. If only metadata are requested, PartialObjectMetadata is accepted.
func (c *codec) isType(meta metav1.TypeMeta, suffix string) bool {
	if meta == (metav1.TypeMeta{APIVersion: c.Version, Kind: c.Kind + suffix}) {
		return true
	}
	version := metav1.SchemeGroupVersion.String()
	return c.MetadataOnly && meta == metav1.TypeMeta{APIVersion: version, Kind: "PartialObjectMetadata" + suffix}
}

// envelope decodes the runtime.Unknown message around every object in protobuf.
func (c *codec) envelope(data []byte) (meta metav1.TypeMeta, raw []byte, err error) {
	m := protobuf.Message{Rest: data}
	for m.Next() {
		switch m.Number {
		case 1:
			for t := m.Embedded(); m.NextIn(&t); {
				switch t.Number {
				case 1:
					meta.APIVersion = t.StringOf(c.Version)
				case 2:
					meta.Kind = t.StringOf(c.Kind)
				}
			}
		case 2:
			raw = m.Bytes()
		}
	}
	return meta, raw, m.Err
}

func (c *codec) protobufList(raw []byte, list *objectList) error {
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		switch m.Number {
		case 1:
			for listMeta := m.Embedded(); m.NextIn(&listMeta); {
				switch listMeta.Number {
				case 2:
					list.ResourceVersion = listMeta.String()
				case 3:
					list.Continue = listMeta.String()
				}
			}

		case 2:
			var o api.Decoded
			if item := m.Bytes(); m.Err == nil {
				m.Fail(c.ReadProtobuf(item, &o, &c.buf))
			}
			if m.Err == nil {
				list.put(&o)
			}
		}
	}
	return m.Err
}

func (c *codec) jsonList(data []byte, list *objectList) error {
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
		list.put(&o)
	}
	return nil
}
