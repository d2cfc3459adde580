//go:build !unix

package watch

// NoFollow is zero: the system has no such flag.
const NoFollow = 0
