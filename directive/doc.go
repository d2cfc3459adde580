// Package directive implements the directives that fit in one file each. The reference page
// of a directive is docs/reference/directives/NAME.md: syntax, options with defaults, example
// Corefiles (a test runs them) and the differences from CoreDNS. Package builtin lists the
// Setup functions and is their only caller. The handlers do not depend on each other or on
// package server, and none of them blocks a reader.
//
// A directive has the file NAME.go, and some have NAME_*.go. Other files have what several
// directives share.
package directive
