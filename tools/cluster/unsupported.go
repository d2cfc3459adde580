//go:build !linux

package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintln(os.Stderr, "cluster: a cluster needs Linux, for its namespaces and control groups, not", runtime.GOOS)
	os.Exit(1)
}
