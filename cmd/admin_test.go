package cmd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/seamark/seamark/sys/health"
	"github.com/seamark/seamark/test/freeport"
	"github.com/seamark/seamark/test/program"
)

// adminCorefile returns a Corefile with the directive admin, with a folder of manifests.
func adminCorefile(port, admin, manifests, more string) string {
	return fmt.Sprintf(".:%s {\n bind 127.0.0.1\n admin 127.0.0.1:%s {\n%s\n }\n kubernetes cluster.local {\n  manifests %s\n }\n}\n", port, admin, more, manifests)
}

// commandShows runs a command until its output contains text, and returns the output.
func commandShows(t *testing.T, dir, text string, args ...string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, stderr, code := run(t, dir, "", args...)
		if code == 0 && strings.Contains(out, text) {
			return out
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q: got status %d and\n%s%s, want %q", args, code, out, stderr, text)
		}
	}
}

// clientPods are the pods of a cluster: one, of a Deployment, has the address 127.0.0.1.
const clientPods = `{"items":[
	{"metadata":{"namespace":"shop","name":"cart-7d9c-x2","labels":{"pod-template-hash":"7d9c"},"ownerReferences":[{"kind":"ReplicaSet","name":"cart-7d9c","controller":true}]},"status":{"phase":"Running","podIPs":[{"ip":"127.0.0.1"}]}},
	{"metadata":{"namespace":"shop","name":"old"},"status":{"phase":"Succeeded","podIPs":[{"ip":"127.0.0.1"}]}}]}`

