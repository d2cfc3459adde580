// Package networkpolicyapi has the definition of ClusterNetworkPolicy, for tests: [kubetest.Server.Define]
// installs it.
package networkpolicyapi

import "github.com/seamark/seamark/kubetest/programs"

// Version is the version of the Network Policy API.
const Version = "0.3.0"

const (
	module  = "sigs.k8s.io/network-policy-api"
	crdFile = "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml"
)

// CRD returns the CustomResourceDefinition of the experimental channel, which has domainNames, in YAML,
// from the module. The first call needs Go's module proxy.
func CRD() ([]byte, error) {
	return programs.ReadModule(module, Version, crdFile)
}
