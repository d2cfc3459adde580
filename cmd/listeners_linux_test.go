package cmd_test

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listeners returns the IP addresses of the sockets with which a process listens for TCP
// connections or receives UDP packets from any client, sorted.
func listeners(t *testing.T, pid int) (addresses []string) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	links, err := filepath.Glob(proc + "fd/*")
	if err != nil || len(links) == 0 {
		t.Fatalf("file descriptors of process %d: got %v, error %v", pid, links, err)
	}
	open := map[string]bool{} // inodes
	for _, link := range links {
		target, _ := os.Readlink(link)
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			open[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for _, network := range []string{"tcp", "tcp6", "udp", "udp6"} {
		f, err := os.Open(proc + "net/" + network)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			fields := strings.Fields(lines.Text())
			const listen, unconnected = "0A", "07"
			if state := fields[3]; state != listen && state != unconnected || !open[fields[9]] {
				continue
			}
			text, _, _ := strings.Cut(fields[1], ":")
			ip, err := hex.DecodeString(text)
			if err != nil {
				t.Fatalf("%s: %q: %v", network, lines.Text(), err)
			}
			for word := range slices.Chunk(ip, 4) {
				binary.BigEndian.PutUint32(word, binary.NativeEndian.Uint32(word))
			}
			addr, _ := netip.AddrFromSlice(ip)
			addresses = append(addresses, network[:3]+" "+addr.String())
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// The server listens on the configured addresses and on no others.
func TestListenersConfigured(t *testing.T) {
	everywhere := "::" // both families
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		everywhere = "0.0.0.0"
	}
	for _, tc := range []struct {
		corefile string
		want     []string
	}{
		{".:0 {\n bind 127.0.0.1\n health 127.0.0.2:0\n ready 127.0.0.3:0\n prometheus 127.0.0.4:0\n pprof 127.0.0.5:0\n whoami\n}\n",
			[]string{"tcp 127.0.0.1", "tcp 127.0.0.2", "tcp 127.0.0.3", "tcp 127.0.0.4", "tcp 127.0.0.5", "udp 127.0.0.1"}},
		{".:0 {\n bind 127.0.0.2\n health localhost:0\n ready localhost:0\n prometheus localhost:0\n whoami\n}\n",
			[]string{"tcp 127.0.0.1", "tcp 127.0.0.2", "udp 127.0.0.2"}},
		{".:0 {\n bind 127.0.0.1\n ready :0\n whoami\n}\n", []string{"tcp 127.0.0.1", "tcp " + everywhere, "udp 127.0.0.1"}},
		{".:0 {\n bind 127.0.0.1\n whoami\n}\n", []string{"tcp 127.0.0.1", "udp 127.0.0.1"}},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "Corefile"), tc.corefile)
		p := serve(t, dir, "")
		slices.Sort(tc.want)
		if got := listeners(t, p.Process.Pid); !slices.Equal(got, tc.want) {
			t.Errorf("Corefile:\n%s\ngot sockets at %q, want %q", tc.corefile, got, tc.want)
		}
		p.stop()
	}
}
