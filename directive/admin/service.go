package admin

import (
	"context"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/observe/judge"
	"github.com/seamark/seamark/observe/status"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/observe/web"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/sys/slots"
	"github.com/seamark/seamark/wire"
)

// The limits of concurrent requests: of all, of tails, of explanations, of pages of records,
// and of lists of records or cached answers, which may be long and have slow readers. One client
// may have half of each, so that it keeps no other from an answer.
const (
	maxRequests     = 64
	maxTails        = 16
	maxExplanations = 2
	maxLists        = 2
	maxDownloads    = 4
)

// openapi describes the API in OpenAPI 3.1.
//
//go:embed openapi.json
var openapi []byte

// explainTimeout is how long an explanation may take.
const explainTimeout = 15 * time.Second

// A service serves the pages of all blocks of one plan that share an address.
type service struct {
	options   options
	recorder  *traffic.Recorder
	judge     *judge.Judge
	metrics   *metrics.Registry
	log       *slog.Logger
	blocks    []*Admin
	pages     *http.ServeMux
	templates *template.Template
	started   time.Time
	api       connection
	reviewer  *reviewer  // nil without token_review
	pods      *podFinder // nil without pods

	requests, tails, explanations, lists, downloads *slots.Pool
	turns                                           *status.Turns // of what takes long to make
	states                                          states
	identity                                        Identity

	ended context.Context // canceled when the plan is not served any more
	end   context.CancelFunc
}

// Stop implements config.Stopper. It ends the requests that are being served, which keep the
// data of the plan in memory, and does not wait for them.
func (s *service) Stop() {
	s.end()
	s.api.close()
}

func newService(
	o options, r *traffic.Recorder, j *judge.Judge, m *metrics.Registry, log *slog.Logger,
) *service {
	s := &service{
		options: o, recorder: r, judge: j, metrics: m, log: log, pages: http.NewServeMux(), started: time.Now(),
		requests: slots.New(maxRequests, maxRequests/2), tails: slots.New(maxTails, maxTails/2),
		explanations: slots.New(maxExplanations, maxExplanations/2),
		lists:        slots.New(maxLists, maxLists/2), downloads: slots.New(maxDownloads, maxDownloads/2),
		turns: status.NewTurns(), states: newStates(), identity: identify(m),
	}
	s.ended, s.end = context.WithCancel(context.Background())
	if o.review {
		s.reviewer = newReviewer(&s.api, o.audience, log)
	}
	if o.pods {
		s.pods = &podFinder{knownPods: newKnownPods(), api: &s.api, log: log}
	}

	s.pages.HandleFunc("GET /v1/status", s.status)
	s.pages.HandleFunc("GET /v1/explain", s.explain)
	s.pages.HandleFunc("GET /v1/records", s.limited(s.downloads, maxDownloads, s.listRecords))
	s.pages.HandleFunc("GET /v1/cache", s.limited(s.downloads, maxDownloads, s.listCache))
	s.pages.HandleFunc("POST /v1/cache/flush", s.flush)
	s.pages.HandleFunc("GET /v1/top", s.top)
	s.pages.HandleFunc("GET /v1/tail", s.limited(s.tails, maxTails, s.tail))
	s.pages.HandleFunc("GET /v1/history", s.history)
	s.pages.HandleFunc("GET /v1/audits", s.audits)
	s.pages.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openapi)
	})
	s.addPages()
	return s
}

// ServeHTTP checks the origin, the host and the token of a request and serves it.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
		"img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Referrer-Policy", "no-referrer")

	if !s.servesHost(r.Host) {
		fail(w, http.StatusForbidden,
			fmt.Errorf("host %q is not served: use an IP address or localhost, or add the option host", r.Host))
		return
	}
	// Pages of other sites cannot read a reply, but make the browser send requests, with the token.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
		fail(w, http.StatusForbidden,
			errors.New("a request from a page of another site: open the page's address itself"))
		return
	}
	// Counted before the token is checked, which may take a request to the API server.
	client := web.Client(r)
	if !s.requests.TryAcquire(client) {
		fail(w, http.StatusServiceUnavailable, fmt.Errorf(
			"%d requests of the client, or %d in all, are being served: try again", maxRequests/2, maxRequests))
		return
	}
	defer s.requests.Release(client)

	if code, err := s.authorize(r, client); code != http.StatusOK {
		if code == http.StatusUnauthorized {
			h.Set("WWW-Authenticate", `Basic realm="seamark", charset="UTF-8"`)
		}
		fail(w, code, err)
		return
	}

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ended, cancel)()
	s.find(r).ServeHTTP(w, r.WithContext(ctx))
}

// limited returns a page of which at most a number are served at a time, the slots of a pool.
func (s *service) limited(pool *slots.Pool, most int, page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		client := web.Client(r)
		if !pool.TryAcquire(client) {
			fail(w, http.StatusServiceUnavailable, fmt.Errorf(
				"%d requests of the client for %s, or %d in all, are being served: try again, or end one of them",
				most/2, r.URL.Path, most))
			return
		}
		defer pool.Release(client)
		page(w, r)
	}
}

