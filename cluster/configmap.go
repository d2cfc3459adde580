package cluster

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// A ConfigMap has the data of a ConfigMap, including its binaryData.
type ConfigMap struct {
	Namespace, Name string
	Data            map[string]string
}

// Key implements Object.
func (c *ConfigMap) Key() Key { return Key{c.Namespace, c.Name} }

// configMapKey returns the key of the ConfigMap that the options name, if any.
func (o Options) configMapKey() Key {
	namespace, name, _ := strings.Cut(o.ConfigMap, "/")
	return Key{namespace, name}
}

func isConfigMapName(text string) bool {
	key := Options{ConfigMap: text}.configMapKey()
	return len(validation.IsDNS1123Label(key.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(key.Name)) == 0
}

// configMaps returns the resource with a selector of one object, so that a Role may
// name the object in resourceNames.
func (o Options) configMaps() resource {
	r := resourceOf(coreVersion(), ConfigMaps, "ConfigMap", readConfigMap, o.configMap)
	r.fields = "metadata.name=" + o.configMapKey().Name
	return r
}

// configMap returns nil for a ConfigMap that the options do not name.
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

// configMap decodes a manifest. Of another ConfigMap only the namespace is used.
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
