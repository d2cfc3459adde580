// Package archtest tests the architecture of the project: which package may
// import which, what a package comment must contain, and which variables are not
// allowed at package level. It contains tests only.
//
// The floors of the house are in floors_test.go: imports run downwards. To allow a package
// another module, change the module's row in the same commit and put the reason into the
// commit message. The other rules have no exceptions.
//
// The rules check the source files: the syntax of all files, and the types of
// those built on this operating system. Only the standard library and packages of
// this module are type-checked. Other modules are opaque, so that the test does
// not build client-go; for a variable whose type is from another module, the
// rules check only our own uses of it.
//
// bad_test.go runs each rule on small invalid sources, where it must report an
// error.
package archtest
