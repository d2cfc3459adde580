package admin_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
)

// hostile is a label with markup, an ANSI escape sequence, a right-to-left override and a
// null character. A label has at most 63 bytes.
const hostile = "<img src=x onerror=alert(1)>'\"\x1b[31m\u202egpj\x00</td>"

// hostileName returns the presentation form of the label in a name.
func hostileName(domain string) string {
	var name strings.Builder
	for _, c := range []byte(hostile) {
		fmt.Fprintf(&name, `\%03d`, c)
	}
	return name.String() + "." + domain
}

// pages are all pages, with every form filled in with the hostile name.
func pages() []string {
	hostile := url.QueryEscape(hostileName("shop.svc.cluster.local"))
	list := []string{"/", "/configuration", "/queries", "/records", "/cache", "/explain"}
	for _, by := range strings.Fields("names clients namespaces nxdomain servfail slow waste") {
		list = append(list, "/top?by="+by)
	}
	return append(list, "/explain?name="+hostile, "/records?name="+hostile, "/cache?name="+hostile, "/queries?source="+hostile,
		"/queries?client="+hostile, "/explain?name=a&type="+hostile, "/explain?name=a&client="+hostile, "/top?by="+hostile, "/records?type="+hostile,
		"/queries?slower="+url.QueryEscape(`"><script>alert(1)</script>`), "/records?zone="+url.QueryEscape("\x1b\u202e<b>"), "/cache?name=%FF%00")
}

// storm sends queries for names that do not exist, hostile ones among them.
func (w *world) storm() {
	for i := range 40 {
		w.query(fmt.Sprintf("n%d.example.org.shop.svc.cluster.local", i%7))
		w.query("wbe.shop.svc.cluster.local")
	}
	w.query("web.shop.svc.cluster.local")
	w.query("www.example.org")
	w.query(hostileName("shop.svc.cluster.local"))
	w.query(hostileName("www.example.org.shop.svc.cluster.local"))
	w.query(hostileName("example.org"))
}

// element matches the tags of HTML.
var element = regexp.MustCompile(`</?[a-zA-Z][^>]*>`)

// A server that answers, with clients that could send fewer queries, has the colour of a
// warning, and not that of a failure.
func TestPageHealthColour(t *testing.T) {
	w := serve(t, stock)
	w.eventually("/", `class="health good" role="status">Healthy.<`)
	w.storm()
	w.eventually("/", `class="health warning" role="status">Healthy, but `)
}

// Every page names its server in the header and in the title, and so does the API: tabs of replicas look
// alike. A storm is one click from its clients, and a name one from its explanation.
func TestPageIdentityAndLinks(t *testing.T) {
	w := serve(t, stock)
	for i := range 2000 {
		w.query(fmt.Sprintf("%08x.shop.svc.cluster.local", i*7919))
	}
	host, _ := os.Hostname()
	for path, want := range map[string]string{
		"/": "<title>Overview - " + host, "/cache": `<strong class="name">` + host, "/nosuch": "<title>404 Not found - " + host,
		"/v1/status": `"host": "` + host,
	} {
		if _, body := w.request("GET", path); !strings.Contains(body, want) {
			t.Errorf("GET %s: got %.2000s, want %s", path, body, want)
		}
	}

	clients := `<a href="queries?name=shop.svc.cluster.local.&amp;rcode=NXDOMAIN">Their clients</a>`
	reason := `<a href="explain?name=shop.svc.cluster.local.">explain shop`
	for _, path := range []string{"/", "/top?by=nxdomain"} {
		w.eventually(path, clients)
		w.eventually(path, reason)
	}
	w.eventually("/", `<a href="queries?client=127.0.0.1&amp;name=shop.svc.cluster.local"><code>seamark tail`)
	w.eventually("/queries?name=shop.svc.cluster.local.&rcode=NXDOMAIN", `<a href="queries?client=127.0.0.1">127.0.0.1</a></th><td class="n">`)
}

