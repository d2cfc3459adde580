// Install installs the programs of other projects that the tests run, as root on Debian.
// Elsewhere it prints which are missing, with the number of tests that are skipped because of
// that. Its argument is the root of the repository.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/seamark/seamark/test/debian"
)

func main() {
	programs, packages := debian.Missing()
	if len(programs) > 0 && os.Getuid() == 0 && install(packages) {
		programs, packages = debian.Missing()
	}
	if len(programs) == 0 {
		return
	}

	users, err := debian.Users(os.DirFS(os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	skipped := map[string]bool{}
	for _, name := range programs {
		fmt.Printf("missing: %s, which %d tests need\n", name, len(users[name]))
		for _, test := range users[name] {
			skipped[test] = true
		}
	}
	fmt.Printf("%d tests are skipped: on Debian, run as root: apt-get install %s\n", len(skipped),
		strings.Join(packages, " "))
}

// install installs packages of Debian, and reports whether there is a Debian to do it.
func install(packages []string) bool {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return false
	}
	fmt.Println("installing what the tests run:", strings.Join(packages, " "))
	for _, args := range [][]string{
		{"update", "-qq"},
		append([]string{"install", "-y", "-qq", "--no-install-recommends"}, packages...),
	} {
		c := exec.Command("apt-get", args...)
		c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		c.Stderr = os.Stderr
		if err := c.Run(); err != nil {
			fmt.Fprintf(os.Stderr, "apt-get %s: %v\n", args[0], err)
			return true // the programs of packages that are installed are found
		}
	}
	return true
}
