package machinery

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/seamark/seamark/kubetest/control"
)

// The storage of reviews is part of kube-apiserver, not of the API server library. This has
// the same semantics, with the library's authenticators of static tokens. kube-apiserver's
// authorizer for RBAC is not in the library either: the users of package control have fixed
// permissions.

// reviewVersions returns the group versions of reviews, with their resources.
func reviewVersions() map[schema.GroupVersion]map[string]rest.Storage {
	tokens := func(audience string, users ...string) authenticator.Token {
		known := map[string]*user.DefaultInfo{}
		for _, name := range users {
			known[control.Token(name, audience)] = &user.DefaultInfo{Name: name, UID: "uid-of-" + name, Groups: []string{"group-of-" + name}, Extra: map[string][]string{"extra": {name}}}
		}
		return authenticator.WrapAudienceAgnosticToken(authenticator.Audiences{audience}, tokenfile.New(known))
	}
	users := []string{control.Reader, control.Operator, control.Nobody}
	return map[schema.GroupVersion]map[string]rest.Storage{
		authenticationv1.SchemeGroupVersion: {"tokenreviews": &tokenReviews{tokenunion.New(tokens(control.APIAudience, users...), tokens(control.Audience, users...))}},
		authorizationv1.SchemeGroupVersion:  {"subjectaccessreviews": &accessReviews{}},
	}
}

type tokenReviews struct{ tokens authenticator.Token }

func (*tokenReviews) Destroy()                {}
func (*tokenReviews) NamespaceScoped() bool   { return false }
func (*tokenReviews) New() runtime.Object     { return new(authenticationv1.TokenReview) }
func (*tokenReviews) GetSingularName() string { return "tokenreview" }

// Create implements rest.Creater as kube-apiserver does.
func (r *tokenReviews) Create(ctx context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	t := obj.(*authenticationv1.TokenReview)
	if t.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	audiences := t.Spec.Audiences
	if len(audiences) == 0 {
		audiences = []string{control.APIAudience}
	}
	response, ok, err := r.tokens.AuthenticateToken(authenticator.WithAudiences(ctx, audiences), t.Spec.Token)
	t.Status = authenticationv1.TokenReviewStatus{Authenticated: ok}
	if err != nil {
		t.Status.Error = err.Error()
	}
	if ok {
		t.Status.Audiences = response.Audiences
		t.Status.User = authenticationv1.UserInfo{Username: response.User.GetName(), UID: response.User.GetUID(), Groups: response.User.GetGroups(), Extra: map[string]authenticationv1.ExtraValue{}}
		for key, values := range response.User.GetExtra() {
			t.Status.User.Extra[key] = values
		}
	}
	return t, nil
}

type accessReviews struct{}

func (*accessReviews) Destroy()                {}
func (*accessReviews) NamespaceScoped() bool   { return false }
func (*accessReviews) New() runtime.Object     { return new(authorizationv1.SubjectAccessReview) }
func (*accessReviews) GetSingularName() string { return "subjectaccessreview" }

// Create implements rest.Creater. It denies what lacks the user's uid, groups and extra, with
// which a real authorizer may decide.
func (*accessReviews) Create(_ context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	r := obj.(*authorizationv1.SubjectAccessReview)
	a, name := r.Spec.NonResourceAttributes, r.Spec.User
	if (a == nil) == (r.Spec.ResourceAttributes == nil) {
		return nil, apierrors.NewBadRequest("exactly one of nonResourceAttributes or resourceAttributes must be specified")
	}
	verbs := map[string][]string{control.Reader: {"get"}, control.Operator: {"get", "post"}}[name]
	whole := r.Spec.UID == "uid-of-"+name && slices.Equal(r.Spec.Groups, []string{"group-of-" + name}) && slices.Equal(r.Spec.Extra["extra"], []string{name})
	r.Status.Allowed = a != nil && a.Path == control.ReviewedPath && slices.Contains(verbs, a.Verb) && whole
	r.Status.Reason = fmt.Sprintf("the user %s has the verbs %q", name, verbs)
	return r, nil
}
