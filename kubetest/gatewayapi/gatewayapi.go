// Package gatewayapi has the definitions of the Gateway API's kinds, for tests: [kubetest.Server.Define]
// installs them.
package gatewayapi

import (
	"fmt"

	"github.com/seamark/seamark/kubetest/programs"
)

// Version is the version of the Gateway API.
const Version = "1.7.0"

const (
	module   = "sigs.k8s.io/gateway-api"
	crdFiles = "config/crd/standard/gateway.networking.k8s.io_%s.yaml"
)

// CRDs returns the CustomResourceDefinitions of resources, such as gateways, in YAML, from the module. The
// first call needs Go's module proxy.
func CRDs(resources ...string) (definitions [][]byte, err error) {
	for _, resource := range resources {
		text, err := programs.ReadModule(module, Version, fmt.Sprintf(crdFiles, resource))
		if err != nil {
			return nil, err
		}
		definitions = append(definitions, text)
	}
	return definitions, nil
}
