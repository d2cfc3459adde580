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

// read implements cluster.ReadOrigin.
func (s *origins) read(ctx context.Context, kind cluster.Kind, key cluster.Key) (origin cluster.Origin, err error) {
	resource, err := resourceOf(s.resources, kind)
	if err != nil {
		return origin, err
	}
	if !s.rate.TryAccept() {
		return origin, fmt.Errorf("more than %d requests a second: try again", originRate)
	}

	found := false
	r := resource.Origins(func(name string, o cluster.Origin) {
		if name == key.Name {
			origin, found = o, true
		}
	})

	err = s.client.listOne(ctx, r, key, &objectList{put: func(*api.Decoded) {}})
	if err == nil && !found {
		err = errGone
	}
	return origin, err
}

// resourceOf returns the resource that has objects of a kind.
func resourceOf(all []api.Resource, kind cluster.Kind) (r api.Resource, err error) {
	i := slices.IndexFunc(all, func(r api.Resource) bool { return slices.Contains(r.Kinds, kind) })
	if i < 0 {
		return r, fmt.Errorf("%s are not watched", kind)
	}
	return all[i], nil
}

// listOne lists the object that has a key, which needs no permission that the feeds do not need: a Role
// that allows get is not required.
func (c *client) listOne(ctx context.Context, r api.Resource, key cluster.Key, into *objectList) error {
	rest, err := c.restClient(r, "list", nil)
	if err != nil {
		return err
	}
	opts := &metav1.ListOptions{FieldSelector: "metadata.name=" + key.Name, LabelSelector: r.Labels}
	err = newRequest(rest, key.Namespace, r.Name, opts).Do(ctx).Into(into)
	switch {
	case ctx.Err() != nil:
		return errors.New("no response from the API server in time")
	case apierrors.IsForbidden(err):
		return fmt.Errorf("forbidden: the server may not list %s", r)
	}
	return redact.Error(err)
}
