package cmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/directive/kubedns/kubednsconfig"
)

// mountedAt is the folder in which CoreDNS's pods mount the ConfigMap coredns, and in its
// folder custom coredns-custom.
const mountedAt = "/etc/coredns/"

// A dnsConfig is the configuration of a cluster's DNS server: the data of its ConfigMaps in
// kube-system, nil for one that does not exist.
type dnsConfig struct{ coredns, custom, kubedns map[string]string }

// clusterConfig reads the configuration of the cluster's DNS server.
func clusterConfig(ctx context.Context, session *apiserver.Session) (c dnsConfig, err error) {
	for name, data := range map[string]*map[string]string{
		"coredns": &c.coredns, "coredns-custom": &c.custom, "kube-dns": &c.kubedns,
	} {
		var m api.ConfigMap
		path := "/api/v1/namespaces/kube-system/configmaps/" + name
		err := session.Read(ctx, path, "the ConfigMap kube-system/"+name, &m)
		if apiserver.IsNotFound(err) {
			continue
		}
		if err != nil {
			return c, err
		}
		*data = map[string]string{}
		maps.Copy(*data, m.Data)
	}
	return c, nil
}

// checkCluster checks the configuration of the cluster's DNS server. It writes the ConfigMaps
// into a temporary folder for check.
func (p *program) checkCluster(
	ctx context.Context, session *apiserver.Session, strict bool, check checker,
) (files []string, found []finding, err error) {
	config, err := clusterConfig(ctx, session)
	if err != nil {
		return nil, nil, err
	}
	if config.coredns == nil && config.kubedns == nil {
		return nil, nil, errors.New("the namespace kube-system has no ConfigMap coredns or kube-dns")
	}

	if config.kubedns != nil {
		name := "configmap kube-system/kube-dns"
		files = append(files, name)
		if _, err := kubednsconfig.Parse(config.kubedns); err != nil {
			found = append(found, newFinding(name, "error", fmt.Errorf("%s: %w", name, err)))
		}
	}

	if config.coredns == nil {
		return files, found, nil
	}
	if _, ok := config.coredns["Corefile"]; !ok {
		return nil, nil, errors.New("the ConfigMap kube-system/coredns has no key Corefile")
	}

	dir, err := os.MkdirTemp("", "seamark-check-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	dir += "/"
	for folder, data := range map[string]map[string]string{"": config.coredns, "custom": config.custom} {
		if err := writeConfigMap(filepath.Join(dir, folder), data, strings.NewReplacer(mountedAt, dir)); err != nil {
			return nil, nil, err
		}
	}

	// Findings name the files as CoreDNS's pods see them.
	asMounted := strings.NewReplacer(dir, mountedAt)
	file := mountedAt + "Corefile"
	files = append(files, file)
	errs, warnings := check(dir + "Corefile")

	if len(config.custom) > 0 && !strings.Contains(config.coredns["Corefile"], "custom") {
		unused := errors.New("the ConfigMap kube-system/coredns-custom exists, but the Corefile does not import it")
		if strict {
			errs = append(errs, unused)
		} else {
			warnings = append(warnings, unused)
		}
	}

	for _, f := range newFindings(file, errs, warnings) {
		f.File, f.Message = asMounted.Replace(f.File), asMounted.Replace(f.Message)
		found = append(found, f)
	}
	return files, found, nil
}

// writeConfigMap writes a file for each key.
func writeConfigMap(dir string, data map[string]string, replace *strings.Replacer) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for key, text := range data {
		if !filepath.IsLocal(key) || strings.ContainsRune(key, '/') {
			return fmt.Errorf("%q cannot be the key of a ConfigMap", key)
		}
		if err := os.WriteFile(filepath.Join(dir, key), []byte(replace.Replace(text)), 0o600); err != nil {
			return err
		}
	}
	return nil
}
