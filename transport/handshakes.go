package transport

import (
	"context"
	"crypto"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seamark/seamark/sys/slots"
)

const (
	// handshakeWait bounds how long a handshake waits for its turn.
	handshakeWait = 5 * time.Second
	// maxHandshakes bounds the handshakes of a client that wait, over all transports together. An
	// address that connects anew after a restart has fewer.
	maxHandshakes = 64
)

// LimitHandshakes returns a GetConfigForClient that returns config's result once the client has
// a slot of a pool. A handshake takes up to a millisecond of a processor, of which most is the
// signature: without turns, a few clients that do nothing else would delay all queries.
//
// A connection over TCP has its slot until the server has sent its part of the handshake. Over
// QUIC, where the library has the connection, and after a HelloRetryRequest (RFC 8446 §4.1.4)
// only the signature has one. A connection that is closed meanwhile does not wait any longer,
// and nothing is signed for it. Over QUIC the library cannot close one that waits, so it waits
// until the time for the handshake is over, or Sessions ends it.
func LimitHandshakes(
	pool *slots.Pool, config func() *tls.Config,
) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		s := slotSigner{ctx: hello.Context(), pool: pool, client: AddrPort(hello.Conn.RemoteAddr()).Addr()}
		if h, ok := hello.Conn.(handshaker); ok {
			if s.slot = h.handshakeSlot(); s.slot != nil {
				if err := s.acquire(); err != nil {
					return nil, err
				}
				s.slot.hold(pool, s.client)
			}
		} else {
			s.slot, _ = hello.Context().Value(handshakeKey{}).(*handshakeSlot)
		}

		c := config().Clone()
		c.Certificates = slices.Clone(c.Certificates)
		for i, pair := range c.Certificates {
			if key, ok := pair.PrivateKey.(crypto.Signer); ok {
				signer := s
				signer.Signer = key
				c.Certificates[i].PrivateKey = &signer
			}
		}
		return c, nil
	}
}

// A handshaker is a connection that releases its slot when it is read or written. The slot may
// be nil.
type handshaker interface{ handshakeSlot() *handshakeSlot }

// A handshakeContext is the context of a connection over QUIC, whose slot is not held. The library
// passes its value, and nothing else of the connection, to the callbacks of TLS.
type handshakeContext struct {
	context.Context
	slot *handshakeSlot
}

type handshakeKey struct{}

func (c handshakeContext) Value(key any) any {
	if key == (handshakeKey{}) {
		return c.slot
	}
	return c.Context.Value(key)
}

// A handshakeSlot is the slot of a connection's handshake.
type handshakeSlot struct {
	pool     *slots.Pool
	client   netip.Addr
	held     atomic.Bool
	deadline time.Time // over QUIC
	shared   bool      // of Sessions: it counts for the client
	// forgotten is set by Sessions once the connection does not count for the client any more.
	forgotten bool

	mu     sync.Mutex
	ended  bool
	cancel context.CancelFunc // of the wait for the slot; nil if it does not wait
}

// wait records how a wait is ended; nil is its end. It returns false if the connection is closed.
func (s *handshakeSlot) wait(cancel context.CancelFunc) (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	return !s.ended
}

// end ends the handshake of a connection that is closed. It keeps the slot, since a signature may
// have begun: what the handshake does next releases it.
func (s *handshakeSlot) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.cancel != nil {
		s.cancel()
	}
}

// isWaiting reports whether it waits for its turn, so that end ends it at once.
func (s *handshakeSlot) isWaiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cancel != nil && !s.ended
}

func (s *handshakeSlot) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func (s *handshakeSlot) hold(pool *slots.Pool, client netip.Addr) {
	s.pool, s.client = pool, client
	s.held.Store(true)
}

// release releases the slot if it is held. It may be called at any time.
func (s *handshakeSlot) release() {
	if s.held.Load() && s.held.Swap(false) {
		s.pool.Release(s.client)
	}
}

// A slotSigner is a private key that signs once its client has a slot.
type slotSigner struct {
	crypto.Signer
	ctx    context.Context
	pool   *slots.Pool
	client netip.Addr
	slot   *handshakeSlot // of the connection; may be nil
}

func (s *slotSigner) acquire() error {
	if s.slot != nil && !s.slot.deadline.IsZero() && s.pool.TryAcquire(s.client) {
		return nil // also after the deadline, which is for those that wait
	}
	deadline := time.Now().Add(handshakeWait)
	if s.slot != nil && !s.slot.deadline.IsZero() && s.slot.deadline.Before(deadline) {
		deadline = s.slot.deadline
	}
	ctx, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	if s.slot != nil {
		if !s.slot.wait(cancel) {
			return net.ErrClosed
		}
		defer s.slot.wait(nil)
	}

	err := s.pool.AcquireWithin(ctx, s.client, maxHandshakes)
	if err == nil && ctx.Err() != nil { // the turn came at the same time
		s.pool.Release(s.client)
		return ctx.Err()
	}
	return err
}

func (s *slotSigner) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	switch {
	case s.slot != nil && s.slot.hasEnded():
		return nil, net.ErrClosed
	case s.slot == nil || !s.slot.held.Load():
		if err := s.acquire(); err != nil {
			return nil, err
		}
		defer s.pool.Release(s.client)
	}
	return s.Signer.Sign(rand, digest, opts)
}
