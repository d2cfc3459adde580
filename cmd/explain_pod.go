package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/operate/local"
	"github.com/seamark/seamark/operate/resolvconf"
	"github.com/seamark/seamark/sys/watch"
)

// maxPodFile is the size of the largest manifest in which a Pod is searched.
const maxPodFile = 64 << 20

// podConfig returns the resolv.conf of a pod and its address, which is invalid if it has none.
func (p *program) podConfig(
	ctx context.Context, e explainFlags, server explainer, key cluster.Key,
) (config resolvconf.Config, address netip.Addr, err error) {
	var folders []string
	if own, ok := server.(*local.Server); ok && e.running.cluster == (sourceFlags{}) {
		folders = own.Manifests()
	}

	var m resolvconf.Manifest
	var text string
	if len(folders) > 0 {
		m, text, err = folderPod(ctx, folders, key)
	} else {
		var session *apiserver.Session
		if session, err = e.running.cluster.session(); err == nil {
			defer session.Close()
			m, text, err = apiPod(ctx, session, key)
		}
	}
	if err != nil {
		return config, address, err
	}

	// The nameservers do not matter: explain queries none of them.
	config, err = p.kubeletConfig(m, e.domain, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	address, _ = netip.ParseAddr(text)
	return config, address, err
}

// kubeletConfig returns the resolv.conf that a kubelet writes for the pod of a manifest.
func (p *program) kubeletConfig(m resolvconf.Manifest, domain string, dns netip.Addr) (c resolvconf.Config, err error) {
	pod, _, err := m.Pod(resolvconf.Flags{})
	if err != nil {
		return c, err
	}
	kubelet := resolvconf.Kubelet{ClusterDomain: domain, ClusterDNS: []netip.Addr{dns}, Node: new(resolvconf.Config)}
	c, comments := kubelet.Form(pod)
	p.showComments(comments)
	return c, nil
}

// showComments shows what is not in a resolv.conf, and why.
func (p *program) showComments(comments []string) {
	for _, comment := range comments {
		fmt.Fprintf(p.err, "# %s\n", comment)
	}
}

// apiPod reads a Pod from the API server.
func apiPod(
	ctx context.Context, session *apiserver.Session, key cluster.Key,
) (m resolvconf.Manifest, address string, err error) {
	text, err := session.Get(ctx, "/api/v1/namespaces/"+key.Namespace+"/pods/"+key.Name)
	if err != nil {
		return m, "", err
	}
	m, address, ok, err := resolvconf.FindPod("pod "+key.String(), text, key.Namespace, key.Name)
	if err == nil && !ok {
		err = fmt.Errorf("reading Pod %s: the API server has sent another object", key)
	}
	return m, address, err
}

// folderPod reads a Pod from the YAML and JSON files of folders.
func folderPod(
	ctx context.Context, folders []string, key cluster.Key,
) (m resolvconf.Manifest, address string, err error) {
	for _, folder := range folders {
		m, address, found, err := findPod(ctx, folder, key)
		if found || err != nil {
			return m, address, err
		}
	}
	return m, "", fmt.Errorf("%s has no Pod %s", strings.Join(folders, ", "), key)
}

func findPod(
	ctx context.Context, folder string, key cluster.Key,
) (m resolvconf.Manifest, address string, found bool, err error) {
	root, err := filepath.EvalSymlinks(folder) // WalkDir follows no link
	if err != nil {
		return m, "", false, err
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		suitable := slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
		if !suitable || watch.Ignored(entry.Name()) {
			return nil
		}

		info, err := os.Stat(path) // follows links, as those of a mounted ConfigMap
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a link to nothing, or a file that was removed meanwhile
		}
		if err != nil || info.Size() > maxPodFile || !info.Mode().IsRegular() {
			return err
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		m, address, found, err = resolvconf.FindPod(path, text, key.Namespace, key.Name)
		switch {
		case found && err == nil:
			return fs.SkipAll
		case found:
			return err
		}
		return nil // a file that does not parse is the server's matter
	})
	return m, address, found, err
}
