// Package archtest holds the project to its shape: who may import whom, what a
// package must say about itself and what it may not keep at package level. It
// has tests only; `go test` runs them with all the others, and nothing imports
// it.
//
// The import table is in table_test.go. To let a package import something new,
// change its row there, in the same commit, with the reason in the message:
// that line is what a reviewer looks at. The other rules have no exceptions to
// edit.
//
// What is checked is the source as it lies on disk: syntax for all files, types
// for those that belong to this machine's operating system. Only the standard
// library and our own packages are type-checked. Other modules are opaque, so
// that this test needs no build of client-go; a variable of a type from there
// is held to the rules by what our code does with it.
//
// Each rule is also run on small bad sources (bad_test.go), where it must fail.
package archtest
