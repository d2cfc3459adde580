package apiserver

import (
	"context"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// The requests for objects that the sink has not kept. The owners of objects cause them.
const (
	rereadRate  = 10 // requests a second
	rereadBurst = 50
)

// rereads reads single objects again.
type rereads struct {
	client    *client
	resources []api.Resource
	rate      flowcontrol.RateLimiter
}

func newRereads(c *client, resources []api.Resource) *rereads {
	return &rereads{c, resources, flowcontrol.NewTokenBucketRateLimiter(rereadRate, rereadBurst)}
}

// read implements cluster.ReadObject. It waits for its turn among other requests.
func (s *rereads) read(ctx context.Context, kind cluster.Kind, key cluster.Key) (object cluster.Object, err error) {
	r, err := resourceOf(s.resources, kind)
	if err != nil {
		return nil, err
	}
	if err := s.rate.Wait(ctx); err != nil {
		return nil, err
	}
	err = s.client.listOne(ctx, r, key, &objectList{put: func(o *api.Decoded) {
		if o.Slim != nil && o.Slim.Key() == key {
			object = o.Slim
		}
	}})
	return object, err
}
