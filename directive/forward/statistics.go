package forward

// Sent calls yield for each current upstream, in the order of the Corefile, with the
// number of queries sent to it since the process started, including retries, and the
// number of unanswered ones. Health checks are not included. If several forwards use an
// upstream, its numbers are the sums of all of them.
func (f *Forward) Sent(yield func(upstream string, queries, unanswered uint64)) {
	for _, u := range f.set.current.Load().all {
		yield(u.String(), u.metrics.requests.Value(), u.metrics.failed.Value())
	}
}
