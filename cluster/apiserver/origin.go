package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/sys/redact"
)

// The requests for origins: each is for one object, and a person or a program may explain
// names as fast as it can.
const (
	originRate  = 5 // requests a second
	originBurst = 20
)

// errGone is the error for an object that was deleted meanwhile.
var errGone = errors.New("the API server does not have the object any more")

// origins reads the metadata of single objects.
type origins struct {
	client    *client
	resources []api.Resource
	rate      flowcontrol.PassiveRateLimiter
}

func newOrigins(c *client, resources []api.Resource) *origins {
	return &origins{c, resources, flowcontrol.NewTokenBucketPassiveRateLimiter(originRate, originBurst)}
}

// read implements cluster.ReadOrigin. It lists the object that has the name, which needs no
// permission that the feeds do not need: a Role that allows get is not required.
func (s *origins) read(ctx context.Context, kind cluster.Kind, key cluster.Key) (origin cluster.Origin, err error) {
	i := slices.IndexFunc(s.resources, func(r api.Resource) bool { return slices.Contains(r.Kinds, kind) })
	if i < 0 {
		return origin, fmt.Errorf("%s are not watched", kind)
	}
	if !s.rate.TryAccept() {
		return origin, fmt.Errorf("more than %d requests a second: try again", originRate)
	}

	found := false
	r := s.resources[i].Origins(func(name string, o cluster.Origin) {
		if name == key.Name {
			origin, found = o, true
		}
	})

	rest, err := s.client.restClient(r, "list", nil)
	if err != nil {
		return origin, err
	}
	list := objectList{put: func(*api.Decoded) {}}
	opts := &metav1.ListOptions{FieldSelector: "metadata.name=" + key.Name}
	err = newRequest(rest, key.Namespace, r.Name, opts).Do(ctx).Into(&list)
	switch {
	case ctx.Err() != nil:
		return origin, errors.New("no response from the API server in time")
	case apierrors.IsForbidden(err):
		return origin, fmt.Errorf("forbidden: the server may not list %s", r)
	case err != nil:
		return origin, redact.Error(err)
	case !found:
		return origin, errGone
	}
	return origin, nil
}
