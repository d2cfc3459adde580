package machinery

import (
	"path"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	namer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/webhook"
)

// newExtensions returns the server of CustomResourceDefinitions, and of the resources that they
// define. Requests that the API server has no handler for reach it, as in kube-apiserver.
func newExtensions(c server.Config, etcdURL string) (server.DelegationTarget, error) {
	c.RESTOptionsGetter = jsonStorage{etcdURL, extensions.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)}
	c.MergedResourceConfig = extensions.DefaultAPIResourceConfigSource()
	c.Serializer = extensions.Codecs
	c.OpenAPIV3Config = server.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer.NewDefinitionNamer(extensions.Scheme))
	c.ReadyzChecks = nil // the API server, which all requests reach first, has them

	e := extensions.Config{
		GenericConfig: &server.RecommendedConfig{Config: c},
		ExtraConfig: extensions.ExtraConfig{
			CRDRESTOptionsGetter: jsonStorage{etcdURL, unstructured.UnstructuredJSONScheme},
			MasterCount:          1, // a definition is established at once
			ServiceResolver:      webhook.NewDefaultServiceResolver(),
			AuthResolverWrapper:  func(r webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver { return r },
		},
	}
	s, err := e.Complete().New(server.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	return s.GenericAPIServer, nil
}

// jsonStorage stores objects in JSON, as kube-apiserver stores custom resources.
type jsonStorage struct {
	etcdURL string
	codec   runtime.Codec
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (s jsonStorage) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	c := storagebackend.NewDefaultConfig("/registry", s.codec)
	c.Transport.ServerList = []string{s.etcdURL}
	return generic.RESTOptions{
		StorageConfig:           c.ForResource(resource),
		Decorator:               registry.StorageWithCacher(),
		DeleteCollectionWorkers: 1,
		ResourcePrefix:          path.Join(resource.Group, resource.Resource),
	}, nil
}
