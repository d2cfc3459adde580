package forward

// Sent calls yield for each current upstream, in the order of the Corefile, with
// the number of queries sent to it, including retries, and of those it did not
// answer. Health checks do not count. Forwards that share an upstream share its
// numbers, which are those of the process.
func (f *Forward) Sent(yield func(upstream string, questions, unanswered uint64)) {
	for _, u := range f.set.current.Load().all {
		yield(u.String(), u.metrics.requests.Value(), u.metrics.failed.Value())
	}
}
