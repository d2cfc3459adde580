package orphans

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// script waits until its input ends, and kills all processes with $0 in their environments, and those that these
// start meanwhile. It gives up after some seconds: a process may have become another user's.
const script = `read -r _
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	pids=$(grep -lzxF -e "$0" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n')
	[ -n "$pids" ] || exit 0
	kill -9 $pids 2>/dev/null
	sleep 0.1
done`

// guard starts the process that ends those of this binary after it, however it ends: when its input ends, which the
// system closes with this process, and which processes that this one starts do not have. The caller keeps it. A
// process that a test has started needs no guard: it has that of the test's binary.
//
// PR_SET_PDEATHSIG of prctl(2) would end only direct children, those of a thread with that thread, and
// no program with capabilities.
func guard() (input *os.File) {
	if os.Getenv(variable) != "" {
		return nil
	}
	mark := rand.Text()
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	defer r.Close()

	c := exec.Command("sh", "-c", script, variable+"="+mark)
	c.Stdin, c.Dir = r, "/"
	c.Env = []string{"PATH=" + os.Getenv("PATH")} // without the mark
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil { // a test in a root directory of its own has no shell
		fmt.Fprintln(os.Stderr, "starting the guard of the processes of tests:", err)
		return nil
	}
	_ = c.Process.Release()

	if err := os.Setenv(variable, mark); err != nil {
		panic(err)
	}
	return w
}
