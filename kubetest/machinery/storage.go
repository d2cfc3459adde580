package machinery

import (
	"context"
	"fmt"
	"path"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/tools/cache"
)

// newStore opens the storage of a kind behind a watch cache. The caller
// destroys it.
func (t *types) newStore(k kind, etcdURL string) (*registry.Store, error) {
	options, err := t.restOptions(k, etcdURL)
	if err != nil {
		return nil, err
	}

	s := strategy{kind: k, ObjectTyper: t.scheme, NameGenerator: names.SimpleNameGenerator}
	single := k.groupResource()
	single.Resource = strings.ToLower(k.name)
	store := &registry.Store{
		NewFunc:                   k.new,
		NewListFunc:               k.newList,
		DefaultQualifiedResource:  k.groupResource(),
		SingularQualifiedResource: single,
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		TableConvertor:            rest.NewDefaultTableConvertor(k.groupResource()),
	}

	storeOptions := &generic.StoreOptions{RESTOptions: options, AttrFunc: k.attrs}
	if k.index != "" {
		k.addIndex(store, storeOptions)
	}
	if err := store.CompleteWithOptions(storeOptions); err != nil {
		return nil, err
	}
	return store, nil
}

// addIndex adds the kind's index to the watch cache, for lists and for changes.
func (k kind) addIndex(store *registry.Store, options *generic.StoreOptions) {
	value := func(obj runtime.Object) string { return k.fields(obj)[k.index] }
	store.PredicateFunc = func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
		return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: k.attrs, IndexFields: []string{k.index}}
	}
	options.TriggerFunc = storage.IndexerFuncs{k.index: value}
	options.Indexers = &cache.Indexers{storage.FieldIndex(k.index): func(obj any) ([]string, error) {
		return []string{value(obj.(runtime.Object))}, nil
	}}
}

// restOptions returns the location and encoding of a kind in storage.
func (t *types) restOptions(k kind, etcdURL string) (generic.RESTOptions, error) {
	c := storagebackend.NewDefaultConfig("/registry", nil)
	c.Transport.ServerList = []string{etcdURL}
	media := runtime.ContentTypeProtobuf
	if k.custom {
		media = runtime.ContentTypeJSON
	}

	var err error
	c.Codec, c.EncodeVersioner, err = serverstorage.NewStorageCodec(serverstorage.StorageCodecConfig{
		StorageMediaType:  media,
		StorageSerializer: t.codecs,
		StorageVersion:    k.gv,
		MemoryVersion:     k.hub(),
		Config:            *c,
	})
	if err != nil {
		return generic.RESTOptions{}, err
	}

	return generic.RESTOptions{
		StorageConfig:           c.ForResource(k.groupResource()),
		Decorator:               registry.StorageWithCacher(),
		DeleteCollectionWorkers: 1,
		ResourcePrefix:          path.Join(k.gv.Group, k.resource),
	}, nil
}

// attrs returns the labels and fields for selectors.
func (k kind) attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, fmt.Errorf("reading metadata: %w", err)
	}
	set := fields.Set{}
	if k.fields != nil {
		set = k.fields(obj)
	}
	set["metadata.name"] = m.GetName()
	if !k.clusterScoped {
		set["metadata.namespace"] = m.GetNamespace()
	}
	return m.GetLabels(), set, nil
}

// A strategy changes objects before they are stored, for a kind or for its status.
// The registry validates metadata; nothing else is validated.
type strategy struct {
	kind
	runtime.ObjectTyper
	names.NameGenerator
	status bool // for writes to /status
}

// NamespaceScoped reports whether objects have a namespace.
func (s strategy) NamespaceScoped() bool { return !s.clusterScoped }

// AllowCreateOnUpdate reports that a PUT does not create.
func (s strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate reports whether an update may omit the resourceVersion.
func (s strategy) AllowUnconditionalUpdate(context.Context) bool { return !s.custom }

// PrepareForCreate drops the status and sets derived fields.
func (s strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	if s.hasStatus && !s.statusOnCreate {
		keep(obj, s.new(), "Status")
	}
	if s.prepare != nil {
		s.prepare(obj, nil)
	}
}

// PrepareForUpdate restores fields that this write may not change and sets derived
// fields.
func (s strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	switch {
	case s.status:
		keep(obj, old, "Spec")
	case s.hasStatus:
		keep(obj, old, "Status")
	}
	if s.prepare != nil {
		s.prepare(obj, old)
	}
}

// keep gives a field of an object the value that it has in an old one.
func keep(obj, old runtime.Object, field string) {
	value := func(o runtime.Object) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName(field) }
	value(obj).Set(value(old))
}

// Validate, ValidateUpdate, WarningsOnCreate, WarningsOnUpdate and Canonicalize do
// nothing.
func (s strategy) Validate(context.Context, runtime.Object) field.ErrorList              { return nil }
func (s strategy) ValidateUpdate(_ context.Context, _, _ runtime.Object) field.ErrorList { return nil }
func (s strategy) WarningsOnCreate(context.Context, runtime.Object) []string             { return nil }
func (s strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string      { return nil }
func (s strategy) Canonicalize(runtime.Object)                                           {}

// A statusStore serves /status: it reads whole objects and writes their status.
type statusStore struct {
	rest.TableConvertor
	store *registry.Store
}

// newStatusStore returns the status view of a store.
func (t *types) newStatusStore(k kind, store *registry.Store) *statusStore {
	view := *store
	view.UpdateStrategy = strategy{kind: k, ObjectTyper: t.scheme, NameGenerator: names.SimpleNameGenerator,
		status: true}
	return &statusStore{TableConvertor: store.TableConvertor, store: &view}
}

// New returns an empty object to decode into.
func (s *statusStore) New() runtime.Object { return s.store.New() }

// Destroy does nothing: the store owns the storage.
func (s *statusStore) Destroy() {}

// Get returns the object.
func (s *statusStore) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, o)
}

// Update writes the status. It never creates an object.
func (s *statusStore) Update(ctx context.Context, name string, obj rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool,
	o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, obj, create, update, false, o)
}
