package memory

import "sync"

// A Claim is what one thing of a consumer has reserved. A nil Claim reserves nothing. Its methods
// are safe for concurrent use.
type Claim struct {
	budget *Budget
	of     Consumer

	mu    sync.Mutex
	bytes int64
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
	err := c.budget.Reserve(c.of, more)
	if err == nil {
		c.bytes += more
	}
	return err
}

// Set makes the claim as large as what is in use already, whatever the limits are.
func (c *Claim) Set(bytes int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget.Force(c.of, bytes-c.bytes)
	c.bytes = bytes
}

// Release ends the use of all bytes. It may be called again.
func (c *Claim) Release() { c.Set(0) }
