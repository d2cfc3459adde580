// Package order sorts slices of structs for code that is not on an answering path.
//
// The functions of package slices are compiled once for each element type, and each struct
// type adds about 20 kB of machine code and tables to the binary. These functions share the
// code of package sort, at up to twice the time and with a few allocations. Code that sorts at
// each query or many elements uses package slices.
package order

import (
	"iter"
	"slices"
	"sort"
)

// Slice sorts s by compare, which is as for slices.SortFunc. The order of equal elements is
// undefined.
func Slice[E any](s []E, compare func(a, b E) int) {
	sort.Slice(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}

// SliceStable sorts s by compare and keeps the order of equal elements.
func SliceStable[E any](s []E, compare func(a, b E) int) {
	sort.SliceStable(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}

// Sorted collects the values of seq and sorts them as Slice does.
func Sorted[E any](seq iter.Seq[E], compare func(a, b E) int) []E {
	s := slices.Collect(seq)
	Slice(s, compare)
	return s
}
