// Package doctor examines the DNS of a cluster before its server is replaced: the command
// doctor calls Run. It reads objects of the API server and changes none. An
// object that it may not read is a finding, not an error.
package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/operate/servers"
)

// Levels of a finding.
const (
	Info    = "info"
	Warning = "warning" // examine it before you replace the server
	Error   = "error"   // a step of the replacement would fail
)

// A Finding is a fact about the cluster, with the next step.
type Finding struct {
	Subject string `json:"subject"`
	Level   string `json:"level"`
	Text    string `json:"text"`
	Next    string `json:"next,omitempty"` // the next step
}

// A Report is the result of Run. Server and Version are empty if they are not known.
type Report struct {
	Kubernetes string    `json:"kubernetes"` // version of the API server
	Server     string    `json:"server"`     // coredns, kube-dns or seamark
	Version    string    `json:"version"`    // of the server
	Findings   []Finding `json:"findings"`
}

// Run examines the cluster. It returns an error if the API server cannot be reached.
func Run(ctx context.Context, api *apiserver.Session) (*Report, error) {
	d := &examination{ctx: ctx, api: api, refused: map[string]bool{}}
	var version struct{ GitVersion string }
	if err := api.Read(ctx, "/version", "the version of the API server", &version); err != nil {
		return nil, err
	}
	d.Kubernetes = version.GitVersion
	d.examineServer()
	d.examineProxy()
	d.examineNodeCache()
	d.examineDistribution()
	d.examineWorkloads()
	d.examinePermissions()
	return &d.Report, ctx.Err()
}

type examination struct {
	Report
	ctx     context.Context
	api     *apiserver.Session
	refused map[string]bool // subjects with an object that could not be read
	servers workloads       // the Deployments of the DNS server
}

func (d *examination) add(subject, level, next, format string, args ...any) {
	d.Findings = append(d.Findings, Finding{subject, level, printable(fmt.Sprintf(format, args...)), next})
}

// printable returns text with escapes in place of control characters.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		quoted := fmt.Sprintf("%q", text)
		return quoted[1 : len(quoted)-1]
	}
	return text
}

// get reads an object or a list into v. It adds a finding unless the object is missing.
func (d *examination) get(subject, path string, v any) bool {
	text, err := d.api.Get(d.ctx, path)
	switch {
	case err == nil:
		err = json.Unmarshal(text, v)
	case apiserver.IsNotFound(err):
		return false
	}
	if err != nil {
		if !d.refused[subject] {
			d.add(subject, Warning, "grant the verbs get and list on this resource, and run doctor again",
				"not examined: %v", err)
		}
		d.refused[subject] = true
		return false
	}
	return true
}

// pods returns the first pods of a namespace with a label.
func (d *examination) pods(subject, namespace, selector string) []pod {
	var list podList
	d.get(subject, "/api/v1/namespaces/"+url.PathEscape(namespace)+
		"/pods?limit=100&labelSelector="+url.QueryEscape(selector), &list)
	return list.Items
}

// The fields of the API's objects that are examined.
type (
	meta struct {
		Name            string
		Namespace       string
		Labels          map[string]string
		Annotations     map[string]string
		OwnerReferences []struct{ Kind, Name string }
	}
	pod struct {
		Metadata meta
		Spec     struct {
			DNSPolicy   string
			HostNetwork bool
			DNSConfig   *struct {
				Nameservers, Searches []string
				Options               []struct{ Name, Value string }
			}
			Containers []servers.Container
		}
		Status struct {
			Conditions api.Conditions
		}
	}
	podList struct {
		Metadata struct{ Continue string }
		Items    []pod
	}
	service struct {
		Metadata meta
		Spec     struct {
			ClusterIP string
			Selector  map[string]string
			Ports     []port
		}
	}
	port struct {
		Protocol string
		Port     int
	}
	configMap struct{ Data map[string]string }
	workloads struct{ Items []struct{ Metadata meta } }
	nodeList  struct {
		Items []struct {
			Metadata meta
			Status   struct {
				NodeInfo struct{ KubeletVersion string }
			}
		}
	}
)
