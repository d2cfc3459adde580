package machinery

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	authentication "k8s.io/kubernetes/pkg/apis/authentication/install"
	authorization "k8s.io/kubernetes/pkg/apis/authorization/install"
)

// types are the registered Go types and their codecs. They are immutable after
// newTypes.
type types struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	params runtime.ParameterCodec
}

// newTypes registers the kinds. The generic API server requires an internal version
// of each besides the one on the wire; here both are the same Go type, so every
// conversion is the identity.
func newTypes(kinds []kind) (*types, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme,
		appsv1.AddToScheme, autoscalingv2.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme, addImports} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	authentication.Install(scheme)
	authorization.Install(scheme)

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

	versions := map[string][]schema.GroupVersion{}
	for _, gv := range groupVersions(kinds) {
		versions[gv.Group] = append(versions[gv.Group], gv)
	}
	for _, of := range versions {
		if err := scheme.SetVersionPriority(of...); err != nil {
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
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		scheme.AddKnownTypes(importVersion(version), &ServiceImport{}, &ServiceImportList{})
		metav1.AddToGroupVersion(scheme, importVersion(version))
	}
	return nil
}

// hub returns the group with the internal version.
func (k kind) hub() schema.GroupVersion {
	return schema.GroupVersion{Group: k.gv.Group, Version: runtime.APIVersionInternal}
}

// groupResource returns the resource as storage and errors name it.
func (k kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.gv.Group, Resource: k.resource}
}

// fieldLabel accepts the fields that a selector of this kind may use.
func (k kind) fieldLabel(label, value string) (string, string, error) {
	if _, known, err := k.attrs(k.new()); err == nil && known.Has(label) {
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

// describe returns the OpenAPI description from which managed fields are computed:
// every kind is an object with arbitrary fields.
func (t *types) describe(kinds []kind) *openapicommon.OpenAPIV3Config {
	definitions := func(openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
		m := make(map[string]openapicommon.OpenAPIDefinition, len(kinds))
		objects := []any{new(authenticationv1.TokenReview), new(authorizationv1.SubjectAccessReview)}
		for _, k := range kinds {
			objects = append(objects, k.new())
		}
		for _, o := range objects {
			schema := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
			schema.AddExtension("x-kubernetes-preserve-unknown-fields", true)
			m[openapiutil.GetCanonicalTypeName(o)] = openapicommon.OpenAPIDefinition{Schema: schema}
		}
		return m
	}
	return &openapicommon.OpenAPIV3Config{
		Info:              &spec.Info{InfoProps: spec.InfoProps{Title: "kubetest"}},
		GetDefinitions:    definitions,
		GetDefinitionName: openapi.NewDefinitionNamer(t.scheme).GetDefinitionName,
		//lint:ignore SA1019 its replacement needs routes, which are not described here
		GetOperationIDAndTags: openapi.GetOperationIDAndTags,
	}
}

// noProtobuf is a serializer without protobuf, as for custom resources: a request
// for protobuf alone gets 406, a protobuf body 415.
type noProtobuf struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes returns the media types without protobuf.
func (s noProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes()),
		func(i runtime.SerializerInfo) bool { return i.MediaType == runtime.ContentTypeProtobuf })
}
