package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/internal/traffic"
	"github.com/spf13/cobra"
)

// podFlags are the flags of commands that show the pods of clients.
type podFlags struct {
	show   bool
	source sourceFlags
}

func (f *podFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.show, "pods", false, "show the pods of the clients: list the pods of the cluster once")
	f.source.flags(c)
}

// A clientPod is a pod with its owner.
type clientPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Owner     string `json:"owner,omitempty"` // KIND/NAME
}

type podsByAddress map[string]clientPod

// keep removes the pods that no entry names.
func (p podsByAddress) keep(entries []traffic.Entry) {
	named := map[string]bool{}
	for _, e := range entries {
		named[e.Key], named[e.Example] = true, true
	}
	for address := range p {
		if !named[address] {
			delete(p, address)
		}
	}
}

// podPage is the number of pods in a response of the API server.
const podPage = 250

// maxPods bounds the number of pods that are read.
const maxPods = 200_000

// read returns the cluster's pods by address, nil without the flag. Pods in the network of
// their node, which share its address, are left out.
func (f *podFlags) read(ctx context.Context, timeout time.Duration) (podsByAddress, error) {
	if !f.show {
		return nil, nil
	}
	o, err := f.source.options()
	if err != nil {
		return nil, err
	}
	session, err := apiserver.NewSession(o)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	pods, next := podsByAddress{}, ""
	for n := 0; ; n += podPage {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		text, err := session.Get(ctx, fmt.Sprintf("/api/v1/pods?limit=%d&continue=%s", podPage, url.QueryEscape(next)))
		cancel()
		if err != nil {
			return nil, err
		}
		var list podList
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("reading the pods: %w", err)
		}
		list.add(pods)
		if next = list.Metadata.Continue; next == "" {
			return pods, nil
		}
		if n > maxPods {
			return nil, fmt.Errorf("the cluster has more than %d pods", maxPods)
		}
	}
}

// A podList is what read needs of a PodList.
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

func (l *podList) add(pods podsByAddress) {
	for i := range l.Items {
		item := &l.Items[i]
		if item.Spec.HostNetwork || item.Status.Phase == "Succeeded" || item.Status.Phase == "Failed" {
			continue
		}
		pod := clientPod{Namespace: item.Metadata.Namespace, Name: item.Metadata.Name}
		for _, o := range item.Metadata.OwnerReferences {
			if !o.Controller {
				continue
			}
			pod.Owner = o.Kind + "/" + o.Name
			// A Deployment names its ReplicaSets after itself and this hash.
			if name, ok := strings.CutSuffix(o.Name, "-"+item.Metadata.Labels["pod-template-hash"]); ok && o.Kind == "ReplicaSet" {
				pod.Owner = "Deployment/" + name
			}
		}
		for _, address := range item.Status.PodIPs {
			pods[address.IP] = pod
		}
	}
}
