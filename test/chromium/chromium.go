// Package chromium controls a headless Chromium, for tests of the web page of the directive
// admin: those of directive/admin and cmd call Start. Chromium is Debian's package; the tab has
// only the commands that the tests need.
package chromium

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/seamark/seamark/test/debian"
)

// A Tab is a tab of headless Chromium, which the DevTools protocol controls over pipes.
type Tab struct {
	t        *testing.T
	to, from *os.File
	messages *bufio.Reader
	session  string
	id       int
	Console  []string // messages, errors and violations of the page's policy
}

// Start starts Chromium, for which names in rebind.test have the address 127.0.0.1.
func Start(t *testing.T) *Tab {
	t.Helper()
	program := debian.Program(t, "chromium")
	b := &Tab{t: t}
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

	c := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--host-resolver-rules=MAP *.rebind.test 127.0.0.1", "--user-data-dir="+profile, "--remote-debugging-pipe",
		"about:blank")
	c.ExtraFiles = []*os.File{childFrom, childTo}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}

	childFrom.Close()
	childTo.Close()
	t.Cleanup(func() {
		_, _ = to.Write([]byte(`{"id":0,"method":"Browser.close"}` + "\x00"))
		stop := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		stop.Stop()
		to.Close()
		from.Close()
		_ = os.RemoveAll(profile)
	})

	var target struct{ TargetID string }
	b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.Call(domain+".enable", nil, nil)
	}

	return b
}

// Call sends a command that must succeed.
func (b *Tab) Call(method string, params, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

// try sends a command and reads messages until its result. It returns the error of the
// browser.
func (b *Tab) try(method string, params, result any) error {
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

	deadline := time.Now().Add(time.Minute)
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
		case m.Method == "Runtime.exceptionThrown", m.Method == "Runtime.consoleAPICalled",
			m.Method == "Log.entryAdded", m.Method == "Page.javascriptDialogOpening":
			b.Console = append(b.Console, string(m.Params))
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

// Evaluate returns the value of a JavaScript expression as JSON.
func (b *Tab) Evaluate(expression string) string {
	b.t.Helper()
	value, err := b.tryToEvaluate(expression)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

func (b *Tab) tryToEvaluate(expression string) (string, error) {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	err := b.try("Runtime.evaluate",
		map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if err == nil && r.ExceptionDetails != nil {
		err = fmt.Errorf("%s: %s", expression, r.ExceptionDetails)
	}
	return string(r.Result.Value), err
}

// Until waits until a JavaScript expression is true. It may fail meanwhile: a page that is
// being loaded lacks elements.
func (b *Tab) Until(what, expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		value, err := b.tryToEvaluate("Boolean(" + expression + ")")
		if value == "true" {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: %s is not true, with error %v; the page has: %s; the console has: %v", what, expression,
				err, b.Evaluate("document.body?.innerText"), b.Console)
		}
	}
}

// Open opens a page and waits until it is loaded.
func (b *Tab) Open(address string) {
	b.t.Helper()
	b.Console = nil
	b.Evaluate("window.left = true")
	b.Call("Page.navigate", map[string]any{"url": address}, nil)
	b.Until(address, `!window.left && document.readyState === "complete"`)
}

// Screen sets the width of the window and the colour scheme.
func (b *Tab) Screen(width, height int, scheme string) {
	b.t.Helper()
	b.Call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.Call("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Screenshot writes a picture of the whole page to the folder that
// SEAMARK_TEST_SCREENSHOTS names, for people to look at.
func (b *Tab) Screenshot(name string) {
	folder := os.Getenv("SEAMARK_TEST_SCREENSHOTS")
	if folder == "" {
		return
	}
	var picture struct{ Data string }
	b.Call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &picture)
	text, err := base64.StdEncoding.DecodeString(picture.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), text, 0o600)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// Press presses a key.
func (b *Tab) Press(key string, code int) {
	for _, kind := range []string{"keyDown", "keyUp"} {
		event := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if key == "Enter" && kind == "keyDown" {
			event["text"] = "\r"
		}
		b.Call("Input.dispatchKeyEvent", event, nil)
	}
}