// servesHost reports whether requests for a host are served.
func (s *service) servesHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))

	own, _, _ := net.SplitHostPort(s.options.addr)
	_, err := netip.ParseAddr(name)
	return err == nil || name == "localhost" || name != "" && name == strings.ToLower(own) ||
		slices.Contains(strings.Fields(s.options.hosts), name)
}

var errNoToken = errors.New("a token is needed: as Authorization: Bearer TOKEN, or as the password")

// authorize returns http.StatusOK if a request may be served.
func (s *service) authorize(r *http.Request, client netip.Addr) (code int, err error) {
	if s.options.token == "" && s.reviewer == nil {
		return http.StatusOK, nil
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		_, got, _ = r.BasicAuth()
	}

	if s.reviewer != nil {
		verb := "get"
		if r.Method == http.MethodPost {
			verb = "post"
		}
		return s.reviewer.check(r.Context(), client, got, verb)
	}

	want, err := readToken(s.options.token)
	if err != nil {
		s.log.Error("admin: Refused a request", "client", r.RemoteAddr, "error", err)
	}
	if err != nil || subtle.ConstantTimeCompare([]byte(got), []byte(want)) != 1 {
		return http.StatusUnauthorized, errNoToken
	}
	return http.StatusOK, nil
}

// fail writes an error as JSON.
func fail(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}

// write writes a value as JSON.
func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // fails only if the client disconnects
}

// number returns the parameter of a request, which is 1 to most, or a default.
func number(r *http.Request, name string, standard, most int) (int, error) {
	text := r.FormValue(name)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s: want a number of 1..%d, got %q", name, most, text)
	}
	return n, nil
}

func (s *service) explain(w http.ResponseWriter, r *http.Request) {
	result, code, err := s.explanation(r)
	if err != nil {
		fail(w, code, err)
		return
	}
	write(w, result)
}

// explanation returns the explanation that a request asks for, or the status of an error.
func (s *service) explanation(r *http.Request) (result explain.Result, code int, err error) {
	q := explain.Query{Name: r.FormValue("name"), Type: r.FormValue("type"), Server: r.FormValue("server")}
	if q.Name == "" {
		return result, http.StatusBadRequest, errors.New("name: want the name to explain")
	}
	if client := r.FormValue("client"); client != "" {
		if q.Client, err = netip.ParseAddr(client); err != nil {
			return result, http.StatusBadRequest, fmt.Errorf("client: want an IP address, got %q", client)
		}
	}

	from := web.Client(r)
	if !s.explanations.TryAcquire(from) {
		return result, http.StatusServiceUnavailable, fmt.Errorf(
			"an explanation for the client, or %d in all, are running: try again", maxExplanations)
	}
	defer s.explanations.Release(from)

	ctx, cancel := context.WithTimeout(r.Context(), explainTimeout)
	defer cancel()
	result, err = explain.Explain(ctx, s.ports(), q)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return result, http.StatusGatewayTimeout, err
	case err != nil:
		return result, http.StatusBadRequest, err
	}
	return result, http.StatusOK, nil
}

func (s *service) ports() []config.Port { return *s.blocks[0].ports.Load() }

func (s *service) top(w http.ResponseWriter, r *http.Request) {
	by := r.FormValue("by")
	i := slices.Index(traffic.ListNames[:], by)
	if i < 0 {
		fail(w, http.StatusBadRequest, unknownList(by))
		return
	}

	n, err := number(r, "limit", 20, 500)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	top, _ := s.topList(r.Context(), i, n) // the log has the error
	write(w, top)
}

// topList returns a list of top, with the pods of its clients if they are to be shown. The
// error is the reason why pods are missing.
func (s *service) topList(ctx context.Context, by, n int) (top traffic.Top, err error) {
	top = s.recorder.Top(by, n, time.Now())
	if s.pods != nil && (by == traffic.Clients || by == traffic.Waste) {
		err = s.pods.add(ctx, top.Entries)
	}
	return top, err
}

func unknownList(by string) error {
	return fmt.Errorf("by: want one of %s, got %q", strings.Join(traffic.ListNames[:], ", "), by)
}

func (s *service) history(w http.ResponseWriter, _ *http.Request) {
	write(w, s.recorder.History(time.Now()))
}

// A Status is the state of a server.
type Status struct {
	Identity
	Started time.Time `json:"started"` // when this configuration began to serve
	Ready   bool      `json:"ready"`
	// Summary is one sentence about the health of the server: that about the first of Conditions.
	Summary string `json:"summary"`
	// Conditions are what is wrong at present, the worst first.
	Conditions []health.Condition `json:"conditions"`
	// Failures are the last errors of upstreams, which may be over.
	Failures []health.Failure `json:"failures,omitempty"`
	Unready  []string         `json:"unready,omitempty"` // directives
	Servers  []string         `json:"servers"`
	Sampled  float64          `json:"sampled"` // the share of queries that are recorded
	// Rates of the last 50 to 60 seconds, or since the start: queries a second, and shares of
	// them by response code and by the directive that answered.
	Queries float64            `json:"queries"`
	RCodes  map[string]float64 `json:"rcodes"`
	Sources map[string]float64 `json:"sources"`
	P50     time.Duration      `json:"p50"`
	P99     time.Duration      `json:"p99"`
	Waste   float64            `json:"waste"` // the share of searches that cannot succeed
	// Clients and Names are the estimated numbers of different ones in the last five to ten
	// minutes.
	Clients float64 `json:"clients"`
	Names   float64 `json:"names"`
	// Kernel is about the replies that the kernel of a node repeats; nil if it repeats none.
	Kernel *traffic.Kernel `json:"kernel,omitempty"`
	// Metrics are series of the server about its data, upstreams and queries that wait.
	Metrics map[string]float64 `json:"metrics"`
}

