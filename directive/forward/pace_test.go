package forward

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mdns "github.com/miekg/dns"
)

// newPipe returns a dialer whose datagrams and connections are pipes to upstreams that behave as do says.
func newPipe(t *testing.T, do func(address string) behavior) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if network != "udp" { // nothing listens, and no packet says so
			<-ctx.Done()
			return nil, ctx.Err()
		}

		near, far := net.Pipe()
		go func() {
			buf := make([]byte, 4096)
			for {
				n, err := far.Read(buf)
				if err != nil {
					return
				}
				q := new(mdns.Msg)
				if err := q.Unpack(buf[:n]); err != nil {
					t.Error(err)
					return
				}
				do(address)(q, false, func(b []byte) { go func() { _, _ = far.Write(b) }() })
			}
		}()
		return near, nil
	}
}

// Of up to five upstreams only the last one answers, without EDNS alone since the last query, and the
// others are silent, or known for their silence over UDP: there is time for a query that it answers.
func TestTimeForQueryWithoutEDNS(t *testing.T) {
	for n := 1; n <= 5; n++ {
		for _, latency := range []time.Duration{0, time.Millisecond, time.Second, exchangeTimeout} {
			for _, avoided := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d,%s,%v", n, latency, avoided), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						good, broken := fmt.Sprintf("192.0.2.%d:53", n), false
						dial := newPipe(t, func(address string) behavior {
							return func(q *mdns.Msg, tcp bool, send func([]byte)) {
								if address == good && (!broken || q.IsEdns0() == nil) {
									answerWithAddress("1")(q, tcp, send)
								}
							}
						})

						var addrs []string
						for i := range n {
							addrs = append(addrs, fmt.Sprintf("192.0.2.%d", i+1))
						}
						r := newHarnessWith(t, "forward . "+strings.Join(addrs, " ")+" {\n policy sequential\n max_fails 0\n}", dial)
						r.wantAnswer("known.example.", mdns.TypeA, "192.0.2.1")

						for i, u := range r.forward[0].set.current.Load().all {
							if i < n-1 && avoided {
								u.udp.silent.extend()
							}
							u.latency = latencyHistogram{}
							for range minSamples {
								if latency != 0 {
									u.latency.add(latency)
								}
							}
						}
						broken = true
						r.wantAnswer("a.example.", mdns.TypeA, "192.0.2.1")
					})
				})
			}
		}
	}
}
