package forward

// Sent calls yield for each upstream that there is now, in the order of the
// Corefile: how many questions were sent to it, retries among them, and how many
// of these it did not answer. Health checks do not count. The numbers are of the
// process: forwards that have an upstream in common give it the same ones.
func (f *Forward) Sent(yield func(upstream string, questions, unanswered uint64)) {
	for _, u := range f.set.roster.Load().all {
		yield(u.String(), u.counted.requests.Value(), u.counted.failed.Value())
	}
}
