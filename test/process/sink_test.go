//go:build unix

package process

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	framestream "github.com/farsightsec/golang-framestream"
	"google.golang.org/protobuf/encoding/protowire"
)

// sinks is what the sinks of a script have received: spans of trace, and messages of dnstap.
type sinks struct {
	mu   sync.Mutex
	text strings.Builder
}

func (k *sinks) add(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fmt.Fprintf(&k.text, format+"\n", args...)
}

func (k *sinks) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.String()
}

// sink starts a sink: "zipkin ADDRESS", or "dnstap ADDRESS" with the scheme unix://, tcp:// or tls://.
func (s *script) sink(text string) {
	if text == "" {
		return
	}
	kind, address, _ := strings.Cut(s.expand(text), " ")
	network, at, ok := strings.Cut(address, "://")
	if !ok {
		network, at = "tcp", address
	}

	var l net.Listener
	var err error
	if network == "tls" {
		var cert tls.Certificate
		if cert, err = tls.LoadX509KeyPair(filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem")); err == nil {
			l, err = tls.Listen("tcp", at, &tls.Config{Certificates: []tls.Certificate{cert}})
		}
	} else {
		l, err = net.Listen(network, at)
	}
	if err != nil {
		s.t.Fatalf("sink %s: %v", text, err)
	}
	s.t.Cleanup(func() { l.Close() })

	if kind == "zipkin" {
		server := &http.Server{ReadHeaderTimeout: limit, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			s.received.add("%s %s", r.URL.Path, body)
			w.WriteHeader(http.StatusAccepted)
		})}
		go server.Serve(l)
		return
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.t.Cleanup(func() { c.Close() })
			go s.receiveDnstap(c, at)
		}
	}()
}

// receiveDnstap reads the messages of a connection.
func (s *script) receiveDnstap(c net.Conn, at string) {
	d, err := framestream.NewDecoder(c, &framestream.DecoderOptions{
		ContentType: []byte("protobuf:dnstap.Dnstap"), Bidirectional: true, Timeout: time.Hour,
	})
	for err == nil {
		var frame []byte
		if frame, err = d.Decode(); err == nil {
			top := fields(frame)
			message := fields(top[14])
			s.received.add("%s identity=%s version=%s extra=%s query=%d response=%d", filepath.Base(at),
				top[1], top[2], top[3], len(message[10]), len(message[14]))
		}
	}
}

// fields returns the fields of bytes in a message of protobuf.
func fields(b []byte) map[protowire.Number][]byte {
	m := map[protowire.Number][]byte{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return m
		}
		b = b[n:]
		if kind == protowire.BytesType {
			m[number], _ = protowire.ConsumeBytes(b)
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return m
		}
		b = b[n:]
	}
	return m
}
