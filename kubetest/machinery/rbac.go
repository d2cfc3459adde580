package machinery

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
)

// newAuthorizer returns kube-apiserver's authorizer for RBAC, which reads the roles and bindings
// of this server. Clients without a token are tests and controllers: they may do everything.
func (s *Server) newAuthorizer(stores []*registry.Store) authorizer.Authorizer {
	r := &roles{}
	for i, k := range s.kinds {
		switch {
		case k.gv != rbacv1.SchemeGroupVersion:
		case k.resource == "roles":
			r.roles = stores[i]
		case k.resource == "rolebindings":
			r.bindings = stores[i]
		case k.resource == "clusterroles":
			r.clusterRoles = stores[i]
		case k.resource == "clusterrolebindings":
			r.clusterBindings = stores[i]
		}
	}
	byRole := rbac.New(r, r, r, r)
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision,
		string, error) {
		if a.GetUser() == nil || a.GetUser().GetName() == user.Anonymous {
			return authorizer.DecisionAllow, "the client is anonymous", nil
		}
		return byRole.Authorize(ctx, a)
	})
}

// roles are the roles and bindings of a server.
type roles struct{ roles, bindings, clusterRoles, clusterBindings *registry.Store }

// GetRole implements the RoleGetter of kube-apiserver.
func (r *roles) GetRole(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	return get[rbacv1.Role](request.WithNamespace(ctx, namespace), r.roles, name)
}

// GetClusterRole implements the ClusterRoleGetter of kube-apiserver.
func (r *roles) GetClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	return get[rbacv1.ClusterRole](ctx, r.clusterRoles, name)
}

// ListRoleBindings implements the RoleBindingLister of kube-apiserver.
func (r *roles) ListRoleBindings(ctx context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	list, err := r.bindings.List(request.WithNamespace(ctx, namespace), &internalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	return pointers(list.(*rbacv1.RoleBindingList).Items), nil
}

// ListClusterRoleBindings implements the ClusterRoleBindingLister of kube-apiserver.
func (r *roles) ListClusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	list, err := r.clusterBindings.List(request.WithNamespace(ctx, ""), &internalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	return pointers(list.(*rbacv1.ClusterRoleBindingList).Items), nil
}

func get[T any](ctx context.Context, store *registry.Store, name string) (*T, error) {
	o, err := store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	object, _ := any(o).(*T)
	return object, nil
}

func pointers[T any](items []T) (all []*T) {
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}
