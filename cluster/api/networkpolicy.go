package api

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster"
)

// A NetworkPolicy is a ClusterNetworkPolicy. As a custom resource it is sent as JSON only.
type NetworkPolicy struct {
	Meta `json:"metadata"`
	Spec struct {
		Tier     string `json:"tier"`
		Priority int32  `json:"priority"`
		Subject  struct {
			Namespaces *metav1.LabelSelector `json:"namespaces"`
			Pods       *struct {
				NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
				PodSelector       metav1.LabelSelector `json:"podSelector"`
			} `json:"pods"`
		} `json:"subject"`
		Egress []struct {
			Name   string `json:"name"`
			Action string `json:"action"`
			To     []struct {
				DomainNames []string `json:"domainNames"`
				Networks    []string `json:"networks"`
			} `json:"to"`
			Protocols []struct{} `json:"protocols"`
		} `json:"egress"`
	} `json:"spec"`
}

// NetworkPolicy slims a ClusterNetworkPolicy. One with a selector that is not valid is left out: an API
// server accepts none.
func (s Slimmer) NetworkPolicy(full *NetworkPolicy) *cluster.NetworkPolicy {
	slim := &cluster.NetworkPolicy{
		Name: full.Name, Created: int64(full.CreationTimestamp), Tier: intern(full.Spec.Tier), Priority: full.Spec.Priority,
	}
	var pods, namespaces *metav1.LabelSelector
	switch subject := full.Spec.Subject; {
	case subject.Namespaces != nil:
		namespaces, pods = subject.Namespaces, new(metav1.LabelSelector)
	case subject.Pods != nil:
		namespaces, pods = &subject.Pods.NamespaceSelector, &subject.Pods.PodSelector
	}

	var err error
	if slim.Namespaces, err = selectorOf(namespaces); err != nil {
		s.warn("Invalid selector, the object selects nothing", "ClusterNetworkPolicy", "", full.Name, err)
		return nil
	}
	if slim.Pods, err = selectorOf(pods); err != nil {
		s.warn("Invalid selector, the object selects nothing", "ClusterNetworkPolicy", "", full.Name, err)
		return nil
	}

	for _, e := range full.Spec.Egress {
		rule := cluster.EgressRule{Name: e.Name, Action: intern(e.Action), Protocols: len(e.Protocols) > 0}
		for _, to := range e.To {
			rule.Domains = append(rule.Domains, to.DomainNames...)
			rule.Networks = append(rule.Networks, to.Networks...)
		}
		rule.Domains = slices.Clip(rule.Domains)
		slim.Rules = append(slim.Rules, rule)
	}
	return slim
}

// selectorOf returns a label selector; one that is nil selects nothing.
func selectorOf(s *metav1.LabelSelector) (cluster.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return cluster.Selector{}, err
	}
	if s == nil {
		return cluster.ParseSelector("a,!a")
	}
	return cluster.ParseSelector(selector.String())
}
