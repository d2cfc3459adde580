// Command seamark is a DNS server for Kubernetes clusters: package cmd with the
// directives of package builtin.
package main

import (
	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cmd"
)

// version is set by the linker.
var version = "dev"

func main() { cmd.Main(builtin.Directives(), version) }
