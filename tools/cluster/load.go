//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// A load counts the queries of a pod.
type load struct {
	Sent, Answered int
	Failed         int // answered, but not with NOERROR
	Lost           int // no answer within loadTimeout
}

// loadTimeout is how long the resolver of glibc waits for a reply before it sends a query again.
const loadTimeout = 5 * time.Second

// The source ports of a pod's queries, one after the other. The kernel sends a query from a port that
// was used shortly before to the pod that the former query went to, also if that pod has ended and
// kube-proxy has not yet removed the entry. With random ports as resolvers have them 1 to 32 of some
// 10,000 queries were lost whenever the pods were replaced, of CoreDNS and of Seamark; with these none.
const (
	firstPort = 10000
	ports     = 50000
)

func (l load) plus(o load) load {
	return load{l.Sent + o.Sent, l.Answered + o.Answered, l.Failed + o.Failed, l.Lost + o.Lost}
}

func (l load) minus(o load) load {
	return l.plus(load{-o.Sent, -o.Answered, -o.Failed, -o.Lost})
}

// runLoad is the program of the pods that send queries: each over UDP once, from a socket of its
// own as resolvers do. It prints its counts every second.
func runLoad(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	rate := f.Int("rate", 25, "queries a second")
	server := f.String("server", net.JoinHostPort(dnsService, "53"), "address")
	if err := f.Parse(args); err != nil || *rate < 1 || f.NArg() == 0 {
		return usageError{errors.Join(err, errors.New("load: want a rate and names"))}
	}

	var c counter
	var queries sync.WaitGroup
	defer queries.Wait()

	next, report := time.NewTicker(time.Second/time.Duration(*rate)), time.NewTicker(time.Second)
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-report.C:
			if err := c.print(); err != nil {
				return err
			}
		case <-next.C:
			name := f.Arg(i % f.NArg())
			i++
			local := &net.UDPAddr{Port: firstPort + i%ports}
			queries.Go(func() { c.count(query(*server, name, local)) })
		}
	}
}

// A counter counts queries of several goroutines. A query counts when its result is known, so that
// all counts are of the same queries.
type counter struct {
	mu sync.Mutex
	load
}

func (c *counter) count(rcode int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.Sent++
	switch {
	case err != nil:
		c.Lost++
	case rcode != 0:
		c.Failed++
	default:
		c.Answered++
	}
}

func (c *counter) print() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return json.NewEncoder(os.Stdout).Encode(c.load)
}

// query asks for the A records of a name and returns the code of the reply.
func query(server, name string, local net.Addr) (rcode int, err error) {
	rcode, _, err = exchange(server, name, local)
	return rcode, err
}

// exchange asks for the A records of a name, and returns the code of the reply and its number of answers.
func exchange(server, name string, local net.Addr) (rcode, answers int, err error) {
	c, err := (&net.Dialer{LocalAddr: local}).Dial("udp", server)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(loadTimeout)); err != nil {
		return 0, 0, err
	}

	id := uint16(rand.Uint32())
	if _, err := c.Write(question(id, name)); err != nil {
		return 0, 0, err
	}
	reply := make([]byte, 4096)
	for {
		n, err := c.Read(reply)
		if err != nil {
			return 0, 0, err
		}
		if n >= 12 && binary.BigEndian.Uint16(reply) == id {
			return int(reply[3] & 0xf), int(binary.BigEndian.Uint16(reply[6:])), nil
		}
	}
}

// question returns a query for the A records of a name (RFC 1035 section 4.1).
func question(id uint16, name string) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	b = append(b, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0) // recursion desired, one question
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0, 0, 1, 0, 1)
}
