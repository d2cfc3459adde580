package admin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/seamark/seamark/test/chromium"
)

// lowContrast evaluates to the texts whose contrast is less than 4.5, as WCAG 2.2 computes
// it (level AA).
const lowContrast = `(() => {
	const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
	const rgba = (color) => { context.clearRect(0, 0, 1, 1); context.fillStyle = color; context.fillRect(0, 0, 1, 1); return [...context.getImageData(0, 0, 1, 1).data]; };
	const luminance = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const ground = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return null; };
	const bad = [];
	let texts = 0;
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim()) && e.tagName !== "INPUT" || !e.checkVisibility()) continue;
		texts++;
		const back = ground(e), colors = [getComputedStyle(e).color];
		if (e.tagName === "INPUT") colors.push(getComputedStyle(e, "::placeholder").color);
		for (const color of colors) {
			const [a, b] = [luminance(rgba(color)), back ? luminance(back) : NaN];
			const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			if (!(ratio >= 4.5)) bad.push(e.tagName + " " + e.textContent.trim().slice(0, 30) + " " + ratio);
		}
	}
	if (!texts) bad.push("no texts");
	return bad.join("; ");
})()`

// Every page loads in a browser without an error, and runs nothing of a hostile name; on a
// screen of 360 pixels nothing is cut off, and texts have enough contrast in both schemes.
func TestChromiumPages(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	b := chromium.Start(t)
	w := serve(t, stock)
	w.storm()
	w.eventually("/queries?name=img", "onerror=alert")
	for i, page := range pages() {
		code, _ := w.request("GET", page)
		b.Open(w.url + page)
		for _, s := range []struct {
			width, height int
			scheme        string
		}{{1280, 900, "light"}, {1280, 900, "dark"}, {360, 740, "dark"}, {360, 740, "light"}} {
			name := fmt.Sprintf("%s, %d, %s", page, s.width, s.scheme)
			b.Screen(s.width, s.height, s.scheme)
			b.Until(name, fmt.Sprintf("innerWidth === %d && matchMedia('(prefers-color-scheme: %s)').matches", s.width, s.scheme))
			b.Screenshot(fmt.Sprintf("%02d-%d-%s", i, s.width, s.scheme))
			if got := b.Evaluate("document.documentElement.scrollWidth <= innerWidth"); got != "true" {
				t.Errorf("%s: got a page %s pixels wide", name, b.Evaluate("document.documentElement.scrollWidth"))
			}
			if got := b.Evaluate(lowContrast); got != `""` {
				t.Errorf("%s: got low contrast: %s", name, got)
			}
		}
		if got := b.Evaluate("document.querySelectorAll('main img, main script, main style, iframe, object').length"); got != "0" {
			t.Errorf("%s: got %s elements of a hostile name, want none", page, got)
		}
		for _, m := range b.Console {
			if code == 200 || !strings.Contains(m, fmt.Sprintf("status of %d", code)) {
				t.Errorf("%s: got the message %s", page, m)
			}
		}
	}
}

// The small charts of the overview fill whole rows at every width, and none of their texts is cut off.
func TestChromiumSmallCharts(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	b := chromium.Start(t)
	w := serve(t, stock)
	b.Open(w.url + "/")
	const rows = `(() => {
		const tiles = [...document.querySelectorAll(".multiple")], rows = {};
		for (const t of tiles) rows[t.offsetTop] = (rows[t.offsetTop] ?? 0) + 1;
		return tiles.filter((t) => t.scrollWidth > t.clientWidth).length + " cut off, " + Object.values(rows).join(" ");
	})()`
	for width, want := range map[int]string{
		360: "2 2 2", 480: "2 2 2", 600: "3 3", 900: "3 3", 1180: "3 3", 1280: "6", 1920: "6",
	} {
		b.Screen(width, 900, "light")
		b.Until("the width", fmt.Sprintf("innerWidth === %d", width))
		if got := b.Evaluate(rows); got != `"0 cut off, `+want+`"` {
			t.Errorf("%d: got %s, want rows of %s", width, got, want)
		}
	}
}

// The test of the pages finds a violation of the policy, low contrast and a page that is too
// wide.
func TestChromiumFindsFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	b := chromium.Start(t)
	w := serve(t, stock)
	reply, err := http.Get(w.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	reply.Body.Close()
	policy := reply.Header.Get("Content-Security-Policy")
	bad := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Security-Policy", policy)
		_, _ = rw.Write([]byte(`<!DOCTYPE html><title>bad</title><meta name="viewport" content="width=device-width"><body bgcolor="white"><script>window.ran = true</script><font color="#aaaaaa">weak</font><pre>` + strings.Repeat("wide", 500)))
	}))
	defer bad.Close()
	b.Screen(360, 740, "light")
	b.Open(bad.URL)
	if got := strings.Join(b.Console, "\n"); !strings.Contains(got, "Content Security Policy") || b.Evaluate("Boolean(window.ran)") != "false" {
		t.Errorf("got the messages %s, want a violation of the policy", got)
	}
	if got := b.Evaluate(lowContrast); !strings.Contains(got, "FONT weak 2.") {
		t.Errorf("got %s, want low contrast", got)
	}
	if got := b.Evaluate("document.documentElement.scrollWidth > innerWidth"); got != "true" {
		t.Errorf("got a page %s pixels wide, want more than 360", b.Evaluate("document.documentElement.scrollWidth"))
	}
}

