package file

import "github.com/seamark/seamark/dns"

// Metadata returns the value of zone/wildcard.
func (f *File) Metadata(q *dns.Query, key string) (value string, ok bool) {
	if s := f.find(q); s != nil {
		return s.zone().Metadata(q.Name(), key)
	}
	return "", false
}

// Metadata is that of the files.
func (a *Auto) Metadata(q *dns.Query, key string) (value string, ok bool) {
	return a.dir.files.Load().Metadata(q, key)
}