// The charts of a new server show five minutes, and not an hour that is empty but for its end.
func TestChartSpan(t *testing.T) {
	w := serve(t, stock)
	w.storm()
	w.eventually("/", `<h2 id="past">The last five minutes</h2>`)
	w.eventually("/", `<span class="title">NXDOMAIN</span> <span class="value">`)
}

func TestPageHostileNames(t *testing.T) {
	w := serve(t, stock)
	w.storm()
	w.eventually("/queries?name=img", "onerror=alert")
	w.eventually("/top?by=nxdomain", `\027[31m\226\128\174gpj\000`)
	tags := map[string]bool{}
	for name := range strings.FieldsSeq("html head meta title link script body a header span nav ul li main h1 h2 h3 p footer div dl dt dd section figure figcaption svg path rect details summary table thead tbody tr th td form label input button datalist option template strong code pre") {
		tags[name] = true
	}
	for _, page := range pages() {
		_, body := w.request("GET", page)
		if !strings.HasPrefix(body, "<!DOCTYPE html>") {
			t.Errorf("GET %s: got %.200q, want HTML", page, body)
		}
		for i, c := range body {
			if c != '\n' && c < ' ' || c == '\u202e' || c == '\u007f' {
				t.Errorf("GET %s: got the character %U at %d: %q", page, c, i, body[max(0, i-50):i])
				break
			}
		}
		for _, tag := range element.FindAllString(body, -1) {
			if name := strings.Trim(strings.Fields(tag)[0], "</>"); !tags[name] || strings.Contains(tag, " style=") || regexp.MustCompile(`\son[a-z]+=`).MatchString(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(tag, "")) {
				t.Errorf("GET %s: got the element %s", page, tag)
			}
		}
		if strings.Count(body, "<script") != 1 || strings.Contains(body, "http://") || strings.Contains(body, "https://") {
			t.Errorf("GET %s: got more than one script, or a link to another site: %s", page, body)
		}
	}
}

func TestPages(t *testing.T) {
	w := serve(t, stock)
	w.storm()
	w.eventually("/top", ">web.shop.svc.cluster.local.</a>")
	for _, c := range []struct {
		path string
		want []string
		code int
	}{
		{"/", []string{`<a href="./" aria-current="page">Overview</a>`, `role="status">Healthy, but `, " of the queries are searches of pods that cannot succeed.</p>", `<rect class="nxdomain"`, `<path class="line p50" d="M`,
			">127.0.0.1</a>", ">wbe.shop.svc.cluster.local.</a>", "<td>up</td>", `<th scope="row">services</th><td class="name">cluster.local.</td><td class="n">1</td><td>synced</td>`}, 200},
		{"/top?by=waste", []string{"name: ndots", "seamark top waste --pods", `<a href="queries?namespace=shop">shop</a>: `, `<a href="queries?client=127.0.0.1">127.0.0.1</a>`}, 200},
		{"/top?by=nxdomain", []string{`<a href="explain?name=wbe.shop.svc.cluster.local.">wbe`, "Names that do not exist"}, 200},
		{"/top?by=x", []string{`<p class="error" role="alert">by: want one of names`}, 400},
		{"/explain?name=wbe.shop.svc.cluster.local&client=10.0.0.1", []string{"namespace shop has no Service named wbe", "For the client 10.0.0.1",
			`<a href="explain?client=10.0.0.1&amp;name=web.shop.svc.cluster.local.&amp;type=A">web.shop`, `<th scope="row">kubernetes</th><td>answered</td>`, "cluster.local. 5 IN SOA"}, 200},
		{"/explain?name=web.shop.svc.cluster.local&type=srv", []string{"SRV</h2>", "web.shop.svc.cluster.local.", "(Service shop/web: "}, 200},
		{"/explain?name=www.example.org", []string{"NOERROR by cache"}, 200},
		{"/explain?name=a&server=x", []string{"no such server: &#34;x&#34;; the servers are", `name="server" value="x"`}, 400},
		{"/explain?name=a&client=x", []string{"client: want an IP address", `value="x"`}, 400},
		{"/explain", []string{`action="explain"`}, 200},
		{"/records?type=srv", []string{"_http._tcp.web.shop.svc.cluster.local.", "0 100 80", "<td>kubernetes</td>"}, 200},
		{"/records?directive=file", []string{"No records."}, 200},
		{"/records?type=x", []string{"type: want a record type"}, 400},
		{"/cache?name=www.example", []string{"1 answers", ">www.example.org.</a>", `<template id="flush">`}, 200},
		{"/cache?type=mx", []string{"No cached answers."}, 200},
		{"/queries?rcode=nxdomain&name=wbe", []string{`<span class="code nxdomain">NXDOMAIN</span>`, "<td>kubernetes</td>"}, 200},
		{"/queries?client=10.0.0.0/8", []string{"No query yet."}, 200},
		{"/queries?slower=x", []string{"slower: want a duration"}, 400},
		{"/configuration", []string{"<code>. {</code>", "Corefile:5", "<code>        manifests /", "<code>    }</code>"}, 200},
		{"/page.css", []string{"prefers-color-scheme: dark"}, 200},
		{"/page.js", []string{"async function refresh"}, 200},
		{"/icon.svg", []string{"<svg"}, 200},
		{"/nosuch", []string{"404 Not found", "there is no page /nosuch", `<a href="configuration">`}, 404},
		{"/v1/nosuch", []string{"404"}, 404},
	} {
		code, body := w.request("GET", c.path)
		for _, want := range c.want {
			if code != c.code || !strings.Contains(body, want) {
				t.Errorf("GET %s: got %d and %s, want %d and %s", c.path, code, body, c.code, want)
			}
		}
		if code, _ := w.request("POST", c.path); code == 200 {
			t.Errorf("POST %s: got 200, want an error", c.path)
		}
	}
}

