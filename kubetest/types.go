package kubetest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// types are the registered Go types and what follows from them. Nothing in
// them changes after newTypes.
type types struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	params runtime.ParameterCodec
}

// newTypes registers the kinds. The generic API server wants an internal
// version of each beside the one on the wire; ours is the same Go type, so that
// every conversion is the identity.
func newTypes(kinds []kind) (*types, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, addImports} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	for _, k := range kinds {
		hub := k.hub()
		scheme.AddKnownTypeWithName(hub.WithKind(k.name), k.new())
		scheme.AddKnownTypeWithName(hub.WithKind(k.name+"List"), k.newList())
		if k.defaults != nil {
			scheme.AddTypeDefaultingFunc(k.new(), func(obj any) { k.defaults(obj.(runtime.Object)) })
		}
		if err := scheme.AddFieldLabelConversionFunc(k.gv.WithKind(k.name), k.fieldLabel); err != nil {
			return nil, err
		}
	}
	for _, gv := range groupVersions(kinds) {
		if err := scheme.SetVersionPriority(gv); err != nil {
			return nil, err
		}
	}
	return &types{
		scheme: scheme,
		codecs: serializer.NewCodecFactory(scheme),
		params: runtime.NewParameterCodec(scheme),
	}, nil
}

// addImports registers the types of the multi-cluster group.
func addImports(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(importVersion(), &ServiceImport{}, &ServiceImportList{})
	metav1.AddToGroupVersion(scheme, importVersion())
	return nil
}

// hub is the group with the internal version.
func (k kind) hub() schema.GroupVersion {
	return schema.GroupVersion{Group: k.gv.Group, Version: runtime.APIVersionInternal}
}

// groupResource is the resource as storage and errors name it.
func (k kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.gv.Group, Resource: k.resource}
}

// fieldLabel allows the fields that a selector for this kind may name.
func (k kind) fieldLabel(label, value string) (string, string, error) {
	if label == "metadata.name" || label == "metadata.namespace" && !k.clusterScoped || slices.Contains(k.fieldNames, label) {
		return label, value, nil
	}
	return "", "", fmt.Errorf("%q is not a known field selector of %s", label, k.resource)
}

// groupVersions returns the group versions of the table, each once, in order.
func groupVersions(kinds []kind) []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, k := range kinds {
		if !slices.Contains(gvs, k.gv) {
			gvs = append(gvs, k.gv)
		}
	}
	return gvs
}

// describe is the OpenAPI description that managed fields are computed from:
// every kind is an object that may hold anything.
func (t *types) describe(kinds []kind) *openapicommon.OpenAPIV3Config {
	definitions := func(openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
		m := make(map[string]openapicommon.OpenAPIDefinition, len(kinds))
		for _, k := range kinds {
			schema := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
			schema.AddExtension("x-kubernetes-preserve-unknown-fields", true)
			m[openapiutil.GetCanonicalTypeName(k.new())] = openapicommon.OpenAPIDefinition{Schema: schema}
		}
		return m
	}
	return &openapicommon.OpenAPIV3Config{
		Info:              &spec.Info{InfoProps: spec.InfoProps{Title: "kubetest"}},
		GetDefinitions:    definitions,
		GetDefinitionName: openapi.NewDefinitionNamer(t.scheme).GetDefinitionName,
		//lint:ignore SA1019 the function in its place needs routes that nobody asks for here
		GetOperationIDAndTags: openapi.GetOperationIDAndTags,
	}
}

// noProtobuf is a serializer that knows no protobuf, as for custom resources:
// who asks for nothing else gets 406, who sends it 415.
type noProtobuf struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes returns the media types without protobuf.
func (s noProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes()),
		func(i runtime.SerializerInfo) bool { return i.MediaType == runtime.ContentTypeProtobuf })
}
