package cmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/spf13/cobra"
)

// sourceFlags locate the objects of a cluster for a command that reads them.
type sourceFlags struct{ manifests, kubeconfig, context string }

func (s *sourceFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&s.kubeconfig, "kubeconfig", "",
		"kubeconfig `FILE` (default: $KUBECONFIG, ~/.kube/config, or the service account of this pod)")
	c.Flags().StringVar(&s.context, "context", "", "`CONTEXT` of the kubeconfig (default: the current one)")
}

// options returns the location of the objects.
func (s *sourceFlags) options() (cluster.Options, error) {
	if s.manifests != "" {
		if s.kubeconfig != "" || s.context != "" {
			return cluster.Options{}, errors.New("set only one of --manifests and --kubeconfig")
		}
		return cluster.Options{Manifests: s.manifests}, nil
	}
	o := cluster.Options{Kubeconfig: s.kubeconfig, KubeconfigContext: s.context}
	if o.Kubeconfig != "" {
		return o, nil
	}

	named := os.Getenv("KUBECONFIG")
	files := filepath.SplitList(named)
	if home, err := os.UserHomeDir(); err == nil && len(files) == 0 {
		files = []string{filepath.Join(home, ".kube", "config")}
	}
	files = slices.DeleteFunc(files, func(file string) bool { // as kubectl does
		_, err := os.Stat(file)
		return file == "" || errors.Is(err, os.ErrNotExist)
	})

	switch {
	case len(files) == 1:
		o.Kubeconfig = files[0]
	case len(files) > 1:
		var err error
		o.Kubeconfig, o.KubeconfigContext, err = apiserver.FindContext(files, s.context)
		return o, err
	case named != "":
		return o, fmt.Errorf("the file of KUBECONFIG does not exist: %s", named)
	case os.Getenv("KUBERNETES_SERVICE_HOST") == "":
		return o, errors.New("no kubeconfig found: set --kubeconfig; that of k3s is /etc/rancher/k3s/k3s.yaml")
	case s.context != "":
		return o, errors.New("--context needs a kubeconfig: set --kubeconfig")
	}
	return o, nil
}

// session returns a session with the API server.
func (s *sourceFlags) session() (*apiserver.Session, error) {
	o, err := s.options()
	if err != nil {
		return nil, err
	}
	return apiserver.NewSession(o)
}

// oneOf returns an error unless the value of a flag is one of values, which are two or more.
func oneOf(flag, value string, values ...string) error {
	if slices.Contains(values, value) {
		return nil
	}
	last := len(values) - 1
	return fmt.Errorf("--%s: want %s or %s, got %q", flag, strings.Join(values[:last], ", "), values[last], value)
}
