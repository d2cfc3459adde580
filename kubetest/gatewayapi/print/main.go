// Command print prints the definitions of kinds of the Gateway API, whose resources are its arguments.
package main

import (
	"fmt"
	"os"

	"github.com/seamark/seamark/kubetest/gatewayapi"
)

func main() {
	definitions, err := gatewayapi.CRDs(os.Args[1:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reading the definitions of the Gateway API:", err)
		os.Exit(1)
	}
	for _, d := range definitions {
		fmt.Printf("---\n%s", d)
	}
}
