// Command build builds ExternalDNS, and prints the path of the program.
package main

import (
	"fmt"
	"os"

	"github.com/seamark/seamark/kubetest/externaldns"
)

func main() {
	program, err := externaldns.Build()
	if err != nil {
		fmt.Fprintln(os.Stderr, "building ExternalDNS:", err)
		os.Exit(1)
	}
	fmt.Println(program)
}
