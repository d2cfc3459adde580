//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// runTCP runs one goroutine for each of sockets clients, each with its share of
// the window.
func (l load) runTCP(ctx context.Context, one func(context.Context, int, *tally) error) (*tally, error) {
	total := new(tally)
	var mu sync.Mutex
	var clients sync.WaitGroup
	var failed error
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, l.time)
	defer cancel()
	for i := range l.sockets {
		clients.Go(func() {
			t := new(tally)
			err := one(ctx, i, t)
			mu.Lock()
			defer mu.Unlock()
			total.add(t)
			failed = errors.Join(failed, err)
		})
	}
	clients.Wait()
	total.elapsed = time.Since(start)
	return total, failed
}

// A stream is a connection with its queries.
type stream struct {
	conn    net.Conn
	ids     uint16
	waiting map[uint16]*lookup
	out     []byte
	in      []byte // received bytes before the next whole answer
}

// dialTCP connects from an address of its own for each connection and client, so
// that ports in TIME_WAIT do not run out. All of 127.0.0.0/8 is loopback.
func (l load) dialTCP(ctx context.Context, client, n int) (*stream, error) {
	d := net.Dialer{
		Timeout:   patience,
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(client), byte(n%250+1))},
	}
	// The end of the load does not cancel the dial: the last answers are awaited.
	conn, err := d.DialContext(context.WithoutCancel(ctx), "tcp4", l.to.String())
	if err != nil {
		return nil, err
	}
	if l.transport == overTLS {
		conn = tls.Client(conn, clientTLS("dot"))
	}
	return &stream{conn: conn, waiting: map[uint16]*lookup{}}, nil
}

// add appends a query to the unwritten ones.
func (s *stream) add(q *lookup) {
	s.out = binary.BigEndian.AppendUint16(s.out, uint16(len(q.packet)))
	at := len(s.out)
	s.out = append(s.out, q.packet...)
	binary.BigEndian.PutUint16(s.out[at:], s.ids)
	s.waiting[s.ids] = q
	s.ids++
}

func (s *stream) flush() error {
	_, err := s.conn.Write(s.out)
	s.out = s.out[:0]
	return err
}

// take reads once and tallies the complete answers.
func (s *stream) take(t *tally) (n int, err error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if cap(s.in)-len(s.in) < 1<<16 {
		s.in = append(make([]byte, 0, len(s.in)+1<<17), s.in...)
	}

	k, err := s.conn.Read(s.in[len(s.in):cap(s.in)])
	if err != nil {
		return 0, err
	}

	s.in = s.in[:len(s.in)+k]
	for len(s.in) >= 2 {
		size := int(binary.BigEndian.Uint16(s.in))
		if len(s.in) < 2+size {
			break
		}

		packet := s.in[2 : 2+size]
		s.in = s.in[2+size:]
		if size < 12 {
			return n, errors.New("a message shorter than a header")
		}

		id := binary.BigEndian.Uint16(packet)
		q := s.waiting[id]
		if q == nil {
			return n, errors.New("an answer without a query")
		}

		delete(s.waiting, id)
		t.got(q, packet)
		n++
	}

	return n, nil
}

// streams keeps one connection full: it sends as many queries as answers arrived.
func (l load) streams(ctx context.Context, client int, t *tally) error {
	s, err := l.dialTCP(ctx, client, 0)
	if err != nil {
		return err
	}
	defer s.conn.Close()

	at := client * len(l.lookups) / l.sockets
	for n := l.window / l.sockets; ; {
		if ctx.Err() == nil {
			for range n {
				s.add(l.lookups[at%len(l.lookups)])
				at++
			}
			t.sent += n
			if n > 0 {
				if err := s.flush(); err != nil {
					return err
				}
			}
		}

		if len(s.waiting) == 0 {
			return nil
		}

		n, err = s.take(t)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.lost += len(s.waiting)
			return fmt.Errorf("no answer in %v", patience)
		}

		if err != nil {
			return fmt.Errorf("reading: %w", err)
		}
	}
}

// connections opens a connection for each query.
func (l load) connections(ctx context.Context, client int, t *tally) error {
	at := client * len(l.lookups) / l.sockets
	for n := 0; ctx.Err() == nil; n++ {
		s, err := l.dialTCP(ctx, client, n)
		if err != nil {
			return err
		}
		s.add(l.lookups[(at+n)%len(l.lookups)])
		t.sent++
		err = s.flush()
		for err == nil && len(s.waiting) > 0 {
			_, err = s.take(t)
		}
		s.conn.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF) {
			t.lost++
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}
