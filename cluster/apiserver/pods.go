package apiserver

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster/api"
)

// A ClientPod is a pod that sends queries, with the object that controls it.
type ClientPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Owner     string `json:"owner,omitempty"` // KIND/NAME
}

const (
	podPage = 250     // pods in a response
	maxPods = 200_000 // that are read
)

// ClientPods returns pods by their addresses: the pods with an address, or all pods of the
// cluster if it is not valid. Pods in the network of their node, which share its address, and
// pods that have ended are left out. timeout bounds each request. It needs the permission to list pods.
func (s *Session) ClientPods(
	ctx context.Context, address netip.Addr, timeout time.Duration,
) (map[string]ClientPod, error) {
	parameters := url.Values{"limit": {fmt.Sprint(podPage)}}
	if address.IsValid() {
		parameters.Set("fieldSelector", "status.podIP="+address.String())
	}

	pods := map[string]ClientPod{}
	for n := 0; ; n += podPage {
		page, cancel := context.WithTimeout(ctx, timeout)
		var list struct {
			Metadata struct{ Continue string }
			Items    []api.Pod
		}
		err := s.Read(page, "/api/v1/pods?"+parameters.Encode(), "the pods", &list)
		cancel()
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			addClient(pods, &list.Items[i])
		}

		if list.Metadata.Continue == "" {
			return pods, nil
		}
		if n > maxPods {
			return nil, fmt.Errorf("the cluster has more than %d pods", maxPods)
		}
		parameters.Set("continue", list.Metadata.Continue)
	}
}

// addClient adds a pod by its addresses, unless its queries are not from an address of its own.
func addClient(pods map[string]ClientPod, p *api.Pod) {
	if p.Spec.HostNetwork || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
		return
	}
	client := ClientPod{Namespace: p.Namespace, Name: p.Name}
	for _, o := range p.Owners {
		if !o.Controller {
			continue
		}
		client.Owner = o.Kind + "/" + o.Name
		// A Deployment names its ReplicaSets after itself and this hash.
		if name, ok := strings.CutSuffix(o.Name, "-"+p.Labels["pod-template-hash"]); ok && o.Kind == "ReplicaSet" {
			client.Owner = "Deployment/" + name
		}
	}
	for _, address := range p.Status.PodIPs {
		pods[address.IP] = client
	}
}
