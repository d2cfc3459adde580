//go:build linux

package main

import (
	"errors"
	"net"
	"strings"
	"testing"
)

func TestQueryCounts(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		packet := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(packet)
			if err != nil {
				return
			}
			other := append([]byte{packet[0] ^ 1}, packet[1:n]...)
			other[3] = 2 // of another query, which must not count
			server.WriteTo(other, from)

			packet[2] |= 0x80
			if strings.Contains(string(packet[:n]), "missing") {
				packet[3] |= 3
			}
			server.WriteTo(packet[:n], from)
		}
	}()

	var c counter
	for _, name := range []string{"example.com", "missing.example.com."} {
		c.count(query(server.LocalAddr().String(), name, nil))
	}
	c.count(0, errors.New("timeout"))
	if want := (load{Sent: 3, Answered: 1, Failed: 1, Lost: 1}); c.load != want {
		t.Errorf("got %+v, want %+v", c.load, want)
	}
	if got, want := c.load.minus(load{Sent: 1, Lost: 1}), (load{Sent: 2, Answered: 1, Failed: 1}); got != want {
		t.Errorf("minus: got %+v, want %+v", got, want)
	}
}
