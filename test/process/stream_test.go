//go:build unix

package process

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// stream sends a number of queries over one connection, one after the other, and counts the replies
// until the server closes it: "200 example.org A +tcp => 128".
func (s *script) stream(text string) error {
	ask, want, _ := strings.Cut(text, " => ")
	number, ask, _ := strings.Cut(ask, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	q, err := s.question(ask)
	if err != nil {
		return err
	}
	q.within = limit

	c, err := q.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	answered := 0
	for range n {
		if _, err = q.exchangeOver(c); err != nil {
			break
		}
		answered++
	}
	if got := strconv.Itoa(answered); got != want {
		return fmt.Errorf("got %s replies, want %s; %v", got, want, err)
	}
	return nil
}

// transfer copies a zone: "example.org +port=53 => RECORD", of which the copy must have this record, or
// "=> refused".
func (s *script) transfer(text string) error {
	ask, want, _ := strings.Cut(text, " => ")
	q, err := s.question(strings.Replace(ask, " ", " AXFR ", 1))
	if err != nil {
		return err
	}

	copied := new(dns.Msg)
	err = s.await(func() error {
		copied.Answer = nil
		envelopes, err := new(dns.Transfer).In(q.m.Copy(), q.at)
		if err != nil {
			return err
		}
		for e := range envelopes {
			if e.Error != nil && want == "refused" {
				return nil
			}
			if err == nil {
				err = e.Error
			}
			copied.Answer = append(copied.Answer, e.RR...)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case want == "refused" && len(copied.Answer) > 0:
		return fmt.Errorf("got a copy, want none\n%s", copied)
	case want != "refused" && !hasRecord(copied, want):
		return fmt.Errorf("no record %q in\n%s", want, copied)
	}
	return nil
}

// partial sends half of a query over a connection, and waits until the server closes it.
func (s *script) partial(text string) error {
	q, err := s.question(text)
	if err != nil {
		return err
	}
	q.within = limit
	packet, err := q.m.Pack()
	if err != nil {
		return err
	}

	c, err := q.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet[:len(packet)/2]...)); err != nil {
		return err
	}
	reply, err := io.ReadAll(c)
	if netErr, ok := err.(interface{ Timeout() bool }); ok && netErr.Timeout() {
		return fmt.Errorf("the connection is open after %v", limit)
	}
	if len(reply) > 0 {
		return fmt.Errorf("got %x, want no reply", reply)
	}
	return nil
}
