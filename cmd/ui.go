package cmd

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"time"

	"github.com/seamark/seamark/observe/status"
	"github.com/seamark/seamark/operate/adminclient"
	"github.com/spf13/cobra"
)

func (p *program) uiCommand() *cobra.Command {
	var a adminFlags
	noBrowser := false
	c := &cobra.Command{
		Use:   "ui",
		Short: "Open the web page of a running server in a browser",
		Long: `Ui opens the web page of a server's directive admin.

` + findServers + `

Of several servers it opens the page of the first ready one, and prints how to open the others.

The page is served on a random port of this machine's loopback interface, until Ctrl-C. The
command adds the token. The printed URL has a secret and can be opened once; it gives the
browser a cookie that all other requests must have, so that other users of the machine and
other web sites cannot use the page. Start the command again to open another browser.`,
		Example: `  seamark ui
  seamark ui --pod seamark-6d8f
  seamark ui --admin unix:/run/seamark/admin.sock
  seamark ui --admin dns.example.org:8053 --token-file token --no-browser`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			found, stop, err := a.find(c.Context())
			if err != nil {
				return err
			}
			defer stop()

			server := found[0]
			status, err := server.Status(c.Context())
			if err != nil {
				return failure{err}
			}
			for _, other := range found[1:] {
				how := "--admin " + other.Address()
				if other.Pod.Name != "" {
					how = "--pod " + other.Pod.String()
				}
				fmt.Fprintf(p.err, "Another server: seamark ui %s\n", how)
			}
			name := identity(server, &status)
			return p.serveUI(c.Context(), server.NewProxy(), name, noBrowser)
		},
	}

	c.Flags().BoolVar(&noBrowser, "no-browser", false, "print the URL only")
	a.flags(c)
	return c
}

// serveUI serves the page until ctx ends.
func (p *program) serveUI(ctx context.Context, proxy *adminclient.Proxy, name string, noBrowser bool) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return failure{err}
	}
	proxy.Host = l.Addr().String()
	conns := status.NewConnections(nil, nil)
	defer conns.Stop()
	s := status.NewServer(proxy)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(conns.Limit(l)) }()

	fmt.Fprintf(p.out, "%s\n", proxy.URL())
	fmt.Fprintf(p.err, "Serving the page of %s. Ctrl-C ends.\n", name)
	if !noBrowser {
		if err := openBrowser(ctx, proxy.URL()); err != nil {
			fmt.Fprintf(p.err, "Opening a browser failed, open the URL yourself: %v\n", err)
		}
	}

	select {
	case <-ctx.Done():
		_ = s.Close()
		<-ended
		return nil
	case err := <-ended:
		return failure{err}
	}
}

// browserTimeout is how long the program that opens a browser may take.
const browserTimeout = 10 * time.Second

// openBrowser opens a URL in the user's browser.
func openBrowser(ctx context.Context, url string) error {
	words := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		words = []string{"open"}
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	ctx, cancel := context.WithTimeout(ctx, browserTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, words[0], append(words[1:], url)...)
	if err := c.Start(); err != nil {
		return err
	}
	err := c.Wait()
	if ctx.Err() != nil { // it may run as long as the browser
		return nil
	}
	return err
}
