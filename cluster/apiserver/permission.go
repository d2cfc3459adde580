package apiserver

import (
	"context"
	"fmt"
	"strings"
)

// A Permission is the right to use a verb on a resource: of one namespace, or of all if
// Namespace is empty.
type Permission struct {
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
}

// String returns the verb and the resource, such as "list endpointslices.discovery.k8s.io"
// or "create pods/portforward".
func (p Permission) String() string {
	resource := p.Resource
	if p.Group != "" {
		resource += "." + p.Group
	}
	if p.Subresource != "" {
		resource += "/" + p.Subresource
	}
	return p.Verb + " " + resource
}

// CanI returns the arguments of kubectl that print whether the user has the permission,
// without the namespace.
func (p Permission) CanI() string {
	sub := p.Subresource
	if p.Subresource = ""; sub != "" {
		sub = " --subresource=" + sub
	}
	return "auth can-i " + p.String() + sub
}

// Allowed reports whether a user has the permission. An empty user is the one of the
// session.
func (s *Session) Allowed(ctx context.Context, user string, p Permission) (bool, error) {
	kind := "SubjectAccessReview"
	if user == "" {
		kind = "SelfSubjectAccessReview"
	}
	return s.review(ctx, kind, reviewSpec{User: user, Resource: &p})
}

// rule returns the rule of a Role or ClusterRole that grants verbs on a resource, as a line of its
// list. names are the objects that it is limited to, if any.
func rule(group, resource, names string, verbs ...string) string {
	if names != "" {
		names = fmt.Sprintf(", resourceNames: [%s]", names)
	}
	return fmt.Sprintf("{apiGroups: [%q], resources: [%s]%s, verbs: [%s]}",
		group, resource, names, strings.Join(verbs, ", "))
}

// Watched returns the permissions that Run needs unless the options name other kinds.
func Watched() (list []Permission) {
	for _, verb := range []string{"list", "watch"} {
		list = append(list,
			Permission{Verb: verb, Resource: "namespaces"},
			Permission{Verb: verb, Resource: "services"},
			Permission{Verb: verb, Group: "discovery.k8s.io", Resource: "endpointslices"})
	}
	return list
}
