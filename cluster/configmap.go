package cluster

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// A ConfigMap is what one holds: data, and binaryData as text too.
type ConfigMap struct {
	Namespace, Name string
	Data            map[string]string
}

// Key is the object's.
func (c *ConfigMap) Key() Key { return Key{c.Namespace, c.Name} }

// configMapKey is the key of the ConfigMap that is asked for; it has no name if
// none is.
func (o Options) configMapKey() Key {
	namespace, name, _ := strings.Cut(o.ConfigMap, "/")
	return Key{namespace, name}
}

func isConfigMapName(text string) bool {
	key := Options{ConfigMap: text}.configMapKey()
	return len(validation.IsDNS1123Label(key.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(key.Name)) == 0
}

// configMaps is the resource, of which there is one object: a Role may name it
// in resourceNames, since lists and watches select it by its name.
func (o Options) configMaps() resource {
	r := resourceOf(coreVersion(), ConfigMaps, "ConfigMap", readConfigMap, o.configMap)
	r.fields = "metadata.name=" + o.configMapKey().Name
	return r
}

// configMap is nil for another one than was asked for.
func (o Options) configMap(c *apiConfigMap) *ConfigMap {
	if o.configMapKey() != (Key{c.Namespace, c.Name}) {
		return nil
	}
	slim := &ConfigMap{Namespace: c.Namespace, Name: c.Name, Data: make(map[string]string, len(c.Data)+len(c.BinaryData))}
	for key, value := range c.BinaryData {
		slim.Data[key] = string(value)
	}
	for key, value := range c.Data {
		slim.Data[key] = value
	}
	return slim
}

// configMap reads a manifest. Of those that nobody asked for only the namespace
// counts.
func (d *decoder) configMap(raw json.RawMessage, it *item) error {
	if it.key != d.opts.configMapKey() {
		it.kind = ""
		return nil
	}
	var c apiConfigMap
	if err := d.read(raw, it, &c); err != nil {
		return err
	}
	if slim := d.opts.configMap(&c); slim != nil {
		it.object = slim
	}
	return nil
}
