package memory

import (
	"math"
	"sync"
)

// A Claim is what one thing of a consumer has reserved. A nil Claim reserves nothing. Its methods
// are safe for concurrent use.
type Claim struct {
	budget *Budget
	of     Consumer

	mu     sync.Mutex
	bytes  int64
	credit int64  // of bytes, as many are reserved by the claim that this one succeeds
	heir   *Claim // that succeeds this one; nil if there is none
}

// Claim returns a claim of a consumer that has reserved nothing.
func (b *Budget) Claim(of Consumer) *Claim { return &Claim{budget: b, of: of} }

// claimStep is the least by which a claim grows: not each record asks for more.
const claimStep = 64 << 10

// Grow makes the claim at least as large as bytes.
func (c *Claim) Grow(bytes int64) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes <= c.bytes {
		return nil
	}
	more := max(bytes-c.bytes, claimStep)
	err := c.budget.Reserve(c.of, c.reserved(c.bytes+more)-c.reserved(c.bytes))
	if err == nil {
		c.bytes += more
	}
	return err
}

// reserved returns as how many bytes of the budget a number of bytes counts.
func (c *Claim) reserved(bytes int64) int64 { return max(0, bytes-c.credit) }

// Set makes the claim as large as what is in use already, whatever the limits are.
func (c *Claim) Set(bytes int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget.Force(c.of, c.reserved(bytes)-c.reserved(c.bytes))
	c.bytes = bytes
}

// Bytes returns how large the claim is.
func (c *Claim) Bytes() int64 {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Half returns half of the bytes that the claim could have at present, so that a claim of that size leaves as many
// free. A nil Claim has no limit.
func (c *Claim) Half() int64 {
	if c == nil {
		return math.MaxInt64
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes/2 + c.budget.Free(c.of)/2
}

// Succeed has the claim, which is empty, begin to replace another one, which will be released soon: the
// bytes that the other one has count for both until then. One claim at a time can succeed another: if one
// does already, Succeed returns false.
func (c *Claim) Succeed(old *Claim) bool {
	if c == nil || old == nil {
		return false
	}
	old.mu.Lock()
	defer old.mu.Unlock()
	if old.heir != nil && old.heir.hasCredit() {
		return false
	}
	old.heir = c
	c.mu.Lock()
	c.credit = old.bytes
	c.mu.Unlock()
	return true
}

func (c *Claim) hasCredit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.credit > 0
}

// pay reserves what the claim has on credit.
func (c *Claim) pay() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget.Force(c.of, c.bytes-c.reserved(c.bytes))
	c.credit = 0
}

// Release ends the use of all bytes. It may be called again.
func (c *Claim) Release() {
	if c == nil {
		return
	}
	c.Set(0)
	c.mu.Lock()
	heir := c.heir
	c.credit, c.heir = 0, nil
	c.mu.Unlock()
	heir.pay()
}