func TestAdminCommands(t *testing.T) {
	long(t)
	t.Parallel()
	dir := t.TempDir()
	examples, err := filepath.Abs("../examples")
	if err != nil {
		t.Fatal(err)
	}
	up, port, admin := freeport.Reserve(t), freeport.Reserve(t), freeport.Reserve(t)
	write(t, filepath.Join(dir, "Corefile"), adminCorefile(port, admin, examples, "")+
		".:"+up+" {\n bind 127.0.0.1\n template ANY ANY {\n  answer \"{{ .Name }} 60 IN A 192.0.2.1\"\n }\n}\n"+
		"example.org:"+port+" {\n bind 127.0.0.1\n admin 127.0.0.1:"+admin+"\n cache\n forward . 127.0.0.1:"+up+"\n}\n")
	server := serve(t, dir, "", "-conf", "Corefile")
	defer server.stop()
	at := "--admin=127.0.0.1:" + admin
	commandShows(t, dir, "127.0.0.1:"+admin+": Healthy.\n", "status", at)
	for _, name := range []string{"web.shop.svc.cluster.local.", "www.example.org.shop.svc.cluster.local.", "www.example.org.svc.cluster.local.", `a\027[31m.example.org.`} {
		if _, err := ask("udp", port, name, mdns.TypeA); err != nil {
			t.Fatal(err)
		}
	}
	commandShows(t, dir, `25 %   a\027[31m.example.org.`+"\n", "top", "names", at)
	commandShows(t, dir, "4      100 %  127.0.0.1  ", "top", "clients", at)
	commandShows(t, dir, "1      50 %   www.example.org.shop.svc.cluster.local.  127.0.0.1\n", "top", "nxdomain", at)
	commandShows(t, dir, "There are none.\n", "top", "servfail", at)
	out := commandShows(t, dir, "2      100 %  127.0.0.1  www.example.org.svc.cluster.local.  shop\n", "top", "waste", at)
	if strings.Count(out, "dnsConfig:\n        options:\n        - name: ndots\n          value: \"2\"\n") != 1 {
		t.Errorf("top waste: got\n%s\nwant the remedy once", out)
	}
	api := fakeAPI(t, map[string]string{"/api/v1/pods": clientPods})
	commandShows(t, dir, "shop/cart-7d9c-x2  Deployment/cart\n", "top", "waste", "--pods", "--kubeconfig", api, at)
	if out, stderr, code := run(t, dir, "", "tail", "--pods", "--kubeconfig", "none", at); code != 1 || !strings.Contains(stderr, "reading kubeconfig none") {
		t.Errorf("tail --pods without a kubeconfig: got status %d and\n%s%s, want 1 and the reason", code, out, stderr)
	}
	commandShows(t, dir, `"owner": "Deployment/cart"`, "top", "waste", "--pods", "--kubeconfig", api, "-o", "json", at)
	commandShows(t, dir, `a\027[31m.example.org.  A     NOERROR  1  `, "cache", "list", "example.org", at)
	for _, c := range []struct {
		args, out, err string
		code           int
	}{
		{"cache list none.example", "NAME  TYPE", "", 0},
		{"cache list --type AAAA -o json", "[]\n", "", 0},
		{"cache flush example.org", "Removed 1 cached answer.\n", "", 0},
		{"cache flush . -o json", "\"removed\": 0", "", 0},
		{"records --name web.shop --type A", "\nweb.shop.svc.cluster.local. 5 IN A 10.96.10.10\n", "", 0},
		{"records --zone cluster.local --name web.shop --type A -o json", `{"zone":"cluster.local.","directive":"kubernetes","name":"web.shop.svc.cluster.local.","ttl":5,"type":"A","data":"10.96.10.10"}`, "", 0},
		{"records --zone none.example", "", "no records\n", 1},
		{"records --directive none", "", "no records\n", 1},
		{"records --type x", "", "seamark: --type: want a record type such as SRV or TYPE65, got \"X\"", 2},
		{"records --manifests EXAMPLES --name web.shop --type A", "\nweb.shop.svc.cluster.local. 5 IN A 10.96.10.10\n", "", 0},
		{"records --conf Corefile --type MX", "", "no records\n", 1},
		{"records --conf none", "", "reading the Corefile: open none", 1},
		{"records --conf Corefile --manifests x", "", "set only one of --manifests and --conf", 2},
		{"records --conf Corefile --token-file x", "", "leave out --conf and --manifests", 2},
		{"records --conf Corefile --namespace dns", "", "leave out --conf and --manifests", 2},
		{"explain web.shop.svc.cluster.local", "NOERROR by kubernetes in zone .: Service shop/web has 10.96.10.10\n", "", 0},
		{"explain wbe.shop.svc.cluster.local", "  did you mean web.shop.svc.cluster.local.\n", "", 1},
		{"explain web. --server dns://:54", "", "no such server", 1},
		{"status --output json", "\"summary\": \"Healthy", "", 0},
		{"status --admin 127.0.0.1:1", "127.0.0.1:1: no server at 127.0.0.1:1: start it with --admin 127.0.0.1:1 or with the directive admin, or set --admin", "", 1},
		{"top names --admin 127.0.0.1:1", "", "no server at 127.0.0.1:1: start it with --admin", 1},
		{"top names --admin 127.0.0.1", "", `seamark: --admin: want a URL, HOST:PORT or unix:PATH, got "127.0.0.1"`, 2},
		{"top names --admin http://a:b@127.0.0.1:1", "", "seamark: --admin: http://(hidden)@127.0.0.1:1 has a user or parameters", 2},
		{"top nothing", "", "seamark: want one of names, clients, namespaces, nxdomain, servfail, slow, waste, denied, got \"nothing\"", 2},
		{"top names --limit 501", "", "seamark: --limit: want a number of 1..500, got 501", 2},
		{"top names --timeout 0s", "", "seamark: --timeout: want a positive duration, got 0s", 2},
		{"top names -o yaml", "", "seamark: --output: want text or json, got \"yaml\"", 2},
		{"top names --token-file none", "", "reading the token: open none", 1},
		{"top waste --pods --kubeconfig none", "", "reading kubeconfig none", 1},
		{"cache", "List or remove", "", 0},
		{"cache list --type X", "", "seamark: --type: want a record type such as SRV or TYPE65, got \"X\"", 2},
		{"cache list --limit 0", "", "seamark: --limit: want a number of 1..100000, got 0", 2},
		{"tail --client x", "", "seamark: --client: want an IP address or a network, got \"x\"", 2},
		{"tail --rcode x", "", "seamark: --rcode: want a response code such as NXDOMAIN, got \"x\"", 2},
		{"explain web --conf Corefile", "", "seamark: flags such as --admin and --namespace ask running servers: they have no --conf", 2},
		{"status --pod a/b", "", "seamark: set only one of --admin and --pod", 2},
		{"top --admin 127.0.0.1:1 --nodes", "", "seamark: set only one of --admin and --nodes", 2},
		{"status --color x", "", "seamark: --color: want auto, always or never, got \"x\"", 2},
		{"status --color always", "\x1b[32m✔ \x1b[0m\x1b[1m127.0.0.1:", "", 0},
		{"status --watch --interval 1ms", "", "seamark: --interval: want a duration of 100ms or more, got 1ms", 2},
		{"top", "\nnames: names that are queried most\nCOUNT  SHARE  NAME\n", "", 0},
		{"top", "\nThe remedy: seamark top waste\n", "", 0},
		{"top -o json", "\"by\": \"waste\"", "", 0},
		{"__complete diff --transport p", "port-forward\n", "ShellCompDirectiveNoFileComp", 0},
		{"__complete status --color al", "always\n", "ShellCompDirectiveNoFileComp", 0},
		{"__complete node --sandbox r", "required\n", "ShellCompDirectiveNoFileComp", 0},
		{"__complete status --context x", ":4\n", "ShellCompDirectiveNoFileComp", 0},
		{"__complete status --kubeconfig x", ":0\n", "ShellCompDirectiveDefault", 0},
		{"__complete top na", "names\tnames that are queried most\n", "Completion ended", 0},
		{"__complete tail --source f", "forward\n", "Completion ended", 0},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "EXAMPLES", examples))
		if c.args == "status --pod a/b" {
			args = append(args, "--admin=127.0.0.1:1")
		}
		if i := strings.Index(strings.Join(args, " "), " --admin"); i < 0 && args[0] != "__complete" && c.args != "cache" && !strings.HasPrefix(c.args, "records --conf") && !strings.HasPrefix(c.args, "records --manifests") {
			args = append(args, at)
		}
		out, stderr, code := run(t, dir, "", args...)
		if !strings.Contains(out, c.out) || !strings.Contains(stderr, c.err) || code != c.code {
			t.Errorf("%s: got status %d and\n%s%s, want %d, %q and %q", c.args, code, out, stderr, c.code, c.out, c.err)
		}
	}
}

