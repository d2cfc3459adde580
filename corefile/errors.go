package corefile

import (
	"cmp"
	"errors"
	"slices"

	"github.com/seamark/seamark/sys/order"
)

// All returns the errors that err joins, at any depth: err itself if it joins none,
// nothing if err is nil.
func All(err error) []error { return flatten(nil, []error{err}) }

// Sorted joins every error inside errs, in the order of files and lines. Errors
// without a position come last. Of errors with one text it keeps the first.
func Sorted(errs ...error) error {
	flat := flatten(nil, errs)
	order.SliceStable(flat, func(a, b error) int {
		x, y := position(a), position(b)
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line))
	})
	flat = slices.CompactFunc(flat, func(a, b error) bool { return a.Error() == b.Error() })
	return errors.Join(flat...)
}

func flatten(flat, errs []error) []error {
	for _, err := range errs {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			flat = flatten(flat, joined.Unwrap())
		} else if err != nil {
			flat = append(flat, err)
		}
	}
	return flat
}

func position(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{File: "\xff"}
}
