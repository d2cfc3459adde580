//go:build !linux

package sandbox

import "errors"

// Restrict fails.
func Restrict() error { return errors.ErrUnsupported }

// Current returns no privileges.
func Current() Privileges { return Privileges{} }
