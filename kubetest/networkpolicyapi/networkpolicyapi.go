// Package networkpolicyapi has the definition of ClusterNetworkPolicy, for tests: [kubetest.Server.Define]
// installs it.
package networkpolicyapi

import (
	"io/fs"

	"github.com/seamark/seamark/kubetest/programs"
)

// Version is the version of the Network Policy API.
const Version = "0.3.0"

const (
	module  = "sigs.k8s.io/network-policy-api"
	crdFile = module + "@v" + Version + "/config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml"
)

// CRD returns the CustomResourceDefinition of the experimental channel, which has domainNames, in YAML,
// from the module. The first call needs Go's module proxy.
func CRD() ([]byte, error) {
	archive, err := programs.OpenModule(module, Version)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	return fs.ReadFile(archive, crdFile)
}
