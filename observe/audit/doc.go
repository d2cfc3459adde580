// Package audit records what groups of the directive policy would deny while they only audit, and writes
// from it groups that allow it. The directive records, admin serves the record, and the command policy
// writes the groups. A record is bounded, and counts what it has no room for.
package audit
