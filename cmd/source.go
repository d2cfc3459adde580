package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/spf13/cobra"
)

// sourceFlags locate the objects of a cluster for a command that reads them.
type sourceFlags struct{ manifests, kubeconfig, context string }

func (s *sourceFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: $KUBECONFIG, ~/.kube/config, or the service account of this pod)")
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
	o := cluster.Options{Kubeconfig: cmp.Or(s.kubeconfig, defaultKubeconfig()), KubeconfigContext: s.context}
	if o.Kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return o, errors.New("no kubeconfig found: set --kubeconfig")
	}
	return o, nil
}

// defaultKubeconfig returns the file that kubectl uses, if it exists.
func defaultKubeconfig() string {
	files := filepath.SplitList(os.Getenv("KUBECONFIG"))
	if home, err := os.UserHomeDir(); err == nil && len(files) == 0 {
		files = []string{filepath.Join(home, ".kube", "config")}
	}
	for _, file := range files {
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			return file
		}
	}
	return ""
}

// oneOf returns an error unless the value of a flag is one of values, which are two or more.
func oneOf(flag, value string, values ...string) error {
	if slices.Contains(values, value) {
		return nil
	}
	last := len(values) - 1
	return fmt.Errorf("--%s: want %s or %s, got %q", flag, strings.Join(values[:last], ", "), values[last], value)
}
