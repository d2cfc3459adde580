package healthz

import (
	"fmt"
	"html"
	"io"
	"log"
	"net/http"
	"time"
)

// indexPath is the page about all commands.
const indexPath = "/"

// What a client may take: the limits of package web, whose sites belong to the
// plans of a Corefile, which there is none of here.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
)

// pages is what is served over HTTP.
type pages struct {
	checks []*check
	output bool // is shown
}

func (p pages) server() *http.Server {
	return &http.Server{
		Handler:           p,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          log.New(io.Discard, "", 0), // of clients that go away
	}
}

func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if r.Body != http.NoBody { // without one, reading goes on to see whether the client is still there
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	if r.URL.Path == indexPath {
		p.index(w)
		return
	}
	for _, c := range p.checks {
		if c.url == r.URL.Path {
			p.state(w, c)
			return
		}
	}
	http.NotFound(w, r)
}

// state is the page of one command.
func (p pages) state(w http.ResponseWriter, c *check) {
	output, err := c.health(time.Now())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff") // the output is anybody's
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, err)
	} else if !p.output {
		fmt.Fprint(w, "ok")
	}
	if p.output {
		_, _ = w.Write(output) // a prober that goes away is no matter
	}
}

// index is the page about all commands, for people.
func (p pages) index(w http.ResponseWriter) {
	now := time.Now()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>exec-healthz</title></head>\n<body>\n"+
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
			html.EscapeString(c.url), html.EscapeString(c.text), html.EscapeString(state), age)
	}
	fmt.Fprint(w, "</table>\n</body>\n</html>\n")
}
