package simulation

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// The ports of the status pages.
const (
	portHealth  = 8080
	portReady   = 8181
	portMetrics = 9153
	portAdmin   = 8053
)

// longestPage bounds the time of a page, whatever other readers do.
const longestPage = 2 * time.Second

// pages are the readers of the status pages.
type pages struct {
	world    *world
	turn     chan struct{}      // held by the reader that checks what it reads
	counters map[string]float64 // the last values
	before   int                // queries before the process of the server, which it does not count
	rude     []*conn            // of readers that do not read
}

func newPages(w *world) *pages {
	return &pages{world: w, turn: make(chan struct{}, 1), counters: map[string]float64{}}
}

// corefile returns the directives of the status pages. Each server block counts its queries.
func (p *pages) corefile(all bool) string {
	switch {
	case p == nil:
		return ""
	case all:
		return " prometheus\n health\n ready\n admin\n"
	}
	return " prometheus\n"
}

// step makes clients read pages, in good and in bad ways.
func (p *pages) step() {
	w := p.world
	bad := netip.AddrFrom4([4]byte{10, 252, byte(w.IntN(2)), 1})
	switch w.IntN(20) {
	case 0:
		w.cause("connections to a status page that send nothing")
		for range 50 {
			p.connectBadly(bad, "")
		}
	case 1:
		w.cause("half a request to a status page")
		p.connectBadly(bad, "GET /metrics HTTP/1.1\r\nHost: loc")
	case 2:
		w.cause("requests to a status page whose responses are not read")
		for range 2 {
			p.connectBadly(bad, strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 20))
		}
	case 3:
		w.cause("scrapers")
		for range 5 {
			go func() {
				for range 3 {
					_, _, _ = p.get(bad, portMetrics, "/metrics")
				}
			}()
		}
	case 4, 5, 6, 7:
		go p.check()
	}
}

// connectBadly opens a connection, and does not read it.
func (p *pages) connectBadly(from netip.Addr, request string) {
	c, err := p.world.server.connect(from, portMetrics)
	if err != nil {
		return // a restart
	}
	c.send([]byte(request), time.Millisecond, nil)
	p.rude = append(p.rude, c)
}

// begin is called when another process may serve the pages: its counters begin at zero.
func (p *pages) begin() {
	if p == nil {
		return
	}
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.before = p.world.asked
	clear(p.counters)
}

func (p *pages) close() {
	for _, c := range p.rude {
		_ = c.Close()
	}
}

// get reads a page.
func (p *pages) get(from netip.Addr, port uint16, path string) (status int, body string, err error) {
	c, err := p.world.server.connect(from, port)
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(longestPage))
	if _, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path); err != nil {
		return 0, "", err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, string(text), err
}

// check reads all pages, and compares them with the world.
func (p *pages) check() {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	from := netip.AddrFrom4([4]byte{10, 251, 0, 1})
	for _, page := range []struct {
		port  uint16
		path  string
		check func(before moment, status int, body string) error
	}{
		{portHealth, "/health", p.checkHealth}, {portReady, "/ready", p.checkReady},
		{portMetrics, "/metrics", p.checkMetrics}, {portAdmin, "/v1/status", p.checkStatus},
	} {
		before := p.now()
		status, body, err := p.get(from, page.port, page.path)
		if w := p.world; w.restarts.Load() != before.restarts || w.down.Load() || w.handOvers.running() || before.serving == nil {
			return // the server was restarted meanwhile, or two processes answer
		}
		if err == nil {
			err = page.check(before, status, body)
		}
		if err != nil {
			p.world.fail("%s, requested at %.6f: %v", page.path, before.at.Sub(p.world.started).Seconds(), err)
		}
	}
}

// A moment is what is known of the server when a page is requested.
type moment struct {
	at                time.Time
	restarts          int32
	serving           *settings
	answered          int
	loads             int
	certain, possible bool // that the server is ready
}

func (p *pages) now() moment {
	w := p.world
	w.mu.Lock()
	m := moment{at: time.Now(), restarts: w.restarts.Load(), serving: w.serving, answered: w.asked - w.waiting, loads: len(w.loads)}
	w.mu.Unlock()
	if m.serving == nil {
		return m
	}
	m.certain, m.possible = true, true
	version, _ := w.api.cluster.now()
	s := m.serving.source
	for r := range resources {
		k := s.knows(r, "", m.at, version)
		m.certain, m.possible = m.certain && k.listed, m.possible && k.maybe
	}
	return m
}

func (p *pages) checkHealth(_ moment, status int, body string) error {
	if status != http.StatusOK || body != "OK" {
		return fmt.Errorf("got status %d %q, want 200 OK", status, body)
	}
	return nil
}

func (p *pages) checkReady(before moment, status int, body string) error {
	after := p.now()
	switch {
	case after.loads != before.loads || after.serving != before.serving: // a reload
		return nil
	case before.certain && status != http.StatusOK, !after.possible && status == http.StatusOK:
		return fmt.Errorf("got status %d %q, the server has all lists: %v, or may have them: %v", status, body, before.certain, after.possible)
	}
	return nil
}

// checkMetrics checks that counters grow, that replies are counted, and that the data is not older than the world.
func (p *pages) checkMetrics(before moment, status int, body string) error {
	if status != http.StatusOK {
		return fmt.Errorf("got status %d", status)
	}
	kinds, requests := map[string]string{}, 0.0
	for line := range strings.Lines(body) {
		if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" {
			kinds[words[2]] = words[3]
			continue
		} else if strings.HasPrefix(line, "#") {
			continue
		}
		series, text, _ := strings.Cut(strings.Replace(strings.TrimSpace(line), "} ", "}\n", 1), "\n")
		if text == "" {
			series, text, _ = strings.Cut(series, " ")
		}
		name, _, _ := strings.Cut(series, "{")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
		if name == "coredns_dns_requests_total" {
			requests += value
		}
		if kinds[name] == "counter" {
			if last := p.counters[series]; value < last {
				return fmt.Errorf("counter %s fell from %v to %v", series, last, value)
			}
			p.counters[series] = value
		}
		if world := time.Since(p.world.started).Seconds(); name == "seamark_kubernetes_data_age_seconds" && (value < 0 || value > world) {
			return fmt.Errorf("%s is %v, want the age of the world at most, %v", series, value, world)
		}
	}
	if want := before.answered - p.before; requests < float64(want) {
		return fmt.Errorf("coredns_dns_requests_total is %v, want %d at least", requests, want)
	}
	return nil
}

func (p *pages) checkStatus(before moment, status int, body string) error {
	var got struct{ Ready bool }
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
		return fmt.Errorf("got status %d %q, %v", status, body, err)
	}
	after := p.now()
	if after.loads == before.loads && (before.certain && !got.Ready || !after.possible && got.Ready) {
		return fmt.Errorf("got ready %v, the server has all lists: %v, or may have them: %v", got.Ready, before.certain, after.possible)
	}
	return nil
}
