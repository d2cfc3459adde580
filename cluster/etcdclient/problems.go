package etcdclient

// maxProblems bounds the lines that are logged before etcd is reachable again.
const maxProblems = 8

// Problems are the failures that have been logged since the last success. The first
// one is often a timeout, and a later one has the cause.
type Problems struct{ logged map[string]struct{} }

// Add adds a failure, and reports whether to log it because it is new.
func (p *Problems) Add(err error) bool {
	text := err.Error()
	if _, ok := p.logged[text]; ok || len(p.logged) >= maxProblems {
		return false
	}
	if p.logged == nil {
		p.logged = map[string]struct{}{}
	}
	p.logged[text] = struct{}{}
	return true
}

// Clear removes all failures, and reports whether there were any.
func (p *Problems) Clear() bool {
	failed := len(p.logged) > 0
	clear(p.logged)
	return failed
}
