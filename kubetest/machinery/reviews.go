package machinery

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/registry/authentication/tokenreview"
	"k8s.io/kubernetes/pkg/registry/authorization/subjectaccessreview"

	"github.com/seamark/seamark/kubetest/control"
)

// tokens returns an authenticator of the tokens that the users have for an audience.
func tokens(audience string) authenticator.Token {
	known := map[string]*user.DefaultInfo{}
	for _, name := range []string{control.Seamark, control.Reader, control.Operator, control.Nobody} {
		known[control.Token(name, audience)] = &user.DefaultInfo{Name: name, UID: "uid-of-" + name,
			Groups: []string{"group-of-" + name}, Extra: map[string][]string{"extra": {name}}}
	}
	return authenticator.WrapAudienceAgnosticToken(authenticator.Audiences{audience}, tokenfile.New(known))
}

// reviewVersions returns the group versions of reviews, with kube-apiserver's storage of their resources.
func reviewVersions(a authorizer.Authorizer, scheme *runtime.Scheme) map[schema.GroupVersion]map[string]rest.Storage {
	known := bearertoken.New(tokenunion.New(tokens(control.APIAudience), tokens(control.Audience)))
	return map[schema.GroupVersion]map[string]rest.Storage{
		authenticationv1.SchemeGroupVersion: {"tokenreviews": tokenreview.NewREST(known, []string{control.APIAudience})},
		authorizationv1.SchemeGroupVersion:  {"subjectaccessreviews": subjectaccessreview.NewREST(a, scheme)},
	}
}