// The module follows queries and shows hostile names as text; it refreshes the overview,
// and removes cached answers.
func TestChromiumModule(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	b := chromium.Start(t)
	w := serve(t, stock)
	b.Call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": "const interval = setInterval; window.setInterval = (f) => interval(f, 100);"}, nil)
	b.Open(w.url + "/queries?rcode=NXDOMAIN")
	b.Until("tail", `document.getElementById("tail-state").textContent === "Following."`)
	w.query(hostileName("shop.svc.cluster.local"))
	w.query("web.shop.svc.cluster.local")
	w.query("last.shop.svc.cluster.local")
	b.Until("tail", `document.querySelector("#tail tr th")?.textContent === "last.shop.svc.cluster.local."`)
	if got := b.Evaluate(`[...document.querySelectorAll("#tail th")].map((e) => e.textContent).join(" ")`); !strings.Contains(got, `<img\\032src=x\\032onerror=alert`) || strings.Contains(got, "web.shop") {
		t.Errorf("tail: got %s, want the hostile name and no NOERROR", got)
	}
	if got := b.Evaluate(`document.querySelectorAll("#tail a[href^=\"explain?name=\"]").length`); got != "2" {
		t.Errorf("tail: got %s links, want 2", got)
	}
	b.Screenshot("tail")
	b.Evaluate(`document.querySelector("main > button").click()`)
	b.Until("pause", `document.getElementById("tail-state").textContent === "Paused."`)
	b.Evaluate(`document.querySelector("main > button").click()`)
	b.Until("continue", `document.getElementById("tail-state").textContent === "Following."`)
	w.query("after.shop.svc.cluster.local")
	b.Until("continue", `document.querySelector("#tail tr th")?.textContent === "after.shop.svc.cluster.local."`)

	b.Open(w.url + "/")
	b.Evaluate(`document.querySelector("details").open = true`)
	w.query("refreshed.shop.svc.cluster.local")
	b.Until("refresh", `document.getElementById("live").textContent.includes("refreshed.shop")`)
	if got := b.Evaluate(`document.querySelector("details").open`); got != "true" {
		t.Errorf("refresh: got a closed table of figures, want an open one")
	}

	w.query("www.example.org")
	b.Open(w.url + "/cache")
	b.Until("cache", `document.getElementById("live").textContent.includes("www.example.org.")`)
	b.Evaluate(`document.querySelector("main form:last-of-type input").value = "example.org"; document.querySelector("main form:last-of-type button").click()`)
	b.Until("flush", `document.querySelector("main form:last-of-type [role=status]").textContent === "1 answers removed."`)
	b.Until("flush", `!document.getElementById("live").textContent.includes("www.example.org.")`)
	for _, m := range b.Console {
		t.Errorf("got the message %s", m)
	}
}

// A page whose server does not answer any more dims what it showed, below a banner with the time.
func TestChromiumServerGone(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	b := chromium.Start(t)
	w := serve(t, stock)
	w.storm()
	b.Open(w.url + "/")
	b.Until("refresh", `document.querySelector("main .note").textContent.startsWith(" As of ")`)
	if got := b.Evaluate(`document.querySelectorAll(".old, #gone").length`); got != "0" {
		t.Errorf("while the server answers: got %s dimmed parts and banners, want none", got)
	}
	w.stop()
	b.Until("gone", `document.querySelector("#live.old") && document.querySelector("#gone[role=alert]")?.textContent.startsWith("This server has not answered for ")`)
	b.Screenshot("gone")
}

// The first stop of the keyboard skips the navigation, and forms work with it.
func TestChromiumKeyboard(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	b := chromium.Start(t)
	w := serve(t, stock)
	b.Open(w.url + "/explain?name=" + url.QueryEscape("wbe.shop.svc.cluster.local"))
	b.Press("Tab", 9)
	if got := b.Evaluate(`document.activeElement.textContent + " " + (document.activeElement.getBoundingClientRect().left >= 0)`); got != `"Skip to the content true"` {
		t.Errorf("first stop: got %s, want the visible link to the content", got)
	}
	b.Press("Enter", 13)
	b.Until("skip", `document.activeElement.id === "content"`)
	for _, want := range []string{"name", "type", "client", "server"} {
		b.Press("Tab", 9)
		if got := b.Evaluate("document.activeElement.name"); got != `"`+want+`"` {
			t.Errorf("got the stop %s, want %s", got, want)
		}
	}
	b.Press("Tab", 9)
	b.Press("Tab", 9)
	if got := b.Evaluate("document.activeElement.textContent"); got != `"web.shop.svc.cluster.local."` {
		t.Errorf("got the stop %s, want the nearest name", got)
	}
	b.Press("Enter", 13)
	b.Until("nearest name", `document.querySelector("#answer").textContent === "web.shop.svc.cluster.local. A"`)
}

// A site whose name an attacker gives the address of the server gets neither the page nor data.
func TestChromiumRebinding(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	b := chromium.Start(t)
	w := serve(t, stock)
	for _, path := range []string{"/", "/v1/status"} {
		b.Open(strings.Replace(w.url, "127.0.0.1", "www.rebind.test", 1) + path)
		b.Until(path, `document.body.innerText.includes("is not served")`)
	}
	if got := b.Evaluate(`fetch("/v1/cache/flush?name=.", {method: "POST", headers: {"X-Seamark": "1"}}).then((r) => r.status)`); got != "403" {
		t.Errorf("flush: got the status %s, want 403", got)
	}
}