// Every page has the headers that keep a browser from running what is not the page's own.
func TestPageHeaders(t *testing.T) {
	w := serve(t, stock)
	for _, path := range append(pages(), "/page.css", "/page.js", "/icon.svg", "/nosuch") {
		reply, err := http.Get(w.url + path)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; ", "X-Content-Type-Options": "nosniff",
			"Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
		} {
			if got := reply.Header.Get(name); !strings.HasPrefix(got, want) {
				t.Errorf("GET %s: %s: got %q, want %q", path, name, got, want)
			}
		}
		if got := reply.Header.Values("Set-Cookie"); len(got) > 0 {
			t.Errorf("GET %s: got the cookies %q, want none", path, got)
		}
	}
	if code, body := w.request("GET", "/", "Host evil.example"); code != 403 || strings.Contains(body, "<") {
		t.Errorf("host evil.example: got %d %s, want 403", code, body)
	}
}

func TestPageToken(t *testing.T) {
	w := serve(t, ". {\n admin ADMIN {\n  token TOKEN\n }\n whoami\n}\n")
	for _, path := range []string{"/", "/configuration", "/page.js"} {
		if code, _ := w.request("GET", path); code != 401 {
			t.Errorf("GET %s without a token: got %d, want 401", path, code)
		}
		if code, _ := w.request("GET", path, "Authorization Basic YTpzZWNyZXQ="); code != 200 {
			t.Errorf("GET %s with the token: got %d, want 200", path, code)
		}
	}
	if _, body := w.request("GET", "/configuration", "Authorization Bearer secret"); strings.Contains(body, ">secret") {
		t.Errorf("got %s, want no token", body)
	}
}

