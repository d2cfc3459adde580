//go:build !linux

package nftables

// A Kernel is available on Linux only.
type Kernel struct{}

// Open fails.
func Open(func()) (*Kernel, error) { return nil, NoNftables }

// Close does nothing.
func (*Kernel) Close() {}

// Inspect fails.
func (*Kernel) Inspect(Set) (Key, Problem) { return NoKey, NoNftables }

// Add fails.
func (*Kernel) Add(elements []Element) []Result {
	result := make([]Result, len(elements))
	for i := range result {
		result[i].Problem = NoNftables
	}
	return result
}

// Changes returns 0.
func (*Kernel) Changes() uint64 { return 0 }
