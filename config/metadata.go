package config

import (
	"slices"

	"github.com/seamark/seamark/dns"
)

// A Describer is a handler with metadata about queries, under keys such as
// "kubernetes/namespace". Metadata must not block.
type Describer interface {
	Metadata(q *dns.Query, key string) (value string, ok bool)
}

// A scope selects the queries that have metadata. The directive metadata offers
// one.
type scope interface{ HasMetadata(name []byte) bool }

// UsesMetadata reports whether any query of the block has metadata. Call it in
// OnPlanned or later.
func (b *Block) UsesMetadata() bool { return len(Find[scope](b)) > 0 }

// Metadata returns a function that returns the value of a metadata key for a
// query. The value is "" if no handler knows the key, or if the directive
// metadata does not cover the query's name. Call it in OnPlanned or later.
func (b *Block) Metadata(key string) func(q *dns.Query) string {
	read := b.AnyMetadata()
	return func(q *dns.Query) string { return read(q, key) }
}

// AnyMetadata is like Metadata for a key that is known only with the query.
func (b *Block) AnyMetadata() func(q *dns.Query, key string) string {
	from, scopes := Find[Describer](b), Find[scope](b)
	return func(q *dns.Query, key string) string {
		if !slices.ContainsFunc(scopes, func(s scope) bool { return s.HasMetadata(q.Name()) }) {
			return ""
		}
		for _, d := range from {
			if value, ok := d.Metadata(q, key); ok {
				return value
			}
		}
		return ""
	}
}