// The configuration shows no secret of the Corefile.
func TestPageSecrets(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	w := serve(t, `. {
    admin ADMIN
    tsig {
        secret key.example. aGlkZGVuMSEhaGlkZGVuMSEh
        require none
    }
    whoami
    trace zipkin http://user:hidden2@127.0.0.1:9/api?key=hidden3
    on startup true --password hidden4 --token=hidden5 PASSWORD=hidden6 "Authorization: hidden7" -p hidden9
    on shutdown "true hidden10"
    on shutdown true
}
example.org {
    etcd example.org {
        endpoint http://127.0.0.1:9
        credentials shown2 hidden8
    }
}
`)
	_, body := w.request("GET", "/configuration")
	for _, want := range []string{"secret key.example. (hidden)", "http://(hidden)@127.0.0.1:9/api?(hidden)", "on startup true (hidden)",
		"on shutdown true (hidden)<", "on shutdown true<", "credentials shown2 (hidden)", "example.org {"} {
		if !strings.Contains(body, want) {
			t.Errorf("got no %s in %s", want, body)
		}
	}
	for _, secret := range append(strings.Fields("hidden2 hidden3 hidden4 hidden5 hidden6 hidden7 hidden8 hidden9 hidden10"), "aGlkZGVuMSEhaGlkZGVuMSEh") {
		if strings.Contains(body, secret) {
			t.Errorf("got the secret %s in %s", secret, body)
		}
	}
}

// The pages of records have each record once.
func TestPageRecordsPaging(t *testing.T) {
	var objects strings.Builder
	const services = 700
	for i := range services {
		fmt.Fprintf(&objects, "---\napiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: shop}\nspec: {clusterIP: 10.96.%d.%d, ports: [{name: http, port: 80}]}\n", i, 1+i/250, 1+i%250)
	}
	w := serve(t, stock, objects.String())
	next := regexp.MustCompile(`<a rel="next" href="([^"]*)">`)
	record := regexp.MustCompile(`(?m)^<tr><th scope="row" class="name"><a href="explain\?([^"]*)">`)
	seen := map[string]int{}
	path, requests := "/records?zone=cluster.local", 0
	for ; path != "" && requests < 20; requests++ {
		_, body := w.request("GET", path)
		rows := record.FindAllStringSubmatch(body, -1)
		if len(rows) == 0 || len(rows) > 500 {
			t.Fatalf("GET %s: got %d rows, want 1 to 500", path, len(rows))
		}
		for _, row := range rows {
			seen[html.UnescapeString(row[1])]++
		}
		path = ""
		if m := next.FindStringSubmatch(body); m != nil {
			path = "/" + html.UnescapeString(m[1])
		}
	}
	_, body := w.request("GET", "/v1/records?zone=cluster.local")
	all := map[string]int{}
	for line := range strings.Lines(body) {
		var r struct{ Name, Type string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		form := url.Values{"name": {r.Name}, "type": {r.Type}}
		all[form.Encode()]++
	}
	if len(all) < 2*services {
		t.Fatalf("got %d names in the API, want at least %d", len(all), 2*services)
	}
	for name, n := range all {
		if seen[name] != n {
			t.Errorf("%s: got %d rows, want %d", name, seen[name], n)
		}
	}
	if len(seen) != len(all) {
		t.Errorf("got %d names in %d pages, want %d", len(seen), requests, len(all))
	}
}

// Nothing is said of the data of an etcd that has never answered, nor of upstreams without queries.
func TestPageOfWhatIsNotKnown(t *testing.T) {
	w := newWorld(t)
	w.unready = true
	if err := w.load(`. {
    admin ADMIN
    etcd example.org {
        endpoint http://127.0.0.1:9
    }
    grpc example.net 192.0.2.2:443
    forward . 192.0.2.1
}
`); err != nil {
		t.Fatal(err)
	}
	_, body := w.request("GET", "/")
	for _, want := range []string{
		`keys of etcd</th><td class="name">/skydns/</td><td class="n">0</td><td><strong class="bad">not synced</strong></td><td class="n">never</td>`,
		`192.0.2.2:443</th><td>not used yet</td>`, `192.0.2.1:53</th><td>not used yet</td>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("got no %s in %s", want, body)
		}
	}
}
