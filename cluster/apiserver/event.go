package apiserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

const (
	events          = "events"
	maxEventMessage = 1024 // bytes; more are refused by a later version of the API
	// namespaceTerminating is the cause of a refusal, in a namespace that is being deleted.
	namespaceTerminating metav1.CauseType = "NamespaceTerminating"
)

// eventResource returns the resource of Events, for requests that create one.
func eventResource() api.Resource {
	core := schema.GroupVersion{Version: "v1"}
	return api.Resource{Group: core, Version: core.String(), Name: events, Kind: "Event"}
}

// An objectReference identifies the object of an Event.
type objectReference struct {
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

// event returns an Event in JSON.
func (r *Recorder) event(e *pendingEvent) ([]byte, error) {
	type metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	type source struct {
		Component string `json:"component"`
	}

	message := shorten(e.message, maxEventMessage)
	at := e.at.UTC().Format(time.RFC3339)
	resource, err := resourceOf(r.resources, e.kind)
	if err != nil {
		return nil, err
	}

	return json.Marshal(struct {
		APIVersion         string          `json:"apiVersion"`
		Kind               string          `json:"kind"`
		Metadata           metadata        `json:"metadata"`
		InvolvedObject     objectReference `json:"involvedObject"`
		Type               string          `json:"type"`
		Reason             string          `json:"reason"`
		Message            string          `json:"message"`
		Source             source          `json:"source"`
		ReportingComponent string          `json:"reportingComponent"`
		FirstTimestamp     string          `json:"firstTimestamp"`
		LastTimestamp      string          `json:"lastTimestamp"`
		Count              int             `json:"count"`
	}{
		APIVersion: "v1", Kind: "Event",
		Metadata: metadata{eventNamespace(e.key), eventName(e.key.Name, e.origin.UID, e.reason, message)},
		InvolvedObject: objectReference{
			APIVersion: cmp.Or(e.version, resource.Version), Kind: e.kind.ObjectKind(),
			Namespace: e.key.Namespace, Name: e.key.Name,
			UID: e.origin.UID, ResourceVersion: e.origin.ResourceVersion,
		},
		Type: "Warning", Reason: e.reason, Message: message,
		Source: source{r.component}, ReportingComponent: r.component,
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	})
}

// eventNamespace returns the namespace of the Events about an object.
func eventNamespace(object cluster.Key) string {
	return cmp.Or(object.Namespace, metav1.NamespaceDefault)
}

// eventName returns the name of an Event. It is the same in all servers, so that the API server
// accepts the first one only.
func eventName(object, uid, reason, message string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{uid, reason, message}, "\x00")))
	suffix := fmt.Sprintf(".%x", sum[:8])
	object = object[:min(len(object), validation.DNS1123SubdomainMaxLength-len(suffix))]
	return strings.TrimRight(object, "-.") + suffix
}

// shorten returns text as valid UTF-8 of at most limit bytes.
func shorten(text string, limit int) string {
	const ellipsis = "…"
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}
