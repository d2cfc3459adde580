package diff

// documented returns the reason for an intended difference between CoreDNS and Seamark, as
// in docs/reference/differences.md; "" if the difference is not intended.
func documented(q question, want, got answer, cause string) string {
	if cause == "" {
		return ""
	}
	for _, d := range differences() {
		if d.applies(q, want, got, cause) {
			return d.reason
		}
	}
	return ""
}

// An intended is a row of docs/reference/differences.md.
type intended struct {
	row     string // how the row begins
	reason  string
	applies func(q question, want, got answer, cause string) bool
}

func differences() []intended {
	return nil
}
