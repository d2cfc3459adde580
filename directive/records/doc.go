// Package records answers from records that stand in the Corefile itself: the
// directive records. setup.go reads them, table.go finds them by name,
// records.go answers. Their text is read by package zonefile, which knows every
// type.
//
// Package builtin lists its Setup. It opens nothing and never changes: other
// records are another plan.
package records
