//go:build !linux

package filepages

// Pages are empty: the package needs Linux.
type Pages []struct{}

// Find returns no pages.
func Find() Pages { return nil }

// Release does nothing.
func (Pages) Release() {}
