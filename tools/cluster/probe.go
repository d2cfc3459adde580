//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A probe's answers to its two commands are lines of JSON, so that its user reads them with one type.
type probed struct {
	At       time.Time     // when the first reply with an answer came; zero: it polls now
	P50, P99 time.Duration `json:",omitempty"`
	Lost     int           `json:",omitempty"`
	Error    string        `json:",omitempty"`
}

// probeTimeout is how long a probe polls for a name.
const probeTimeout = time.Minute

// runProbe is the program that measures from a pod. It reads commands from its standard input:
//
//	await NAME         polls until NAME has an answer
//	lookup NAME COUNT  looks NAME up one time after the other
func runProbe(_ context.Context, args []string) error {
	server := net.JoinHostPort(dnsService, "53")
	if len(args) == 1 {
		server = args[0]
	}
	out := json.NewEncoder(os.Stdout)

	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var err error
		switch words := strings.Fields(lines.Text()); {
		case len(words) == 2 && words[0] == "await":
			err = awaitName(server, words[1], out)
		case len(words) == 3 && words[0] == "lookup":
			var count int
			if count, err = strconv.Atoi(words[2]); err == nil && count > 0 {
				err = out.Encode(lookUpOften(server, words[1], count))
			}
		default:
			err = out.Encode(probed{Error: fmt.Sprintf("unknown command %q", lines.Text())})
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// awaitName says that it polls after the first reply, which must have no answer, and says when one has. A query
// follows the reply to the one before after two milliseconds.
func awaitName(server, name string, out *json.Encoder) error {
	deadline := time.Now().Add(probeTimeout)
	for polls := false; ; {
		_, answers, err := exchange(server, name, nil)
		now := time.Now()
		switch {
		case answers > 0 && !polls:
			return out.Encode(probed{Error: name + " has an answer already"})
		case answers > 0:
			return out.Encode(probed{At: now})
		case now.After(deadline):
			return out.Encode(probed{Error: fmt.Sprintf("no answer for %s within %v (%v)", name, probeTimeout, err)})
		case err == nil && !polls:
			polls = true
			if err := out.Encode(probed{}); err != nil {
				return err
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// lookUpOften looks a name up one time after the other, and returns how long that takes.
func lookUpOften(server, name string, count int) (p probed) {
	var took []time.Duration
	for range count {
		start := time.Now()
		rcode, err := query(server, name, nil)
		if err != nil || rcode != 0 {
			p.Lost++
			continue
		}
		took = append(took, time.Since(start))
	}
	p.P50, p.P99 = percentiles(took)
	return p
}

// percentiles returns the 50th and the 99th percentile, zeros without values.
func percentiles(all []time.Duration) (p50, p99 time.Duration) {
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return all[(len(all)-1)/2], all[(len(all)*99-1)/100]
}
