package healthz

import (
	"fmt"
	"html"
	"net/http"
	"time"
)

// indexPath is the page that lists all commands.
const indexPath = "/"

// pages serves the index and a page for each command.
type pages struct {
	checks     []*check
	showOutput bool
}

func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == indexPath {
		p.index(w)
		return
	}
	for _, c := range p.checks {
		if c.url == r.URL.Path {
			p.check(w, c)
			return
		}
	}
	http.NotFound(w, r)
}

// check writes the page of one command.
func (p pages) check(w http.ResponseWriter, c *check) {
	output, err := c.health(time.Now())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff") // the output is untrusted
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, err)
	} else if !p.showOutput {
		fmt.Fprint(w, "ok")
	}
	if p.showOutput {
		_, _ = w.Write(output) // fails only if the client disconnects
	}
}

// index writes the page of all commands.
func (p pages) index(w http.ResponseWriter) {
	now := time.Now()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, "<!DOCTYPE html>\n<html lang=\"en\">\n"+
		"<head><meta charset=\"utf-8\"><title>exec-healthz</title></head>\n<body>\n"+
		"<table>\n<tr><th>page</th><th>command</th><th>state</th><th>last run</th></tr>\n")
	for _, c := range p.checks {
		state, age := "ok", "never"
		if _, err := c.health(now); err != nil {
			state = err.Error()
		}
		if last := c.last.Load(); last != nil {
			age = fmt.Sprintf("%v ago", now.Sub(last.ended).Round(time.Millisecond))
		}
		fmt.Fprintf(w, "<tr><td><a href=\"%[1]s\">%[1]s</a></td><td><code>%s</code></td><td>%s</td><td>%s</td></tr>\n",
			html.EscapeString(c.url), html.EscapeString(c.program), html.EscapeString(state), age)
	}
	fmt.Fprint(w, "</table>\n</body>\n</html>\n")
}
