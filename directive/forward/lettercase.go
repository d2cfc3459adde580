package forward

import (
	"bytes"
	"crypto/rand"
	"sync"
	"time"

	"github.com/seamark/seamark/wire"
)

const (
	// caseEchoes is the number of replies in the letter case of the query after which
	// an upstream is known to preserve it.
	caseEchoes = 8
	// maxWrongCase is the number of replies in another letter case after which an upstream
	// is considered to preserve it no more.
	maxWrongCase = 3
	// plainCaseFor is how long queries are sent in the clients' letter case to an upstream
	// that does not preserve it.
	plainCaseFor = 10 * time.Minute
)

// A caseMemory knows whether an upstream preserves the letter case of queries. If it
// does, a forged reply has to repeat the random case of the query.
type caseMemory struct {
	mu         sync.Mutex
	echoes     int // replies in the case of a query with an upper-case letter, up to caseEchoes
	wrong      int // replies in another case, without those that as many replies in the right one outweigh
	plainUntil time.Time
}

// randomizes reports whether queries are sent in random letter case, and whether the upstream is
// known to repeat it.
func (m *caseMemory) randomizes() (random, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !time.Now().Before(m.plainUntil), m.echoes >= caseEchoes
}

// inRandomCase returns the question with a name in random letter case.
func inRandomCase(question []byte) []byte {
	spelled := bytes.Clone(question)
	name := spelled[:len(spelled)-4]
	var random [wire.MaxName/8 + 1]byte
	_, _ = rand.Read(random[:len(name)/8+1]) // never returns an error

	for i, c := range name {
		if c |= 'a' - 'A'; 'a' <= c && c <= 'z' && random[i/8]>>(i%8)&1 == 1 {
			name[i] ^= 'a' - 'A'
		}
	}
	return spelled
}

// accepts reports whether a reply to an attempt in random letter case is used. exact reports
// whether the reply has the same letter case.
func (m *caseMemory) accepts(a *attempt, exact bool) bool {
	spelled := a.randomCase
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case exact:
		// Without an upper-case letter the reply shows nothing.
		if bytes.ContainsAny(spelled[:len(spelled)-4], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
			m.echoes = min(m.echoes+1, caseEchoes)
			m.wrong = max(m.wrong-1, 0) // a forger must not switch the protection off in the course of days
		}
		return true

	case !a.exactCase:
		m.echoes, m.plainUntil = 0, time.Now().Add(plainCaseFor)
		return true
	}

	// A forger's packets for one query count once, and never are the answer to it.
	if a.sawInvalid {
		return false
	}
	if m.wrong++; m.wrong >= maxWrongCase {
		m.echoes, m.wrong, m.plainUntil = 0, 0, time.Now().Add(plainCaseFor)
	}
	return false
}

// restoreCase restores the client's letter case in a reply to a query with the spelled
// question: in the question section, which compressed names point into, and where the
// upstream made a name, such as the target of an SRV record, of the name of the query. It
// reports whether the reply's question had the case of the query. It leaves a reply with
// another name as it is.
func restoreCase(packet, spelled, question []byte) (exact bool) {
	spelled, name := spelled[:len(spelled)-4], question[:len(question)-4]
	if len(packet) < wire.HeaderLen+len(name) {
		return false
	}

	received := packet[wire.HeaderLen:][:len(name)]
	exact = bytes.Equal(received, spelled)
	if !exact && !wire.SameName(received, name) {
		return false
	}
	copy(received, name)
	if bytes.Equal(spelled, name) {
		return exact
	}

	// The upstream may have appended the name of the query, or the end of it, to other labels.
	records := packet[wire.HeaderLen+len(name):]
	for i := 0; name[i] != 0; i += int(name[i]) + 1 {
		replaceAll(records, spelled[i:], name[i:])
	}
	return exact
}

// questionFault returns the fault of a packet that does not echo the question in a response: wrongCase
// if it does in another letter case, and malformed if it has the question, but is no response to a
// standard query. The packet is not used any more.
func questionFault(packet, question []byte) fault {
	if hasQuestion(packet) {
		restoreCase(packet, question, question)
	}
	switch {
	case echoesQuestion(packet, question):
		return wrongCase
	case !isResponse(packet) && bytes.HasPrefix(packet[wire.HeaderLen:], question):
		return malformed
	}
	return wrongQuestion
}

// replaceAll replaces each from in buf by to, which is as long.
func replaceAll(buf, from, to []byte) {
	for {
		i := bytes.Index(buf, from)
		if i < 0 {
			return
		}
		copy(buf[i:], to)
		buf = buf[i+len(to):]
	}
}
