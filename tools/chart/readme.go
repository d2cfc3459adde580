package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"gopkg.in/yaml.v3"
)

// A value is a documented key of values.yaml.
type value struct {
	Key, Default, Description string
}

// A coreDNSValue is a key of the values of the chart coredns/coredns, with "same", "mapped"
// or "rejected", and the explanation.
type coreDNSValue struct {
	Key, Status, Explanation string
}

// readme returns the README of the chart in dir.
func readme(dir string) ([]byte, error) {
	t, err := template.ParseFiles(filepath.Join(dir, "README.md.tmpl"))
	if err != nil {
		return nil, err
	}
	data := struct {
		Values  []value
		CoreDNS []coreDNSValue
	}{}
	if data.Values, err = values(filepath.Join(dir, "values.yaml")); err != nil {
		return nil, err
	}
	if data.CoreDNS, err = coreDNSValues(filepath.Join(dir, "coredns-values.yaml")); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, data)
	return out.Bytes(), err
}

// values returns the keys of a file of values that have a comment "# -- DESCRIPTION", in the
// order of the file. Every other key must be a map of such keys.
func values(file string) ([]value, error) {
	top, err := mapping(file)
	if err != nil {
		return nil, err
	}

	var found []value
	var errs []error
	var walk func(path string, n *yaml.Node)
	walk = func(path string, n *yaml.Node) {
		for i := 0; i < len(n.Content); i += 2 {
			key, v := n.Content[i], n.Content[i+1]
			name := strings.TrimPrefix(path+"."+key.Value, ".")

			// Only the last line of the comments before a key describes it.
			comment := key.HeadComment[strings.LastIndex("\n"+key.HeadComment, "\n"):]
			description, ok := strings.CutPrefix(comment, "# -- ")
			switch {
			case ok:
				text, err := compact(v)
				errs = append(errs, err)
				found = append(found, value{name, text, cell(description)})
			case v.Kind == yaml.MappingNode && len(v.Content) > 0:
				walk(name, v)
			default:
				errs = append(errs, fmt.Errorf("%s:%d: %s: want a comment that begins with # --", file, key.Line, name))
			}
		}
	}

	walk("", top)
	return found, errors.Join(errs...)
}

// coreDNSValues returns the entries of coredns-values.yaml.
func coreDNSValues(file string) ([]coreDNSValue, error) {
	top, err := mapping(file)
	if err != nil {
		return nil, err
	}
	var found []coreDNSValue
	for i := 0; i < len(top.Content); i += 2 {
		status, explanation, _ := strings.Cut(top.Content[i+1].Value, ": ")
		switch {
		case status == "same" && explanation == "", status == "mapped" && explanation != "",
			status == "rejected" && explanation != "":
		default:
			return nil, fmt.Errorf("%s:%d: %s: got %q, want same, mapped or rejected, the latter two with an explanation", file, top.Content[i].Line, top.Content[i].Value, status)
		}
		found = append(found, coreDNSValue{top.Content[i].Value, status, cell(explanation)})
	}
	return found, nil
}

// mapping returns the mapping that a YAML file consists of.
func mapping(file string) (*yaml.Node, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: want a mapping", file)
	}
	return doc.Content[0], nil
}

// compact returns a value on one line, as JSON.
func compact(n *yaml.Node) (string, error) {
	var v any
	if err := n.Decode(&v); err != nil {
		return "", err
	}
	text, err := json.Marshal(v)
	return string(text), err
}

// cell escapes the separator of a table's cells.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
