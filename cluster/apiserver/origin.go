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

const (
	// The requests for origins: each is for one object, and a person or a program may explain
	// names as fast as it can.
	originRate  = 5 // requests a second
	originBurst = 20
	// The requests for objects that the sink has not kept. The owners of objects cause them.
	rereadRate  = 10 // requests a second
	rereadBurst = 50
)

// errGone is the error for an object that was deleted meanwhile.
var errGone = errors.New("the API server does not have the object any more")

// readOrigin returns a function that reads the metadata of single objects.
func (c *client) readOrigin(resources []api.Resource, rate flowcontrol.PassiveRateLimiter) cluster.ReadOrigin {
	return func(ctx context.Context, kind cluster.Kind, key cluster.Key) (origin cluster.Origin, err error) {
		resource, err := resourceOf(resources, kind)
		if err != nil {
			return origin, err
		}
		if !rate.TryAccept() {
			return origin, fmt.Errorf("more than %d requests a second: try again", originRate)
		}

		found := false
		r := resource.Origins(func(name string, o cluster.Origin) {
			if name == key.Name {
				origin, found = o, true
			}
		})
		err = c.listOne(ctx, r, key, &objectList{put: func(*api.Decoded) {}})
		if err == nil && !found {
			err = errGone
		}
		return origin, err
	}
}

// readObject returns a function that reads single objects. It waits for its turn among other requests.
func (c *client) readObject(resources []api.Resource, rate flowcontrol.RateLimiter) cluster.ReadObject {
	return func(ctx context.Context, kind cluster.Kind, key cluster.Key) (object cluster.Object, err error) {
		r, err := resourceOf(resources, kind)
		if err != nil {
			return nil, err
		}
		if err := rate.Wait(ctx); err != nil {
			return nil, err
		}
		err = c.listOne(ctx, r, key, &objectList{put: func(o *api.Decoded) {
			if o.Slim != nil && o.Slim.Key() == key {
				object = o.Slim
			}
		}})
		return object, err
	}
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
