package dnstest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seamark/seamark/test/freeport"
)

// ServeCoreDNS starts CoreDNS with a Corefile, changed so that it listens on one port of the loopback
// interface, and ends it with the test. It returns when CoreDNS accepts connections there.
func ServeCoreDNS(t testing.TB, program, text string, log io.Writer) (at netip.AddrPort, err error) {
	port := freeport.Reserve(t)
	at = netip.MustParseAddrPort("127.0.0.1:" + port)
	file := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(file, []byte(onLoopback(text, port)), 0o644); err != nil {
		return at, err
	}

	ctx, cancel := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, program, "-conf", file, "-dns.port", port)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		cancel()
		return at, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})

	for limit := time.Now().Add(deadline); ; time.Sleep(poll) {
		conn, err := net.DialTimeout("tcp", at.String(), time.Second)
		if err == nil {
			_ = conn.Close()
			return at, nil
		}
		select {
		case <-ended:
			return at, fmt.Errorf("CoreDNS has ended: %v", c.ProcessState)
		default:
		}
		if time.Now().After(limit) {
			return at, err
		}
	}
}

// port is the port of a key of a server block.
var port = regexp.MustCompile(`:\d+$`)

// onLoopback returns a Corefile with a port in place of those of its keys, and 127.0.0.1 as the address
// of each server block that has none.
func onLoopback(text, number string) string {
	var b strings.Builder
	depth := 0
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "#")
		words := strings.Fields(code)
		opens := len(words) > 0 && words[len(words)-1] == "{"
		if !opens || depth > 0 || strings.HasPrefix(words[0], "(") {
			b.WriteString(line)
		} else {
			for _, key := range words[:len(words)-1] {
				b.WriteString(port.ReplaceAllString(key, ":"+number) + " ")
			}
			b.WriteString("{\n    bind 127.0.0.1\n")
		}

		if opens {
			depth++
		} else if len(words) > 0 && words[0] == "}" {
			depth--
		}
	}
	return b.String()
}
