package api

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/seamark/seamark/cluster"
)

// FuzzCodec decodes bytes that the API's own types accept and compares the
// results. The codec accepts more: it skips fields that it does not use. It
// rejects what the API's types accept and no server writes: a map entry that is
// longer than its field, a number of more than 64 bits, and a group with the end of
// another one. It must accept the same object once it is encoded correctly.
func FuzzCodec(f *testing.F) {
	for _, object := range fullObjects() {
		raw, err := object.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(kindOf(object)), raw)
	}
	f.Add(uint8(cluster.Services), []byte("\x0b\x13\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7f\x14\x0c"))   // groups, and a number of ten bytes
	f.Add(uint8(cluster.Slices), []byte("\x12\x06\x0a\x041.2.\x12\x09\x12\x02\x08\x00\x12\x03\x10\x01\x18")) // truncated
	f.Add(uint8(cluster.Services), []byte("\n\x0dZ\x04\n\x05appwxyzabc"))                                    // a label that is longer than its entry
	f.Fuzz(func(t *testing.T, kind uint8, raw []byte) {
		fresh := func() typedObject {
			switch cluster.Kind(kind) {
			case cluster.Namespaces:
				return new(corev1.Namespace)
			case cluster.Services:
				return new(corev1.Service)
			case cluster.Slices:
				return new(discoveryv1.EndpointSlice)
			case cluster.ConfigMaps:
				return new(corev1.ConfigMap)
			}
			return new(corev1.Pod)
		}
		options := everyOption()
		if cluster.Kind(kind) == cluster.ConfigMaps {
			options = []cluster.Options{{ConfigMap: "/"}} // the zero key names an object without a name
		}
		object := fresh()
		err := object.(interface{ Unmarshal([]byte) error }).Unmarshal(raw)
		for _, o := range options {
			var w, want warnings
			r := resourceOf(o, kindOf(object), w.warn)
			a := new(Decoded)
			bad := r.ReadProtobuf(raw, a, new([]byte))
			if err != nil {
				continue
			}
			if bad != nil {
				proper, err := object.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				w, a = nil, new(Decoded)
				if again := r.ReadProtobuf(proper, a, new([]byte)); bytes.Equal(proper, raw) || again != nil {
					t.Fatalf("%v, and properly written %v, but the API's type accepts it", bad, again)
				}
			}
			if slim := (oracle{o}).slim(object, want.warn); !reflect.DeepEqual(a.Slim, slim) || !slices.Equal(w, want) {
				t.Errorf("got %+v, warned %q\nwant %+v, %q", a.Slim, w, slim, want)
			}
			if a.Name != object.GetName() || a.Namespace != object.GetNamespace() || a.Version != object.GetResourceVersion() || a.Ending != (object.GetDeletionTimestamp() != nil) {
				t.Errorf("got %+v", a)
			}
		}
	})
}
