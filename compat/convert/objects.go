package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/seamark/seamark/cluster/document"
	"github.com/seamark/seamark/operate/servers"
)

// Objects are the objects in manifests that matter for a conversion.
type Objects struct {
	Pods    []Pod
	Configs []ConfigMap
}

// A ConfigMap is a ConfigMap in the input.
type ConfigMap struct {
	Place           string // for messages: "ConfigMap kube-system/kube-dns", or a directory
	Namespace, Name string // both empty for a directory
	Data            map[string]string
}

// An object has the fields of every object that this package reads.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		OwnerReferences []struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
}

func (o object) name() string {
	name := o.Metadata.Name
	if o.Metadata.Namespace != "" {
		name = o.Metadata.Namespace + "/" + name
	}
	return o.Kind + " " + name
}

// A podSpec has the fields of a pod that this package reads.
type podSpec struct {
	Containers []servers.Container `json:"containers"`
	Volumes    []struct {
		Name      string `json:"name"`
		ConfigMap *struct {
			Name string `json:"name"`
		} `json:"configMap"`
	} `json:"volumes"`
}

// Read adds the objects in text: YAML or JSON, one or more documents, also lists. It
// reports all mistakes.
func (o *Objects) Read(file string, text []byte) error {
	docs, err := document.Parse(file, text)
	if err != nil {
		return err
	}
	var errs []error
	for _, doc := range docs {
		raw, err := json.Marshal(doc)
		if err == nil {
			err = o.add(file, "", raw)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// add adds an object, or the items of a list. kind is the default kind: items of a
// ConfigMapList, for example, may omit it.
func (o *Objects) add(file, kind string, doc json.RawMessage) error {
	var head object
	if err := json.Unmarshal(doc, &head); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field == "" {
			err = errors.New("got " + wrong.Value)
		}
		return fmt.Errorf("%s: not a Kubernetes object: %w", file, err)
	}
	if head.Kind == "" {
		head.Kind = kind
	}
	read := func(into any) error {
		if err := json.Unmarshal(doc, into); err != nil {
			return fmt.Errorf("%s: %s: %w", file, head.name(), err)
		}
		return nil
	}

	switch head.Kind {
	case "":
		return fmt.Errorf("%s: not a Kubernetes object: no kind", file)

	case "ConfigMap":
		var c struct {
			Data       map[string]string `json:"data"`
			BinaryData map[string][]byte `json:"binaryData"`
		}
		if err := read(&c); err != nil {
			return err
		}
		data := map[string]string{}
		maps.Copy(data, c.Data)
		for key, value := range c.BinaryData {
			data[key] = string(value)
		}
		o.Configs = append(o.Configs, ConfigMap{head.name(), head.Metadata.Namespace, head.Metadata.Name, data})

	case "Pod", "Deployment", "DaemonSet", "ReplicaSet", "ReplicationController":
		var p struct {
			Spec struct {
				podSpec
				Template struct {
					Spec podSpec `json:"spec"`
				} `json:"template"`
			} `json:"spec"`
		}
		if err := read(&p); err != nil {
			return err
		}
		spec := p.Spec.Template.Spec
		if head.Kind == "Pod" {
			spec = p.Spec.podSpec
		}
		o.pod(head, spec)

	default:
		if !strings.HasSuffix(head.Kind, "List") {
			return nil
		}
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := read(&list); err != nil {
			return err
		}
		var errs []error
		for _, item := range list.Items {
			errs = append(errs, o.add(file, strings.TrimSuffix(head.Kind, "List"), item))
		}
		return errors.Join(errs...)
	}
	return nil
}
