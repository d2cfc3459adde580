// Package records implements the records directive: answers from records in the
// Corefile itself.
//
// Setup (setup.go) parses the records with package zonefile, which knows every
// type, and adds them to a table (names.go). Handler (records.go) finds the query
// name in the table and writes the answer. Package objects watches objects with records, which
// content.go reads.
package records
