// Package directive holds the directives that fit on three screens, one per file.
// The doc comment of a directive's type is its reference page: syntax, options
// with defaults, Corefiles (a test runs them) and what differs from CoreDNS.
// Package builtin lists the Setup functions; nothing else calls them. Handlers
// here know neither each other nor the server, and none of them blocks a
// reader.
package directive
