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

// A Source is where a server under test gets its objects from: one cluster,
// empty at first, for one run of one script.
type Source interface {
	// Corefile is the lines that stand for $SOURCE in a kubernetes directive.
	Corefile() string
	// Apply makes each object as doc says, as kubectl apply does: new, or in
	// place of the one that has its kind and name.
	Apply(doc Object) error
	// Delete removes one object; it is an error if it does not exist.
	Delete(doc Object) error
}

// An Object is one YAML document of a script and its name.
type Object struct {
	APIVersion string
	Kind       string
	Namespace  string // "" if it says none
	Name       string
	YAML       []byte
}

// separator is the line between two documents.
var separator = regexp.MustCompile(`(?m)^---[ \t]*$`)

// objects reads YAML documents.
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
			m.Name = "list" // it has none, and needs one for its file
		}
		switch {
		case head.Kind == "" && m.Name == "":
			continue // nothing but comments
		case head.Kind == "" || m.Name == "":
			return nil, fmt.Errorf("an object without kind or name:\n%s", doc)
		}
		docs = append(docs, Object{head.APIVersion, head.Kind, m.Namespace, m.Name, []byte(doc)})
	}
	return docs, nil
}

// A folder is the source of those who have no cluster: a directory of
// manifests, one object in each file.
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

// Apply writes beside the folder and moves, so that no half of a file is seen.
func (f folder) Apply(o Object) error {
	if err := os.WriteFile(f.spare, bytes.TrimSpace(o.YAML), 0o644); err != nil {
		return err
	}
	return os.Rename(f.spare, f.file(o))
}

func (f folder) Delete(o Object) error { return os.Remove(f.file(o)) }
