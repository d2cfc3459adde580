package cmd_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/miekg/dns"
	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
)

// Zones of secondary, and members of catalogs, are passed from process to process: they are served at each
// moment, although no primary is there and they have no files.
func TestHandoverSecondary(t *testing.T) {
	long(t)
	t.Parallel()
	const zone = "@ 60 SOA ns host 1 60 60 600 60\n@ 60 NS ns\nns 60 A 192.0.2.53\nwww 60 A 192.0.2.1\n"
	from, port := t.TempDir(), freeport.Reserve(t)
	write(t, filepath.Join(from, "zone"), zone)
	write(t, filepath.Join(from, "catalog"), "@ 60 SOA . . 1 60 60 600 60\n@ 60 NS invalid.\nversion 60 TXT 2\na.zones 60 PTR member.example.\n")
	write(t, filepath.Join(from, "Corefile"), fmt.Sprintf(`.:%s {
    bind 127.0.0.1
    file zone zone.example
    file zone member.example
    file catalog catalog.example
    transfer {
        to *
    }
}
`, port))
	primary := serve(t, from, "", "-conf", "Corefile")

	dir := t.TempDir()
	at := "127.0.0.1:" + freeport.Reserve(t)
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(`.:%s {
    bind 127.0.0.1
    handover seamark.sock
    secondary zone.example {
        transfer from 127.0.0.1:%s
    }
    secondary catalog.example {
        transfer from 127.0.0.1:%[2]s
        catalog
    }
}
`, at[len("127.0.0.1:"):], port))
	p := serve(t, dir, "", "-conf", "Corefile")

	served := func(name string) error {
		reply, err := ask("udp", at, name, dns.TypeA)
		if err == nil && len(reply.Answer) != 1 {
			err = fmt.Errorf("%s of %s, want an address", dns.RcodeToString[reply.Rcode], name)
		}
		return err
	}
	names := []string{"www.zone.example.", "www.member.example."}
	for _, name := range names {
		chaintest.Eventually(t, "an address of "+name, func() bool { return served(name) == nil })
	}
	primary.stop()

	for range 3 {
		done, failed := make(chan bool), make(chan error, 1)
		go func() {
			defer close(failed)
			for {
				for _, name := range names {
					if err := served(name); err != nil {
						failed <- err
						return
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		}()

		next := serve(t, dir, "", "-conf", "Corefile")
		if code := p.exit(); code != 0 {
			t.Fatalf("exit status of the old process: got %d, want 0", code)
		}
		close(done)
		if err := <-failed; err != nil {
			t.Fatalf("during or after a hand-over: %v", err)
		}
		p = next
	}
	p.stop()
}
