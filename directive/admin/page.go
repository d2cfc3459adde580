package admin

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/observe/explain"
	"github.com/seamark/seamark/observe/traffic"
	"github.com/seamark/seamark/observe/web"
)

// pageFiles are the templates of the web page, its style sheet, module and icon.
//
//go:embed page
var pageFiles embed.FS

// pageNames are the parts of the web page, in the order of the navigation. Links are
// relative, so that a proxy may serve the page below a path.
var pageNames = []pageName{
	{"overview", "./", "Overview"},
	{"top", "top", "Top"},
	{"queries", "queries", "Queries"},
	{"explain", "explain", "Explain"},
	{"records", "records", "Records"},
	{"cache", "cache", "Cache"},
	{"configuration", "configuration", "Configuration"},
}

type pageName struct{ Name, Link, Title string }

// A view is what a template shows.
type view struct {
	pageName
	Pages  []pageName
	Server Identity
	Form   url.Values // parameters of the request
	Error  string
	Redact bool
	Data   any // nil if there is only a form to fill in
}

// Get returns a parameter of the request.
func (v view) Get(name string) string { return v.Form.Get(name) }

// pageWriteTimeout is how long a client may take to receive a page.
const pageWriteTimeout = 10 * time.Second

// addPages parses the templates and adds the pages.
func (s *service) addPages() {
	s.templates = template.Must(template.New("").Funcs(template.FuncMap{
		"duration": showDuration, "number": showNumber, "percent": showPercent, "link": showLink,
		"rcode": rcodeClass, "utc": showTime, "health": healthClass, "next": showNext,
		"details": func(o dns.Object) string { return explain.Details(o, time.Now()) },
	}).ParseFS(pageFiles, "page/*.html"))

	for path, content := range map[string]struct{ file, kind string }{
		"/page.css": {"page/page.css", "text/css; charset=utf-8"},
		"/page.js":  {"page/page.js", "text/javascript; charset=utf-8"},
		"/icon.svg": {"page/icon.svg", "image/svg+xml"},
	} {
		text, _ := fs.ReadFile(pageFiles, content.file) // it is embedded
		s.pages.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", content.kind)
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pageWriteTimeout))
			_, _ = w.Write(text) // fails only if the client disconnects
		})
	}

	for pattern, page := range map[string]func(*http.Request) (data any, code int, err error){
		"/{$}": s.overviewPage, "/top": s.topPage, "/queries": s.queriesPage, "/explain": s.explainPage,
		"/records": s.recordsPage, "/cache": s.cachePage, "/configuration": s.configurationPage,
	} {
		i := slices.IndexFunc(pageNames, func(n pageName) bool { return "/"+n.Link == pattern })
		name := pageNames[max(i, 0)] // "/{$}" is the first one
		s.pages.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			data, code, err := page(r)
			s.render(w, r, name, data, code, err)
		})
	}
}

// notFound is the page for a path without one.
var notFound = pageName{"notfound", "", "404 Not found"}

// find returns the handler of a request. A browser gets a page with the navigation for a path that
// does not exist, and a client of the API the plain text of a mux.
func (s *service) find(r *http.Request) http.Handler {
	_, pattern := s.pages.Handler(r)
	if pattern != "" || r.Method != http.MethodGet || strings.HasPrefix(r.URL.Path, "/v1/") {
		return s.pages
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.render(w, r, notFound, nil, http.StatusNotFound, fmt.Errorf("there is no page %s", r.URL.Path))
	})
}

// render writes a page. An error is shown on it.
func (s *service) render(w http.ResponseWriter, r *http.Request, name pageName, data any, code int, err error) {
	_ = r.ParseForm() // malformed parameters are missing
	v := view{pageName: name, Pages: pageNames, Server: s.identity, Form: r.Form, Data: data, Redact: s.options.redact}
	if err != nil {
		v.Error = err.Error()
	}

	turn, err := s.turns.Begin(r.Context(), web.Client(r))
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	var made bytes.Buffer
	err = s.templates.ExecuteTemplate(&made, name.Name+".html", v)
	text := visible(made.Bytes())
	turn.End()
	if err != nil {
		s.log.Error("admin: Writing a page failed", "path", r.URL.Path, "error", err)
		fail(w, http.StatusInternalServerError, fmt.Errorf("writing the page %s: %w", r.URL.Path, err))
		return
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pageWriteTimeout))
	w.WriteHeader(code)
	_, _ = w.Write(text) // fails only if the client disconnects
}

// visible escapes the characters of a page that are not printable: control characters, also
// of escape sequences, and overrides of the text's direction. Names and texts are from
// clients, from the cluster and from other servers; the templates have no such characters.
func visible(text []byte) []byte {
	shown := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			shown = fmt.Appendf(shown, `\x%02X`, text[0])
		case r == '\n', unicode.IsPrint(r):
			shown = append(shown, text[:n]...)
		case r == '\t':
			shown = append(shown, ' ')
		default:
			shown = fmt.Appendf(shown, `\u{%X}`, r)
		}
		text = text[n:]
	}
	return shown
}

// showDuration shows a duration with three digits.
func showDuration(d time.Duration) string {
	unit := time.Nanosecond
	for d.Abs() >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}

// showNumber shows a number without digits that do not matter.
func showNumber(f float64) string {
	switch {
	case f >= 100 || f == float64(int64(f)):
		return traffic.Commas(f)
	case f >= 1:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

func showPercent(f float64) string { return fmt.Sprintf("%.1f %%", 100*f) }

func showTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// showLink returns a link to a page with parameters, NAME VALUE each. It leaves out empty
// parameters.
func showLink(page string, parameters ...any) string {
	form := url.Values{}
	for i := 0; i+1 < len(parameters); i += 2 {
		if value := fmt.Sprint(parameters[i+1]); value != "" {
			form.Set(fmt.Sprint(parameters[i]), value)
		}
	}
	return page + "?" + form.Encode()
}

// rcodeClass returns the class of a response code in the style sheet.
func rcodeClass(code string) string {
	switch code {
	case "NOERROR", "NXDOMAIN", "SERVFAIL":
		return strings.ToLower(code)
	}
	return "other"
}