// statusMetrics are the families of a Status's Metrics.
var statusMetrics = []string{
	"seamark_kubernetes_data_age_seconds", "seamark_kubernetes_records_hash", "seamark_kubernetes_stale",
	"seamark_kubernetes_synced", "seamark_kubernetes_objects", "seamark_etcd_data_age_seconds", "seamark_etcd_keys",
	"seamark_secondary_data_age_seconds", "seamark_secondary_serial", "seamark_transfer_followers",
	"coredns_forward_requests_total", "coredns_grpc_requests_total", "seamark_forward_upstream_up", "seamark_forward_waiting_queries",
	"seamark_waiting_queries", "seamark_given_up_queries_total", "coredns_panics_total", "coredns_cache_entries", "process_resident_memory_bytes",
	"seamark_memory_total_bytes", "seamark_memory_own_bytes", "seamark_memory_used_bytes", "seamark_memory_max_bytes",
	"seamark_memory_refused_total", "coredns_reload_version_info",
}

func inStatus(family string) bool { return slices.Contains(statusMetrics, family) }

func (s *service) status(w http.ResponseWriter, _ *http.Request) { write(w, s.state()) }

// state returns the present status, which the caller must not change.
func (s *service) state() Status { return s.states.get(s.newState) }

func (s *service) newState() Status {
	now := time.Now()
	st := Status{
		Identity: s.identity, Started: health.OnClock(s.started, now), Servers: []string{}, Conditions: []health.Condition{},
		RCodes: map[string]float64{}, Sources: map[string]float64{}, Metrics: s.metrics.Values(inStatus),
		Sampled: s.recorder.Sampled(now),
	}

	if at := processStarted(); at.Sub(st.ProcessStarted).Abs() > time.Second { // the clock was set
		st.ProcessStarted = at
	}
	for _, p := range s.ports() {
		st.Servers = append(st.Servers, p.Name)
	}
	for _, c := range s.unready() {
		st.Unready = append(st.Unready, c.Object)
	}
	st.Ready = len(st.Unready) == 0

	last, covered := s.recorder.Last(time.Minute, now)
	st.P50, st.P99 = last.P50, last.P99
	st.Queries = last.Queries / max(1, covered.Seconds())
	st.Clients, st.Names = s.recorder.Distinct(now)
	for code, n := range last.RCodes {
		st.RCodes[code] = n / max(1, last.Queries)
	}
	for directive, n := range last.Sources {
		st.Sources[directive] = n / max(1, last.Queries)
	}
	st.Waste = last.Waste / max(1, last.Queries)
	st.Kernel = s.kernel(last.Kernel, last.Queries, covered)
	st.Conditions = append(st.Conditions, s.judge.Conditions(now)...)
	st.Failures = s.judge.Failures()
	st.Summary = health.Summary(st.Conditions)
	return st
}

// kernel returns what is known of replies that the kernel repeats: their number and that of the server's
// queries in a time.
func (s *service) kernel(repeated, queries float64, covered time.Duration) *traffic.Kernel {
	k := &traffic.Kernel{Queries: repeated / max(1, covered.Seconds()), Share: repeated / max(1, repeated+queries)}
	possible := false
	for _, a := range s.blocks {
		possible = possible || a.block.Generations != nil
		for _, directive := range a.block.Unrepeated {
			zones := wire.JoinNames(a.block.Zones, " ")
			k.Prevented = append(k.Prevented, traffic.Prevention{Zones: zones, Directive: directive})
		}
	}
	if !possible {
		return nil
	}
	return k
}

// unready returns a condition for each directive that is not ready.
func (s *service) unready() (found []health.Condition) {
	for _, a := range s.blocks {
		for _, h := range a.ready {
			name := a.block.NameOf(h)
			known := slices.ContainsFunc(found, func(c health.Condition) bool { return c.Object == name })
			if h.Ready() || known {
				continue
			}

			// A Service sends no queries to such a server.
			c := health.Condition{Severity: health.Critical, Lost: 1, Object: name, Text: "not ready: " + name}
			if c.Next = "seamark doctor"; name == "etcd" {
				c.Next = "etcdctl endpoint health, with the endpoints of the Corefile"
			}
			if reason := config.WhyUnready(h); reason != "" {
				c.Text += ": " + reason
			}
			if name == "kubernetes" {
				c.Alert, c.Since = "SeamarkNotSynced", processStarted() // it has never been
			}
			found = append(found, c)
		}
	}
	return found
}