// A tail goes on after a reload, shows the pods of clients with --pods, and ends at SIGINT.
func TestTail(t *testing.T) {
	long(t)
	t.Parallel()
	dir, port, admin := t.TempDir(), freeport.Reserve(t), freeport.Reserve(t)
	write(t, filepath.Join(dir, "Corefile"), ".:"+port+" {\n bind 127.0.0.1\n admin 127.0.0.1:"+admin+"\n whoami\n}\n")
	server := serve(t, dir, "", "-conf", "Corefile")
	defer server.stop()
	api := fakeAPI(t, map[string]string{"/api/v1/pods": clientPods})
	for _, c := range []struct{ args, want string }{
		{"--output text", "TIME     CLIENT          TYPE  RCODE    TOOK    NAME SOURCE\n"},
		{"--output json", `"name":"other.example.","type":"A"`},
		{"--pods --kubeconfig " + api, " 127.0.0.1       A     NOERROR  "},
		{"--pods --kubeconfig " + api, " other.example. whoami shop/cart-7d9c-x2 Deployment/cart\n"},
		{"--output json --pods --kubeconfig " + api, `"pod":"shop/cart-7d9c-x2","owner":"Deployment/cart"}`},
	} {
		tail := program.Command(t, dir, append(strings.Fields("tail --admin http://127.0.0.1:"+admin+" --name other"), strings.Fields(c.args)...)...)
		out, err := tail.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		stderr, err := tail.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := tail.Start(); err != nil {
			t.Fatal(err)
		}
		messages := bufio.NewReader(stderr)
		if line, err := messages.ReadString('\n'); err != nil || !strings.HasPrefix(line, "Showing the queries that 127.0.0.1:") {
			t.Fatalf("standard error: got %q and error %v", line, err)
		}
		server.signal(syscall.SIGHUP)
		if line, err := messages.ReadString('\n'); err != nil || !strings.HasPrefix(line, "Connected to 127.0.0.1:") || !strings.HasSuffix(line, " again: queries in between are not shown.\n") {
			t.Fatalf("standard error after a reload: got %q and error %v", line, err)
		}
		for _, name := range []string{"a.example.", "other.example."} {
			if _, err := ask("udp", port, name, mdns.TypeA); err != nil {
				t.Fatal(err)
			}
		}
		lines := bufio.NewReader(out)
		line, err := lines.ReadString('\n')
		if err == nil && strings.HasPrefix(line, "TIME ") && !strings.HasPrefix(c.want, "TIME ") {
			line, err = lines.ReadString('\n')
		}
		if err != nil || !strings.Contains(line, c.want) {
			t.Errorf("tail %s: got %q and error %v, want %q", c.args, line, err, c.want)
		}
		if err := tail.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := tail.Wait(); err != nil {
			t.Errorf("at SIGINT: got %v, want status 0", err)
		}
	}
}

