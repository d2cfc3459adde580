package cmd_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/seamark/seamark/test/chaintest"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"

	mdns "github.com/miekg/dns"

	"github.com/seamark/seamark/test/chromium"
)

// The command ui serves the page of a server, with its token, to the browser that opens the
// URL, until a signal.
func TestUI(t *testing.T) {
	dir, admin := t.TempDir(), freeport.Reserve(t)
	write(t, filepath.Join(dir, "token"), "secret\n")
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(".:%s {\n bind 127.0.0.1\n admin 127.0.0.1:%s {\n  token token\n }\n whoami\n}\na:%s {\n admin unix admin.sock\n whoami\n}\n", freeport.Reserve(t), admin, freeport.Reserve(t)))
	server := serve(t, dir, "", "-conf", "Corefile")
	defer server.stop()
	// A browser that writes down what it opens.
	bin := t.TempDir()
	write(t, filepath.Join(bin, "xdg-open"), "#!/bin/sh\necho \"$1\" >opened.new && mv opened.new opened\n")
	if err := os.Chmod(filepath.Join(bin, "xdg-open"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--no-browser", "--admin", "127.0.0.1:" + admin, "--token-file", "token"},
		{"--no-browser", "--admin", "unix:admin.sock"},
		{"--admin", "unix:admin.sock"},
	} {
		ui, url := startUI(t, dir, bin, args...)
		if args[0] != "--no-browser" && runtime.GOOS == "linux" {
			chaintest.Eventually(t, "the browser", func() bool {
				text, err := os.ReadFile(filepath.Join(dir, "opened"))
				return err == nil && string(text) == url+"\n"
			})
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		transport := new(http.Transport)
		browser := &http.Client{Jar: jar, Transport: transport}
		base := url[:strings.Index(url, "/open/")]
		for _, c := range []struct {
			client *http.Client
			url    string
			code   int
			want   string
		}{
			{http.DefaultClient, base + "/v1/status", 403, "run seamark ui again"},
			{browser, url, 200, `aria-current="page">Overview</a>`},
			{browser, base + "/page.js", 200, "refresh"},
			{browser, base + "/v1/status", 200, `"summary": "Healthy`},
			{http.DefaultClient, url, 403, "run seamark ui again"},
		} {
			reply, err := c.client.Get(c.url)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(reply.Body)
			_ = reply.Body.Close()
			if err != nil || reply.StatusCode != c.code || !strings.Contains(string(text), c.want) {
				t.Errorf("ui %s: %s: got %d %.300s and error %v, want %d and %q", args, c.url, reply.StatusCode, text, err, c.code, c.want)
			}
		}
		transport.CloseIdleConnections()
		stopUI(t, ui)
	}
	for args, want := range map[string]string{
		"ui --admin 127.0.0.1:" + admin: "wants a token: set --token-file", "ui --admin 127.0.0.1:1": "no server at 127.0.0.1:1", "ui --admin unix:none": "no server at unix:none",
		"ui --port 0 --admin a:1": "--port: want 1..65535, got 0", "ui --timeout 0s": "--timeout: want a positive duration", "ui --kubeconfig none": "reading kubeconfig",
	} {
		if out, stderr, code := run(t, dir, "", strings.Fields(args)...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: got status %d and\n%s%s, want an error with %q", args, code, out, stderr, want)
		}
	}
}

// startUI runs the command ui, with programs of the folder bin, and returns the URL that it
// prints.
func startUI(t *testing.T, dir, bin string, args ...string) (ui *exec.Cmd, url string) {
	t.Helper()
	ui = program.Command(t, dir, append([]string{"ui"}, args...)...)
	ui.Env = append(ui.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := ui.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ui.Start(); err != nil {
		t.Fatal(err)
	}
	url, err = bufio.NewReader(out).ReadString('\n')
	url = strings.TrimSpace(url)
	if err != nil || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("ui %s: got the URL %q and error %v", args, url, err)
	}
	return ui, url
}

// stopUI ends the command with Ctrl-C.
func stopUI(t *testing.T, ui *exec.Cmd) {
	t.Helper()
	if err := ui.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := ui.Wait(); err != nil {
		t.Errorf("%s after SIGINT: got %v, want status 0", ui.Args, err)
	}
}

// A browser shows the page that the command ui serves: its policy, the cookie and the Host
// check permit the links, forms, the stream of queries and the flush of cached answers.
func TestUIChromium(t *testing.T) {
	long(t)
	t.Parallel()
	b := chromium.Start(t)
	dir, port, admin := t.TempDir(), freeport.Reserve(t), freeport.Reserve(t)
	write(t, filepath.Join(dir, "token"), "secret\n")
	write(t, filepath.Join(dir, "Corefile"), fmt.Sprintf(".:%s {\n bind 127.0.0.1\n admin 127.0.0.1:%s {\n  token token\n }\n cache\n whoami\n}\n", port, admin))
	server := serve(t, dir, "", "-conf", "Corefile")
	defer server.stop()
	ui, url := startUI(t, dir, t.TempDir(), "--no-browser", "--admin", "127.0.0.1:"+admin, "--token-file", "token")
	b.Open(url)
	b.Until("overview", `document.querySelector("nav [aria-current=page]").textContent === "Overview" && document.body.innerText.includes("Healthy")`)
	if got := b.Evaluate("location.pathname"); got != `"/"` {
		t.Errorf("got the path %s, want one without the secret", got)
	}
	follow := func(page string) {
		b.Evaluate(`document.querySelector("nav a[href=` + page + `]").click()`)
		b.Until(page, `location.pathname === "/`+page+`" && document.readyState === "complete"`)
	}
	follow("explain")
	b.Evaluate(`document.querySelector("input[name=name]").value = "www.example.org"; document.querySelector("main form button").click()`)
	b.Until("explanation", `document.querySelector("#answer")?.textContent === "www.example.org. A" && document.body.innerText.includes("by whoami")`)
	follow("queries")
	b.Until("tail", `document.getElementById("tail-state")?.textContent === "Following."`)
	if _, err := ask("udp", port, "seen.example.org.", mdns.TypeA); err != nil {
		t.Fatal(err)
	}
	b.Until("tail", `document.querySelector("#tail tr th")?.textContent === "seen.example.org."`)
	follow("cache")
	b.Evaluate(`document.querySelector("main form:last-of-type input").value = "example.org"; document.querySelector("main form:last-of-type button").click()`)
	b.Until("flush", `document.querySelector("main form:last-of-type [role=status]").textContent === "0 answers removed."`)
	for _, m := range b.Console {
		t.Errorf("got the message %s", m)
	}
	// The secret opens one browser, and a site whose name has the address of the page gets nothing.
	b.Call("Network.clearBrowserCookies", nil, nil)
	b.Open(url)
	b.Until("second use", `document.body.innerText.includes("run seamark ui again")`)
	b.Open(strings.Replace(url, "127.0.0.1", "www.rebind.test", 1))
	b.Until("DNS rebinding", `document.body.innerText.includes("this address is not served")`)
	stopUI(t, ui)
}
