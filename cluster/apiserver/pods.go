package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"
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
		text, err := s.Get(page, "/api/v1/pods?"+parameters.Encode())
		cancel()
		if err != nil {
			return nil, err
		}
		var list podList
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("reading the pods: %w", err)
		}
		list.add(pods)

		if list.Metadata.Continue == "" {
			return pods, nil
		}
		if n > maxPods {
			return nil, fmt.Errorf("the cluster has more than %d pods", maxPods)
		}
		parameters.Set("continue", list.Metadata.Continue)
	}
}

// A podList has the fields of a PodList that ClientPods needs.
type podList struct {
	Metadata struct{ Continue string }
	Items    []struct {
		Metadata struct {
			Namespace, Name string
			Labels          map[string]string
			OwnerReferences []struct {
				Kind, Name string
				Controller bool
			}
		}
		Spec   struct{ HostNetwork bool }
		Status struct {
			Phase  string
			PodIPs []struct{ IP string }
		}
	}
}

func (l *podList) add(pods map[string]ClientPod) {
	for i := range l.Items {
		item := &l.Items[i]
		if item.Spec.HostNetwork || item.Status.Phase == "Succeeded" || item.Status.Phase == "Failed" {
			continue
		}
		pod := ClientPod{Namespace: item.Metadata.Namespace, Name: item.Metadata.Name}
		for _, o := range item.Metadata.OwnerReferences {
			if !o.Controller {
				continue
			}
			pod.Owner = o.Kind + "/" + o.Name
			// A Deployment names its ReplicaSets after itself and this hash.
			hash := item.Metadata.Labels["pod-template-hash"]
			if name, ok := strings.CutSuffix(o.Name, "-"+hash); ok && o.Kind == "ReplicaSet" {
				pod.Owner = "Deployment/" + name
			}
		}
		for _, address := range item.Status.PodIPs {
			pods[address.IP] = pod
		}
	}
}