// Two replicas with different records are reported, with equal ones not.
func TestStatusReplicas(t *testing.T) {
	long(t)
	t.Parallel()
	dir := t.TempDir()
	manifest := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}\n"
	var args []string
	for i, name := range []string{"a", "b", "c"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			manifest = strings.Replace(manifest, "10.96.0.10", "10.96.0.11", 1)
		}
		write(t, filepath.Join(dir, name, "web.yaml"), manifest)
		write(t, filepath.Join(dir, "token"), "secret\n")
		admin := freeport.Reserve(t)
		write(t, filepath.Join(dir, "Corefile."+name), adminCorefile(freeport.Reserve(t), admin, name, "  token token"))
		server := serve(t, dir, "", "-conf", "Corefile."+name)
		defer server.stop()
		args = append(args, "--admin", "127.0.0.1:"+admin)
	}
	out, stderr, code := run(t, dir, "", append([]string{"status"}, args[:2]...)...)
	if want := " wants a token: set --token-file or the environment variable SEAMARK_ADMIN_TOKEN\n"; code != 1 || !strings.Contains(out, want) {
		t.Errorf("without a token: got status %d and\n%s%s, want %q", code, out, stderr, want)
	}
	write(t, filepath.Join(dir, "other"), "other\n")
	out, stderr, code = run(t, dir, "", append([]string{"status", "--token-file", "other"}, args[:2]...)...)
	if want := " refuses the token of other: "; code != 1 || !strings.Contains(out, want) {
		t.Errorf("with another token: got status %d and\n%s%s, want %q", code, out, stderr, want)
	}
	out = commandShows(t, dir, "\nSERVER           NODE  UP  ", append([]string{"status", "--token-file", "token"}, args[:4]...)...)
	if strings.Contains(out, "WARNING") || strings.Count(out, ": Healthy.\n") != 2 {
		t.Errorf("equal replicas: got\n%s\nwant two healthy ones and no warning", out)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		out, _, code = run(t, dir, "", append([]string{"status", "--token-file", "token"}, args...)...)
		if code == 1 && strings.Contains(out, "WARNING   the servers serve different records of the zones cluster.local.\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("different replicas: got status %d and\n%s", code, out)
		}
	}

	// The others see each server beside the others.
	for command, want := range map[string]string{
		"records --type A --name web":        "\n; only on " + args[1] + ", " + args[3] + "\nweb.shop.svc.cluster.local. 5 IN A 10.96.0.10\n",
		"explain web.shop.svc.cluster.local": args[5] + ":\n",
		"cache flush .":                      "Removed 0 cached answers: 0 of " + args[1],
		"top names":                          "3 servers together, in the last ",
	} {
		out, stderr, _ := run(t, dir, "", append(append(strings.Fields(command), "--token-file", "token"), args...)...)
		if !strings.Contains(out, want) {
			t.Errorf("%s: got\n%s%s\nwant %q", command, out, stderr, want)
		}
	}
	if out, _, _ := run(t, dir, "", append([]string{"top", "names", "--token-file", "token", "--admin", "127.0.0.1:1"}, args...)...); !strings.Contains(out, "3 servers together") {
		t.Errorf("one server of four does not answer: got\n%s\nwant those of the others", out)
	}
	out, _, _ = run(t, dir, "", append([]string{"status", "--token-file", "token", "--output", "json"}, args...)...)
	var report struct {
		Healthy    bool
		Servers    []struct{ Server string }
		Conditions []health.Condition
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Servers) != 3 || report.Healthy ||
		len(report.Conditions) != 1 || report.Conditions[0].Object != "records" {
		t.Errorf("json: got %s and error %v, want three servers that differ", out, err)
	}
}

