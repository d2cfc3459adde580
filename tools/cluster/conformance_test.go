//go:build linux

package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseConformance(t *testing.T) {
	o, c, err := parseConformance(strings.Fields("-proxy nftables -only seamark -suites dns -focus hostname"))
	if err != nil || o.Proxy != "nftables" || c.Only != "seamark" || !slices.Equal(c.Suites, []string{"dns"}) ||
		c.Focus.String() != "hostname" {
		t.Errorf("got %+v, %+v, %v", o, c, err)
	}
	if _, c, err = parseConformance(nil); err != nil || !slices.Contains(c.Suites, "dns") {
		t.Errorf("without flags: got the suites %q, %v, want dns among them", c.Suites, err)
	}

	for _, test := range []struct{ args, want string }{
		{"-only bind", "want seamark or coredns"},
		{"-suites dns,none", "-suites none: want dns"},
		{"-focus (", "-focus: "},
		{"-nodes 0", "-nodes 0"},
		{"dns", "want flags"},
	} {
		if _, _, err := parseConformance(strings.Fields(test.args)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got the error %v, want one with %q", test.args, err, test.want)
		}
	}
}

func TestProgressOfTests(t *testing.T) {
	const out = `Will run 2 of 7000 specs
------------------------------
[sig-network] DNS should do one
k8s.io/kubernetes/test/e2e/network/dns.go:55
  STEP: Creating a pod
• [5.123 seconds]
------------------------------
SSSS
------------------------------
[sig-network] DNS should do two [Serial] [sig-network, Serial]
k8s.io/kubernetes/test/e2e/network/dns.go:60
• [FAILED] [1.000 seconds]
[sig-network] DNS [It] should do two
------------------------------
`
	var got []string
	progress(strings.NewReader(out), func(line string) { got = append(got, line) })
	want := []string{"passed     5.1 s  [sig-network] DNS should do one", "failed     1.0 s  [sig-network] DNS should do two [Serial]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWithMulticluster(t *testing.T) {
	got := withMulticluster("    kubernetes cluster.local in-addr.arpa ip6.arpa {\n    pods insecure\n")
	want := "    kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {\n" +
		"           multicluster clusterset.local\n    pods insecure\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseDig(t *testing.T) {
	const out = `;; Got answer:
;; ->>HEADER<<- opcode: QUERY, status: NOERROR, id: 1
;; flags: qr aa rd; QUERY: 1, ANSWER: 2, AUTHORITY: 0, ADDITIONAL: 1

b. 30 IN A 192.0.2.2
a. 30 IN SRV 0 50 80 a.b.
;; Got answer:
;; ->>HEADER<<- opcode: QUERY, status: NXDOMAIN, id: 2

;; OPT PSEUDOSECTION:
; EDE: 18 (Prohibited): (policy)
`
	want := []string{"NOERROR 192.0.2.2, 80 a.b.", "NXDOMAIN EDE 18"}
	if got := parseDig(out); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSumOfMetric(t *testing.T) {
	const page = "# TYPE x counter\nx{a=\"b c\"} 2\nx 1\nx_total 5\n"
	if got := sumOfMetric(page, "x"); got != 3 {
		t.Errorf("got %v, want 3", got)
	}
	if got := sumOfMetric(page, "x", `a="b c"`); got != 2 {
		t.Errorf("with a label: got %v, want 2", got)
	}
}

func TestReadGinkgo(t *testing.T) {
	const text = `[{"SpecReports": [
{"LeafNodeType": "BeforeSuite", "State": "passed"},
{"ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "one", "State": "passed", "RunTime": 1500000000},
{"ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "two", "State": "skipped"},
{"ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "three", "State": "skipped",
 "Failure": {"Message": "only for gce"}},
{"ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "four", "State": "timedout",
 "Failure": {"Message": "slow"}},
{"ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "five", "State": "interrupted",
 "Failure": {"Message": "by user"}}]}]`
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := readGinkgo(file)
	want := []result{
		{Name: "[sig-network] DNS one", Outcome: passed, Seconds: 1.5},
		{Name: "[sig-network] DNS three", Outcome: skipped, Message: "only for gce"},
		{Name: "[sig-network] DNS four", Outcome: failed, Message: "slow"},
		{Name: "[sig-network] DNS five", Outcome: skipped, Message: "by user"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestReport(t *testing.T) {
	start := time.Date(2026, 11, 27, 20, 0, 0, 0, time.UTC)
	r := report{Date: start, Versions: map[string]string{"CoreDNS": "1.15.0"}, Results: []result{
		{"coredns", "dns", "one", passed, start, 1.5, ""},
		{"coredns", "dns", "two", failed, start, 2, "no route\nto 8.8.8.8"},
		{"seamark", "dns", "one", passed, start, 1, ""},
		{"seamark", "dns", "two", failed, start, 2, "no route"},
		{"seamark", "dns", "three", skipped, start, 0, "only for <gce>"},
	}}
	if err := r.verdict(); err != nil {
		t.Errorf("one that fails with both servers: got the error %v, want none", err)
	}
	dir := t.TempDir()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}

	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, want := range []string{"CoreDNS 1.15.0", "seamark  dns    1       1       1", "      to 8.8.8.8\n"} {
		if text := string(read("report.txt")); !strings.Contains(text, want) {
			t.Errorf("report.txt: got\n%s\nwant %q in it", text, want)
		}
	}
	var again report
	if err := json.Unmarshal(read("report.json"), &again); err != nil || !slices.Equal(again.Results, r.Results) {
		t.Errorf("report.json: got %+v, %v, want %+v", again.Results, err, r.Results)
	}
	var junit junitSuites
	if err := xml.Unmarshal(read("report.xml"), &junit); err != nil || len(junit.Suites) != 2 {
		t.Fatalf("report.xml: got %+v, %v, want two suites", junit, err)
	}
	if s := junit.Suites[1]; s.Tests != 3 || s.Failures != 1 || s.Skipped != 1 || s.Cases[1].Failure == nil ||
		s.Cases[2].Skipped.Message != "only for <gce>" {
		t.Errorf("report.xml: got %+v, want 3 tests, 1 failure, 1 skipped", s)
	}

	r.Results[1].Outcome = passed
	if err := r.verdict(); err == nil || !strings.Contains(err.Error(), "seamark fails: two") {
		t.Errorf("one that fails with Seamark only: got the error %v, want one with its name", err)
	}
}
