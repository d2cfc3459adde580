// Command seamark is a DNS server for Kubernetes clusters: package cmd with the
// directives of package builtin.
package main

import (
	"github.com/seamark/seamark/builtin"
	"github.com/seamark/seamark/cmd"
)

// These are set by the linker.
var version, commit, date = "dev", "", ""

func main() {
	cmd.Main(builtin.Directives(), cmd.Build{Version: version, Commit: commit, Date: date})
}
