//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/miekg/dns"
)

// runDnsperf sends the load with dnsperf, as a check of our own generator. It
// reports response codes only; the records are not validated.
func (l load) runDnsperf(ctx context.Context) (*tally, error) {
	f, err := os.CreateTemp("", "seamark-bench-*.dnsperf")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()

	edns, rcodes, err := writeDnsperf(f, l.lookups)
	if err != nil {
		return nil, err
	}

	args := []string{"-s", l.to.Addr().String(), "-p", fmt.Sprint(l.to.Port()), "-d", f.Name(), "-T", "1",
		"-c", fmt.Sprint(l.sockets), "-q", fmt.Sprint(l.window), "-t", fmt.Sprint(patience.Seconds()),
		"-l", fmt.Sprint(math.Ceil(l.time.Seconds()))} // dnsperf accepts whole seconds

	if edns {
		args = append(args, "-e")
	}
	if l.rate > 0 {
		args = append(args, "-Q", fmt.Sprintf("%.0f", l.rate))
	}

	text, err := exec.CommandContext(ctx, "dnsperf", args...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("dnsperf: %w: %s", err, bytes.TrimSpace(text))
	}
	return parseDnsperf(text, rcodes)
}

// writeDnsperf writes the queries in dnsperf's format and returns the response
// codes that are right.
func writeDnsperf(w io.Writer, lookups []*lookup) (edns bool, rcodes map[string]bool, err error) {
	rcodes = map[string]bool{}
	var text bytes.Buffer
	for _, q := range lookups {
		m := new(dns.Msg)
		if err := m.Unpack(q.packet); err != nil {
			return false, nil, err
		}
		fmt.Fprintf(&text, "%s %s\n", m.Question[0].Name, dns.TypeToString[m.Question[0].Qtype])
		edns = edns || m.IsEdns0() != nil
		rcodes[dns.RcodeToString[q.rcode]] = true
	}
	_, err = w.Write(text.Bytes())
	return edns, rcodes, err
}

// parseDnsperf reads dnsperf's statistics.
func parseDnsperf(text []byte, rcodes map[string]bool) (*tally, error) {
	field := func(name string) (float64, error) {
		m := regexp.MustCompile(`(?m)^ *` + name + ` +([0-9.]+)`).FindSubmatch(text)
		if m == nil {
			return 0, fmt.Errorf("dnsperf reports no %s", name)
		}
		return strconv.ParseFloat(string(m[1]), 64)
	}

	var failed error
	get := func(name string) float64 {
		v, err := field(name)
		failed = errors.Join(failed, err)
		return v
	}

	t := &tally{sent: int(get("Queries sent:")), answered: int(get("Queries completed:")),
		lost: int(get("Queries lost:"))}
	t.elapsed = time.Duration(get(`Run time \(s\):`) * float64(time.Second))
	t.bytes = int(get("Average packet size: +request [0-9]+, response") * float64(t.answered))
	for _, m := range regexp.MustCompile(`([A-Z]+) ([0-9]+) \([0-9.]+%\)`).FindAllSubmatch(text, -1) {
		if n, err := strconv.Atoi(string(m[2])); err == nil && !rcodes[string(m[1])] {
			t.wrong += n
			t.example = "rcode " + string(m[1])
		}
	}
	return t, failed
}
