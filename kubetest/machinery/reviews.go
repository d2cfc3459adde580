package machinery

import (
	"context"

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
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/seamark/seamark/kubetest/control"
)

// The storage of reviews is part of kube-apiserver, not of the API server library. This has
// the same semantics, with the library's authenticators of static tokens and the authorizer of
// the server.

// tokens returns an authenticator of the tokens that the users have for an audience.
func tokens(audience string) authenticator.Token {
	known := map[string]*user.DefaultInfo{}
	for _, name := range []string{control.Seamark, control.Reader, control.Operator, control.Nobody} {
		known[control.Token(name, audience)] = &user.DefaultInfo{Name: name, UID: "uid-of-" + name,
			Groups: []string{"group-of-" + name}, Extra: map[string][]string{"extra": {name}}}
	}
	return authenticator.WrapAudienceAgnosticToken(authenticator.Audiences{audience}, tokenfile.New(known))
}

// reviewVersions returns the group versions of reviews, with their resources.
func reviewVersions(a authorizer.Authorizer) map[schema.GroupVersion]map[string]rest.Storage {
	return map[schema.GroupVersion]map[string]rest.Storage{
		authenticationv1.SchemeGroupVersion: {"tokenreviews": &tokenReviews{tokenunion.New(tokens(control.APIAudience), tokens(control.Audience))}},
		authorizationv1.SchemeGroupVersion:  {"subjectaccessreviews": &accessReviews{a}},
	}
}

type tokenReviews struct{ tokens authenticator.Token }

func (*tokenReviews) Destroy()                {}
func (*tokenReviews) NamespaceScoped() bool   { return false }
func (*tokenReviews) New() runtime.Object     { return new(authenticationv1.TokenReview) }
func (*tokenReviews) GetSingularName() string { return "tokenreview" }

// Create implements rest.Creater as kube-apiserver does.
func (r *tokenReviews) Create(ctx context.Context, obj runtime.Object, _ rest.ValidateObjectFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
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
		t.Status.User = authenticationv1.UserInfo{Username: response.User.GetName(), UID: response.User.GetUID(),
			Groups: response.User.GetGroups(), Extra: map[string]authenticationv1.ExtraValue{}}
		for key, values := range response.User.GetExtra() {
			t.Status.User.Extra[key] = values
		}
	}
	return t, nil
}

type accessReviews struct{ authorizer authorizer.Authorizer }

func (*accessReviews) Destroy()                {}
func (*accessReviews) NamespaceScoped() bool   { return false }
func (*accessReviews) New() runtime.Object     { return new(authorizationv1.SubjectAccessReview) }
func (*accessReviews) GetSingularName() string { return "subjectaccessreview" }

// Create implements rest.Creater as kube-apiserver does.
func (v *accessReviews) Create(ctx context.Context, obj runtime.Object, _ rest.ValidateObjectFunc,
	_ *metav1.CreateOptions) (runtime.Object, error) {
	r := obj.(*authorizationv1.SubjectAccessReview)
	url, resource := r.Spec.NonResourceAttributes, r.Spec.ResourceAttributes
	if (url == nil) == (resource == nil) {
		return nil, apierrors.NewBadRequest("exactly one of nonResourceAttributes or resourceAttributes must be specified")
	}
	who := &user.DefaultInfo{Name: r.Spec.User, UID: r.Spec.UID, Groups: r.Spec.Groups, Extra: map[string][]string{}}
	for key, values := range r.Spec.Extra {
		who.Extra[key] = values
	}
	a := authorizer.AttributesRecord{User: who}
	if url != nil {
		a.Path, a.Verb = url.Path, url.Verb
	} else {
		a.ResourceRequest, a.Verb, a.Namespace, a.Name = true, resource.Verb, resource.Namespace, resource.Name
		a.APIGroup, a.APIVersion, a.Resource, a.Subresource = resource.Group, resource.Version, resource.Resource,
			resource.Subresource
	}
	decision, reason, err := v.authorizer.Authorize(ctx, a)
	r.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: decision == authorizer.DecisionAllow,
		Denied: decision == authorizer.DecisionDeny, Reason: reason}
	if err != nil {
		r.Status.EvaluationError = err.Error()
	}
	return r, nil
}
