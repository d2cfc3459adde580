package kubetest

import (
	"bytes"
	"encoding/binary"
	"io"
)

// events is the body of a watch, without the events that the faults remove.
type events struct {
	io.ReadCloser
	p          *Proxy
	x          *exchange
	inProtobuf bool
	received   []byte // not yet a complete event
	ready      []byte // to be read
}

// Read reads whole events from the server.
func (e *events) Read(buf []byte) (int, error) {
	for len(e.ready) == 0 {
		n, err := e.ReadCloser.Read(buf)
		e.received = append(e.received, buf[:n]...)
		for {
			event := e.received[:e.complete()]
			if len(event) == 0 {
				break
			}
			if lose := e.p.faults.Load().affecting(e.x).Lose; lose == "" || !bytes.Contains(event, []byte(lose)) {
				e.ready = append(e.ready, event...)
			}
			e.received = e.received[len(event):]
		}
		if err != nil && len(e.ready) == 0 {
			return 0, err
		}
	}
	n := copy(buf, e.ready)
	e.ready = e.ready[n:]
	return n, nil
}

// complete returns the length of the first event received; zero if it is not complete.
func (e *events) complete() int {
	if !e.inProtobuf {
		return bytes.IndexByte(e.received, '\n') + 1
	}
	if len(e.received) < 4 {
		return 0
	}
	size := 4 + int(binary.BigEndian.Uint32(e.received))
	if len(e.received) < size {
		return 0
	}
	return size
}
