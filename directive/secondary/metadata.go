package secondary

import "github.com/seamark/seamark/dns"

// Metadata returns the value of zone/wildcard.
func (s *Secondary) Metadata(q *dns.Query, key string) (value string, ok bool) {
	at, c := s.find(q, s.set())
	if at == nil {
		return "", false
	}
	if z := c.current.Load(); z != nil {
		return z.Metadata(q.Name(), key)
	}
	return "", false
}
