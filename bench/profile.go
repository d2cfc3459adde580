//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"
)

// profile writes a CPU profile of our server under every kind of load: the input
// of profile-guided builds (default.pgo).
func (b *bench) profile(ctx context.Context, file string) error {
	defer b.stopServers()
	p := b.stock(b.source(), 1)
	p.values["pprof"] = true
	s, err := b.start(ctx, p, b.pop.last())
	if err != nil {
		return err
	}

	var loads []load
	for _, kind := range []string{"A", "nxdomain", "nodata", "headless3", "headless60", "endpoint", "srv", "ptr",
		"mix", "cached"} {
		loads = append(loads, b.load(s, comparison{workload: kind}))
	}
	loads = append(loads,
		b.load(s, comparison{workload: "A", transport: overTCP, sockets: 16, window: 16 * 6}),
		b.load(s, comparison{workload: "A", transport: perTCP, sockets: 8}))

	seconds := 1 + int(b.time.Seconds()*float64(len(loads)))
	b.say("profiling %d loads for %d s", len(loads), seconds)
	got := make(chan error, 1)
	go func() {
		text, err := get(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.at["pprof"], seconds))
		if err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
		got <- err
	}()

	for _, l := range loads {
		if _, err := l.run(ctx); err != nil {
			return err
		}
	}
	return <-got
}

// get returns the response for url.
func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", url, resp.Status, text)
	}
	return text, err
}

// metric returns the sum of the series that a pattern of names and labels matches, from the server's page of metrics.
func (s *server) metric(ctx context.Context, pattern string) (sum float64, err error) {
	text, err := get(ctx, "http://"+s.at["metrics"].String()+"/metrics")
	if err != nil {
		return 0, err
	}
	series := regexp.MustCompile(`(?m)^`+pattern+` (\S+)$`).FindAllSubmatch(text, -1)
	if series == nil {
		return 0, fmt.Errorf("%s has no metric %s", s.name, pattern)
	}
	for _, m := range series {
		value, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return 0, fmt.Errorf("/metrics: %w", err)
		}
		sum += value
	}
	return sum, nil
}

// awaitMetric waits until a metric has at least a value.
func (s *server) awaitMetric(ctx context.Context, pattern string, want float64) error {
	for until := clock() + loading; ; {
		got, err := s.metric(ctx, pattern)
		if err != nil || got >= want {
			return err
		}
		if clock() > until {
			return fmt.Errorf("%s: %s is %v, want %v", s.name, pattern, got, want)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
