package externaldns

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/seamark/seamark/kubetest/programs"
)

// The go command does not extract a module that needs a later Go than its own, and serves no module
// whose owner has withdrawn it. So the program is built from a copy of the source, with these changes.
var (
	// moduleEdits are arguments of go mod edit: the Go of this repository, and versions of the clients of
	// OpenShift that every module proxy has.
	moduleEdits = []string{"-go=1.26.0",
		"-require=github.com/openshift/api@v0.0.0-20260213204242-d34f11c515b3",
		"-require=github.com/openshift/client-go@v0.0.0-20251202151200-fb4471581cf8"}

	// otherProvider matches a line of the list of providers that names another one than rfc2136 and
	// inmemory. Their clients take minutes to build, and not every module proxy has all of them.
	providerList  = "provider/factory/provider.go"
	otherProvider = regexp.MustCompile(`(?m)^\t("sigs.k8s.io/external-dns/provider/|\texternaldns\.Provider\w+: +)(\w+).*\n`)
	keptProviders = []string{"rfc2136", "inmemory"}

	// promoted are the fields of embedded structs that literals name as if they were their own, which
	// needs Go 1.27.
	promoted = []promotion{
		{"^(Event|Pod|DNSRecord)$", "ObjectMeta", "metav1.ObjectMeta", []string{"Name", "Namespace", "Labels"}},
		{"^Pod$", "TypeMeta", "metav1.TypeMeta", []string{"Kind", "APIVersion"}},
		{"^.+Metric$", "Metric", "Metric", []string{"Type", "Name", "FQDN", "Namespace", "Subsystem", "Help", "Labels"}},
		{"^objectRef$", "GroupKind", "schema.GroupKind", []string{"Group", "Kind"}},
		{"^Route53Change$", "Change", "route53types.Change", []string{"Action", "ResourceRecordSet"}},
	}
)

// A promotion is the fields that structs have by an embedded one.
type promotion struct {
	structs       string // a pattern of the types' names
	field, typeOf string // the embedded struct
	fields        []string
}

// copySource writes the changed source of the module to dir.
func copySource(dir string) error {
	archive, err := programs.OpenModule(module, Version)
	if err != nil {
		return err
	}
	defer archive.Close()

	for _, f := range archive.File {
		name := strings.TrimPrefix(f.Name, moduleDir)
		ext := path.Ext(name)
		if strings.HasSuffix(name, "_test.go") || ext != ".go" && ext != ".mod" && ext != ".sum" {
			continue
		}
		data, err := fs.ReadFile(archive, f.Name)
		if err == nil && ext == ".go" {
			data, err = change(name, data)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}

		target := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, data, 0o644); err != nil {
			return err
		}
	}
	return run(dir, append([]string{"mod", "edit"}, moduleEdits...)...)
}

// change changes one file.
func change(name string, source []byte) ([]byte, error) {
	if name == providerList {
		source = otherProvider.ReplaceAllFunc(source, func(line []byte) []byte {
			if slices.Contains(keptProviders, string(otherProvider.FindSubmatch(line)[2])) {
				return line
			}
			return nil
		})
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	const meta = `metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"`
	inserts := map[int]string{} // by offset
	ast.Inspect(parsed, func(n ast.Node) bool {
		if literal, ok := n.(*ast.CompositeLit); ok {
			for _, p := range promoted {
				if first, last := p.find(literal); first != nil {
					inserts[files.Position(first.Pos()).Offset] = p.field + ": " + p.typeOf + "{"
					inserts[files.Position(last.End()).Offset] = "}"
					if strings.HasPrefix(p.typeOf, "metav1.") && !bytes.Contains(source, []byte(meta)) {
						inserts[files.Position(parsed.Name.End()).Offset] = "\nimport " + meta
					}
				}
			}
		}
		return true
	})

	var out bytes.Buffer
	for i, b := range source {
		out.WriteString(inserts[i])
		out.WriteByte(b)
	}
	return out.Bytes(), nil
}

// find returns the first and the last field of a literal that p promotes; they are adjacent.
func (p promotion) find(literal *ast.CompositeLit) (first, last ast.Node) {
	name, ok := literal.Type.(*ast.Ident)
	if s, isSelector := literal.Type.(*ast.SelectorExpr); isSelector {
		name, ok = s.Sel, true
	}
	if !ok || !regexp.MustCompile(p.structs).MatchString(name.Name) {
		return nil, nil
	}

	for _, e := range literal.Elts {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := field.Key.(*ast.Ident); ok && slices.Contains(p.fields, key.Name) {
			if last = field; first == nil {
				first = field
			}
		}
	}
	return first, last
}
