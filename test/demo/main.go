// Demo serves a small shop with the traffic of its pods, and with the troubles that the web page is
// for: a misspelled name, a search path that wastes queries, a storm of random names, and an upstream
// that dies. make demo runs it. It ends with an interrupt, and leaves nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	program := flag.String("seamark", "bin/seamark", "the server's `FILE`")
	d := demo{out: os.Stdout, scenes: scenes}
	flag.StringVar(&d.manifests, "manifests", "examples", "`FOLDER` of manifests to serve")
	flag.StringVar(&d.dns, "dns", "127.0.0.1:1053", "`ADDRESS` of the DNS server")
	flag.StringVar(&d.page, "page", "127.0.0.1:8053", "`ADDRESS` of the web page")
	flag.Parse()
	d.command = func(args ...string) *exec.Cmd { return exec.Command(*program, args...) }

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := d.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// scenes are repeated until the demo ends.
var scenes = []scene{
	{45 * time.Second, "Every pod is well, but one misspells a name, and one wastes queries by its search path.", nil},
	{45 * time.Second, "127.0.0.66 sends random names below shop.svc.cluster.local.",
		func(d *demo, ctx context.Context) { d.send(ctx, "127.0.0.66", 400, randomName) }},
	{30 * time.Second, "The storm is over.", nil},
	{60 * time.Second, "One of the two upstreams is dead.",
		func(d *demo, ctx context.Context) {
			d.dying.Store(true)
			<-ctx.Done()
			d.dying.Store(false)
		}},
}
