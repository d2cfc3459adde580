package admin_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A browser is a tab of headless Chromium, which the DevTools protocol controls over pipes.
type browser struct {
	t        *testing.T
	to, from *os.File
	messages *bufio.Reader
	session  string
	id       int
	console  []string // messages, errors and violations of the page's policy
}

// newBrowser starts Chromium. It skips the test if there is none; with
// SEAMARK_TEST_CHROMIUM=needed the test fails instead.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	switch {
	case err == nil:
	case os.Getenv("SEAMARK_TEST_CHROMIUM") != "":
		t.Fatal("chromium is not installed: install Debian's chromium")
	default:
		t.Skip("chromium is not installed: install Debian's chromium; .ci/run sets SEAMARK_TEST_CHROMIUM, with which this is a failure")
	}
	b := &browser{t: t}
	childFrom, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, childTo, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b.to, b.from, b.messages = to, from, bufio.NewReader(from)
	profile, err := os.MkdirTemp("", "chromium")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	c.ExtraFiles = []*os.File{childFrom, childTo}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	childFrom.Close()
	childTo.Close()
	t.Cleanup(func() {
		_, _ = to.Write([]byte(`{"id":0,"method":"Browser.close"}` + "\x00"))
		stop := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		stop.Stop()
		to.Close()
		from.Close()
		_ = os.RemoveAll(profile)
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// call sends a command that must succeed.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

// try sends a command and reads messages until its result. It returns the error of the
// browser.
func (b *browser) try(method string, params, result any) error {
	b.t.Helper()
	b.id++
	command := map[string]any{"id": b.id, "method": method}
	if params != nil {
		command["params"] = params
	}
	if b.session != "" {
		command["sessionId"] = b.session
	}
	text, err := json.Marshal(command)
	if err != nil {
		b.t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	_ = b.to.SetWriteDeadline(deadline)
	_ = b.from.SetReadDeadline(deadline)
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	for {
		line, err := b.messages.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		var m struct {
			ID             int
			Method         string
			Params, Result json.RawMessage
			Error          *struct{ Message string }
		}
		if err := json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &m); err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		switch {
		case m.Method == "Runtime.exceptionThrown", m.Method == "Runtime.consoleAPICalled", m.Method == "Log.entryAdded", m.Method == "Page.javascriptDialogOpening":
			b.console = append(b.console, string(m.Params))
		case m.Method != "" || m.ID != b.id:
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		default:
			if result != nil {
				if err := json.Unmarshal(m.Result, result); err != nil {
					b.t.Fatalf("%s: %v", method, err)
				}
			}
			return nil
		}
	}
}

// evaluate returns the value of a JavaScript expression as JSON.
func (b *browser) evaluate(expression string) string {
	b.t.Helper()
	value, err := b.tryToEvaluate(expression)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

func (b *browser) tryToEvaluate(expression string) (string, error) {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	err := b.try("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if err == nil && r.ExceptionDetails != nil {
		err = fmt.Errorf("%s: %s", expression, r.ExceptionDetails)
	}
	return string(r.Result.Value), err
}

// until waits until a JavaScript expression is true. It may fail meanwhile: a page that is
// being loaded lacks elements.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		value, err := b.tryToEvaluate("Boolean(" + expression + ")")
		if value == "true" {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: %s is not true, with error %v; the page has: %s; the console has: %v", what, expression, err, b.evaluate("document.body?.innerText"), b.console)
		}
	}
}

// open opens a page and waits until it is loaded.
func (b *browser) open(address string) {
	b.t.Helper()
	b.console = nil
	b.evaluate("window.left = true")
	b.call("Page.navigate", map[string]any{"url": address}, nil)
	b.until(address, `!window.left && document.readyState === "complete"`)
}

// screen sets the width of the window and the colour scheme.
func (b *browser) screen(width, height int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// screenshot writes a picture of the whole page to the folder that
// SEAMARK_TEST_SCREENSHOTS names, for people to look at.
func (b *browser) screenshot(name string) {
	folder := os.Getenv("SEAMARK_TEST_SCREENSHOTS")
	if folder == "" {
		return
	}
	var picture struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &picture)
	text, err := base64.StdEncoding.DecodeString(picture.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), text, 0o600)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// press presses a key.
func (b *browser) press(key string, code int) {
	for _, kind := range []string{"keyDown", "keyUp"} {
		event := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if key == "Enter" && kind == "keyDown" {
			event["text"] = "\r"
		}
		b.call("Input.dispatchKeyEvent", event, nil)
	}
}

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
	b := newBrowser(t)
	w := serve(t, stock)
	w.storm()
	w.eventually("/queries?name=img", "onerror=alert")
	for i, page := range pages() {
		code, _ := w.request("GET", page)
		b.open(w.url + page)
		for _, s := range []struct {
			width, height int
			scheme        string
		}{{1280, 900, "light"}, {1280, 900, "dark"}, {360, 740, "dark"}, {360, 740, "light"}} {
			name := fmt.Sprintf("%s, %d, %s", page, s.width, s.scheme)
			b.screen(s.width, s.height, s.scheme)
			b.until(name, fmt.Sprintf("innerWidth === %d && matchMedia('(prefers-color-scheme: %s)').matches", s.width, s.scheme))
			b.screenshot(fmt.Sprintf("%02d-%d-%s", i, s.width, s.scheme))
			if got := b.evaluate("document.documentElement.scrollWidth <= innerWidth"); got != "true" {
				t.Errorf("%s: got a page %s pixels wide", name, b.evaluate("document.documentElement.scrollWidth"))
			}
			if got := b.evaluate(lowContrast); got != `""` {
				t.Errorf("%s: got low contrast: %s", name, got)
			}
		}
		if got := b.evaluate("document.querySelectorAll('main img, main script, main style, iframe, object').length"); got != "0" {
			t.Errorf("%s: got %s elements of a hostile name, want none", page, got)
		}
		for _, m := range b.console {
			if code == 200 || !strings.Contains(m, fmt.Sprintf("status of %d", code)) {
				t.Errorf("%s: got the message %s", page, m)
			}
		}
	}
}

