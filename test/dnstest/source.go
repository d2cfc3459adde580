package dnstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A Source is a cluster, empty at first, that a server under test reads. Each run
// of a script has its own.
type Source interface {
	// Corefile returns the lines that replace $SOURCE in a kubernetes directive.
	Corefile() string
	// Apply creates or replaces the objects in doc, as kubectl apply does.
	Apply(doc Object) error
	// Delete deletes one object. It returns an error if the object does not
	// exist.
	Delete(doc Object) error
}

// An Object is one YAML document of a script.
type Object struct {
	APIVersion string
	Kind       string
	Namespace  string // "" if the document has none
	Name       string
	YAML       []byte
}

// separator is the line between two documents.
var separator = regexp.MustCompile(`(?m)^---[ \t]*$`)

// objects splits a text into YAML documents.
func objects(text []byte) (docs []Object, err error) {
	for _, doc := range separator.Split(string(text), -1) {
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace, Name string }
		}
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			return nil, fmt.Errorf("reading objects: %w\n%s", err, doc)
		}
		m := head.Metadata
		if strings.HasSuffix(head.Kind, "List") {
			m.Name = "list" // a list has no name, but its file needs one
		}
		switch {
		case head.Kind == "" && m.Name == "":
			continue // only comments
		case head.Kind == "" || m.Name == "":
			return nil, fmt.Errorf("object without kind or name:\n%s", doc)
		}
		docs = append(docs, Object{head.APIVersion, head.Kind, m.Namespace, m.Name, []byte(doc)})
	}
	return docs, nil
}

// A folder is a source that needs no cluster: a directory of manifests, with one
// object in each file.
type folder struct{ dir, spare string }

func newFolder(t testing.TB) Source {
	root := t.TempDir()
	f := folder{filepath.Join(root, "manifests"), filepath.Join(root, "spare")}
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f folder) Corefile() string { return "manifests " + f.dir }

func (f folder) file(o Object) string {
	return filepath.Join(f.dir, strings.ToLower(o.Kind)+"."+o.Namespace+"."+o.Name+".yaml")
}

// Apply writes the file elsewhere and renames it, so that no reader sees a
// partial file.
func (f folder) Apply(o Object) error {
	if err := os.WriteFile(f.spare, bytes.TrimSpace(o.YAML), 0o644); err != nil {
		return err
	}
	return os.Rename(f.spare, f.file(o))
}

func (f folder) Delete(o Object) error { return os.Remove(f.file(o)) }