// A server of another version, or another program, does not confuse the commands, and
// nothing that it sends reaches the terminal as an escape.
func TestAdminOfAnotherVersion(t *testing.T) {
	long(t)
	t.Parallel()
	pages := map[string]string{
		"/v1/status":  `{"summary":"Fine.\u001b[31m","conditions":[{"severity":"note","text":"\u001b[31m","next":"\u001b"}],"metrics":{"seamark_forward_upstream_up{to=\"192.0.2.1:53\"}":0},"new":[1]}`,
		"/v1/top":     `{"by":"names","entries":[{"key":"a\u009b31m\u001b]0;x\u0007","count":3,"new":1}]}`,
		"/v1/cache":   `[{"name":"a\u001b[31m"}]`,
		"/v1/records": "{\"name\":\"a\\u001b[31m\",\"data\":\"b\\nc\"}\n{}\n",
		"/v1/tail":    "\n{\"name\":\"a\\u001b[31m\",\"new\":1}\n{\"lost\":7}\n",
		"/v1/explain": `{"name":"a\u001b[31m","type":"\u001b","summary":"\u202e","steps":[{"directive":"\u001b","depth":1000000000}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := pages[r.URL.Path]
		switch r.URL.Query().Get("name") {
		case "busy":
			w.WriteHeader(http.StatusServiceUnavailable)
			page = `{"error":"64 requests are being served: try again"}`
		case "huge":
			page = strings.Repeat("x", 2<<20)
		case "web":
			w.Header().Set("Content-Type", "text/html")
		case "moved":
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		case "silent":
			<-r.Context().Done()
		}
		if page == "" {
			http.NotFound(w, r)
			return
		}
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", "application/json")
		}
		fmt.Fprint(w, page)
	}))
	defer server.Close()
	for _, c := range []struct {
		args, out, err string
		code           int
	}{
		{"status", "Fine.", "", 0},
		{"status", "upstream 192.0.2.1:53  DOWN\n", "", 0},
		{"top names", "3      0 %    a", "", 0},
		{"top names -o json", `"key": "a\u009b31m\u001b]0;x\u0007"`, "", 0},
		{"cache list", "a", "", 0},
		{"cache flush a", "", "has no /v1/cache/flush: is it another program, or another version of Seamark?\n", 1},
		{"records", " b\uFFFDc\n", "", 0},
		{"records --name huge", "", "token too long", 1},
		{"records --name busy", "", "is busy: 64 requests are being served: try again\n", 1},
		{"records --name web", "", "is not the address of a directive admin: want JSON, got \"text/html\"\n", 1},
		{"records --name moved", "", ": 302 Found\n", 1},
		{"records --name silent --timeout 100ms", "", "sent nothing for too long: set a longer --timeout\n", 1},
		{"tail", "7 queries not shown: there are too many\n", "has ended the connection\n", 1},
		{"explain a", "a", "", 1},
	} {
		out, stderr, code := run(t, t.TempDir(), "", append(strings.Fields(c.args), "--admin", server.URL)...)
		if !strings.Contains(out, c.out) || !strings.Contains(stderr, c.err) || code != c.code {
			t.Errorf("%s: got status %d and\n%s%s, want %d, %q and %q", c.args, code, out, stderr, c.code, c.out, c.err)
		}
		if strings.ContainsAny(out+stderr, "\x1b\x07\u009b\u202e") {
			t.Errorf("%s: got %q, want no control character", c.args, out+stderr)
		}
	}
}