// The test of the pages finds a violation of the policy, low contrast and a page that is too
// wide.
func TestChromiumFindsFaults(t *testing.T) {
	b := newBrowser(t)
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
	b.screen(360, 740, "light")
	b.open(bad.URL)
	if got := strings.Join(b.console, "\n"); !strings.Contains(got, "Content Security Policy") || b.evaluate("Boolean(window.ran)") != "false" {
		t.Errorf("got the messages %s, want a violation of the policy", got)
	}
	if got := b.evaluate(lowContrast); !strings.Contains(got, "FONT weak 2.") {
		t.Errorf("got %s, want low contrast", got)
	}
	if got := b.evaluate("document.documentElement.scrollWidth > innerWidth"); got != "true" {
		t.Errorf("got a page %s pixels wide, want more than 360", b.evaluate("document.documentElement.scrollWidth"))
	}
}

// The module follows queries and shows hostile names as text; it refreshes the overview,
// and removes cached answers.
func TestChromiumModule(t *testing.T) {
	b := newBrowser(t)
	w := serve(t, stock)
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": "const interval = setInterval; window.setInterval = (f) => interval(f, 100);"}, nil)
	b.open(w.url + "/queries?rcode=NXDOMAIN")
	b.until("tail", `document.getElementById("tail-state").textContent === "Following."`)
	w.query(hostileName("shop.svc.cluster.local"))
	w.query("web.shop.svc.cluster.local")
	w.query("last.shop.svc.cluster.local")
	b.until("tail", `document.querySelector("#tail tr th")?.textContent === "last.shop.svc.cluster.local."`)
	if got := b.evaluate(`[...document.querySelectorAll("#tail th")].map((e) => e.textContent).join(" ")`); !strings.Contains(got, `<img\\032src=x\\032onerror=alert`) || strings.Contains(got, "web.shop") {
		t.Errorf("tail: got %s, want the hostile name and no NOERROR", got)
	}
	if got := b.evaluate(`document.querySelectorAll("#tail a[href^=\"explain?name=\"]").length`); got != "2" {
		t.Errorf("tail: got %s links, want 2", got)
	}
	b.screenshot("tail")
	b.evaluate(`document.querySelector("main > button").click()`)
	b.until("pause", `document.getElementById("tail-state").textContent === "Paused."`)
	b.evaluate(`document.querySelector("main > button").click()`)
	b.until("continue", `document.getElementById("tail-state").textContent === "Following."`)
	w.query("after.shop.svc.cluster.local")
	b.until("continue", `document.querySelector("#tail tr th")?.textContent === "after.shop.svc.cluster.local."`)

	b.open(w.url + "/")
	b.evaluate(`document.querySelector("details").open = true`)
	w.query("refreshed.shop.svc.cluster.local")
	b.until("refresh", `document.getElementById("live").textContent.includes("refreshed.shop")`)
	if got := b.evaluate(`document.querySelector("details").open`); got != "true" {
		t.Errorf("refresh: got a closed table of figures, want an open one")
	}

	w.query("www.example.org")
	b.open(w.url + "/cache")
	b.until("cache", `document.getElementById("live").textContent.includes("www.example.org.")`)
	b.evaluate(`document.querySelector("main form:last-of-type input").value = "example.org"; document.querySelector("main form:last-of-type button").click()`)
	b.until("flush", `document.querySelector("main form:last-of-type [role=status]").textContent === "1 answers removed."`)
	b.until("flush", `!document.getElementById("live").textContent.includes("www.example.org.")`)
	for _, m := range b.console {
		t.Errorf("got the message %s", m)
	}
}

// The first stop of the keyboard skips the navigation, and forms work with it.
func TestChromiumKeyboard(t *testing.T) {
	b := newBrowser(t)
	w := serve(t, stock)
	b.open(w.url + "/explain?name=" + url.QueryEscape("wbe.shop.svc.cluster.local"))
	b.press("Tab", 9)
	if got := b.evaluate(`document.activeElement.textContent + " " + (document.activeElement.getBoundingClientRect().left >= 0)`); got != `"Skip to the content true"` {
		t.Errorf("first stop: got %s, want the visible link to the content", got)
	}
	b.press("Enter", 13)
	b.until("skip", `document.activeElement.id === "content"`)
	for _, want := range []string{"name", "type", "client"} {
		b.press("Tab", 9)
		if got := b.evaluate("document.activeElement.name"); got != `"`+want+`"` {
			t.Errorf("got the stop %s, want %s", got, want)
		}
	}
	b.press("Tab", 9)
	b.press("Tab", 9)
	if got := b.evaluate("document.activeElement.textContent"); got != `"web.shop.svc.cluster.local."` {
		t.Errorf("got the stop %s, want the nearest name", got)
	}
	b.press("Enter", 13)
	b.until("nearest name", `document.querySelector("#answer").textContent === "web.shop.svc.cluster.local. A"`)
}
