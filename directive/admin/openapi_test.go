package admin_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

type schema struct {
	Ref                  string `json:"$ref"`
	Type                 string
	Properties           map[string]*schema
	AdditionalProperties *schema
	Items                *schema
	Enum                 []any
}

type operation struct {
	Parameters []struct{ Name, In string }
	Responses  map[string]struct {
		Content map[string]struct{ Schema *schema }
	}
}

type description struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]*schema }
}

// check reports what of a value is not as its schema says. Every member must be in it.
func (d *description) check(t *testing.T, at string, s *schema, v any) {
	t.Helper()
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		if s = d.Components.Schemas[name]; s == nil {
			t.Errorf("%s: no schema %s", at, name)
			return
		}
	}
	kind := ""
	switch v := v.(type) {
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case float64:
		if kind = "number"; s.Type == "integer" && v == float64(int64(v)) {
			kind = "integer"
		}
	case []any:
		kind = "array"
		for _, e := range v {
			d.check(t, at+"[]", s.Items, e)
		}
	case map[string]any:
		kind = "object"
		for name, e := range v {
			of := s.Properties[name]
			if of == nil {
				of = s.AdditionalProperties
			}
			if of == nil {
				t.Errorf("%s: got the member %s, want only those of its schema", at, name)
				continue
			}
			d.check(t, at+"."+name, of, e)
		}
	}
	if s.Enum != nil && !slices.Contains(s.Enum, v) || s.Enum == nil && kind != s.Type {
		t.Errorf("%s: got %v, want type %q %v", at, v, s.Type, s.Enum)
	}
}

// The description has the paths, the parameters and the members of the API, and no others.
func TestOpenAPI(t *testing.T) {
	w := newWorld(t)
	w.repeater = newKernel()
	if err := w.load(stock); err != nil {
		t.Fatal(err)
	}
	_, text := w.request("GET", "/v1/openapi.json")
	var d description
	if err := json.Unmarshal([]byte(text), &d); err != nil || !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Fatalf("got version %q and error %v, want 3.1", d.OpenAPI, err)
	}
	var code strings.Builder
	for _, file := range []string{"service.go", "data.go", "tail.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(source)
	}
	find := func(pattern string) (found []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(code.String(), -1) {
			found = append(found, strings.ToLower(strings.Join(m[1:], " ")))
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	var paths, parameters []string
	for path, operations := range d.Paths {
		for method, o := range operations {
			paths = append(paths, method+" "+path)
			for _, p := range o.Parameters {
				parameters = append(parameters, strings.ToLower(p.Name))
			}
		}
	}
	slices.Sort(paths)
	slices.Sort(parameters)
	if want := find(`HandleFunc\("([A-Z]+) (/v1/[^"]+)"`); !slices.Equal(paths, want) {
		t.Errorf("got the paths %v, want those of the code: %v", paths, want)
	}
	if want := find(`(?:FormValue\(|Query\(\)\.Get\(|Header\.Get\(|number\(r, )"([^"A-Z]+|X-Seamark)"`); !slices.Equal(slices.Compact(parameters), want) {
		t.Errorf("got the parameters %v, want those of the code: %v", parameters, want)
	}

	tail := w.open("/v1/tail")
	w.query("www.example.org")
	w.query("www.example.org.shop.svc.cluster.local")
	w.eventually("/v1/history", `"NXDOMAIN"`)
	check := func(method, path string, v any) {
		t.Helper()
		pattern, _, _ := strings.Cut(path, "?")
		for _, content := range d.Paths[pattern][strings.ToLower(method)].Responses["200"].Content {
			d.check(t, method+" "+pattern, content.Schema, v)
			return
		}
		t.Errorf("%s %s: no schema of the reply", method, pattern)
	}
	var event any
	if err := json.NewDecoder(tail.Body).Decode(&event); err != nil {
		t.Fatal(err)
	}
	check("GET", "/v1/tail", event)
	checkReply := func(request string) {
		t.Helper()
		method, path, _ := strings.Cut(request, " ")
		status, body := w.request(method, path, "X-Seamark 1")
		in := json.NewDecoder(strings.NewReader(body))
		for count := 0; in.More() || count == 0; count++ {
			var v any
			if err := in.Decode(&v); err != nil || status != 200 {
				t.Errorf("%s: got %d %s and error %v, want 200 and JSON", request, status, body, err)
				break
			}
			check(method, path, v)
		}
	}
	for _, request := range []string{
		"GET /v1/status", "GET /v1/explain?name=wbe.shop.svc.cluster.local", "GET /v1/explain?name=www.example.net", "GET /v1/explain?name=web.shop.svc.cluster.local",
		"GET /v1/records", "GET /v1/cache", "GET /v1/top?by=waste", "GET /v1/top?by=clients", "GET /v1/history", "POST /v1/cache/flush?name=.",
	} {
		checkReply(request)
	}
	w.stop()

	w = serve(t, auditing)
	w.query("bad.example.")
	w.query("*.*.svc.cluster.local.")
	checkReply("GET /v1/audits")
}
