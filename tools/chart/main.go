// Command chart writes the README of the Helm chart deploy/helm/seamark: the template
// README.md.tmpl with tables of the values, from the comments of values.yaml, and of the
// values of the chart coredns/coredns, from coredns-values.yaml.
//
//	go run ./chart ../deploy/helm/seamark
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want the directory of the chart", len(args))
	}
	text, err := readme(args[0])
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(args[0], "README.md"), text, 0o644)
}
