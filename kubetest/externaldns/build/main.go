// Command build builds ExternalDNS, and prints the path of the program. With -crd it prints the definition
// of its kind DNSEndpoint, and builds nothing.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/seamark/seamark/kubetest/externaldns"
)

func main() {
	crd := flag.Bool("crd", false, "print the definition of DNSEndpoint")
	flag.Parse()
	if err := run(*crd); err != nil {
		fmt.Fprintln(os.Stderr, "building ExternalDNS:", err)
		os.Exit(1)
	}
}

func run(crd bool) error {
	if crd {
		definition, err := externaldns.CRD()
		if err == nil {
			_, err = os.Stdout.Write(definition)
		}
		return err
	}
	program, err := externaldns.Build()
	if err == nil {
		_, err = fmt.Println(program)
	}
	return err
}
