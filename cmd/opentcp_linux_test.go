package cmd_test

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const tcpClients = 100

// A tcpLoad is the connection of one of a hundred clients. The server's replies are all of
// one size.
type tcpLoad struct {
	net.Conn
	query []byte // with its length
	reply int    // its size, with its length
	got   atomic.Int64
}

// dialTCP connects a client and sends a first query.
func dialTCP(at string, client int) (*tcpLoad, error) {
	packet := overloadQuery()
	l := &tcpLoad{query: append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 8, byte(client+1))}, Timeout: 5 * time.Second}
	var err error
	if l.Conn, err = d.Dial("tcp", at); err != nil {
		return nil, err
	}
	_ = l.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err = l.Write(l.query); err == nil {
		l.reply, err = l.Read(make([]byte, 512))
	}
	_ = l.SetReadDeadline(time.Time{})
	return l, err
}

// receive counts replies until the connection ends.
func (l *tcpLoad) receive() {
	bytes := 0
	for buf := make([]byte, 64<<10); ; {
		n, err := l.Read(buf)
		if err != nil {
			return
		}
		bytes += n
		l.got.Store(int64(bytes / l.reply))
	}
}

// tcpRun connects all clients and calls f for each until it returns. It returns the replies
// of each client at that time, and how many queries the calls have sent.
func tcpRun(at string, f func(l *tcpLoad) (sent float64)) (answers []float64, sent float64) {
	answers = make([]float64, tcpClients)
	var senders, receivers sync.WaitGroup
	var mu sync.Mutex
	for i := range answers {
		senders.Go(func() {
			l, err := dialTCP(at, i)
			if err != nil {
				return
			}
			receivers.Go(l.receive)
			n := f(l)
			answers[i] = float64(l.got.Load())
			mu.Lock()
			sent += n
			mu.Unlock()
			l.Close()
		})
	}
	senders.Wait()
	receivers.Wait()
	return answers, sent
}

// tcpClosed returns how many queries are answered in a second if some of each client wait
// for their replies at any time.
func tcpClosed(at string, waiting int, duration time.Duration) float64 {
	answers, _ := tcpRun(at, func(l *tcpLoad) (sent float64) {
		for end := time.Now().Add(duration); time.Now().Before(end); {
			if free := waiting - int(int64(sent)-l.got.Load()); free > waiting/2 {
				if _, err := l.Write(slices.Repeat(l.query, free)); err != nil {
					return sent
				}
				sent += float64(free)
				continue
			}
			time.Sleep(200 * time.Microsecond)
		}
		return sent
	})
	all := 0.0
	for _, n := range answers {
		all += n
	}
	return all / duration.Seconds()
}

// tcpOpen sends rate queries in a second over all connections, without waiting for replies.
// While a connection accepts no more, its queries are lost: sent counts them, too.
func tcpOpen(at string, rate float64, duration time.Duration) (answers []float64, sent float64) {
	return tcpRun(at, func(l *tcpLoad) (sent float64) {
		const burst = 10 * time.Millisecond
		var left []byte // of a query that was written in part
		start := time.Now()
		for elapsed := time.Duration(0); elapsed < duration; elapsed = time.Since(start) {
			due := int(rate/tcpClients*elapsed.Seconds() - sent)
			sent += float64(due)
			data := slices.Concat(left, slices.Repeat(l.query, due))
			_ = l.SetWriteDeadline(time.Now().Add(burst))
			n, err := l.Write(data)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return sent
			}
			rest := data[n:]
			left = rest[:(len(rest))%len(l.query)]
			time.Sleep(burst)
		}
		return sent
	})
}
