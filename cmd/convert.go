package cmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/compat/convert"
	"github.com/spf13/cobra"
)

func (p *program) convertCommand() *cobra.Command {
	in := convert.Input{Stdin: p.in}
	var output string
	c := &cobra.Command{
		Use:   "convert [FILE...] [-- PROGRAM ARGUMENTS...]",
		Short: "Convert kube-dns's ConfigMap and flags and dnsmasq's options to a Corefile",
		Long: `Convert prints a Corefile that replaces a kube-dns pod: kube-dns, dnsmasq-nanny or
dnsmasq in front of it, and the ConfigMap that they read. FILE is a manifest in YAML or
JSON, "-" for standard input, or a directory with the mounted ConfigMap. The pod comes
from a Deployment, DaemonSet, ReplicaSet or Pod, or from a command line after -- and
the environment of convert. If the input has the ConfigMap, the Corefile contains its
settings; otherwise it follows the ConfigMap. Comments at the top list what the
Corefile does not cover. Convert does not contact a cluster.`,
		Example: `  kubectl -n kube-system get deployment,configmap -o yaml | seamark convert - >Corefile
  seamark convert kube-dns.yaml
  seamark convert configmap.yaml -- kube-dns --domain=cluster.local. --config-dir=/kube-dns-config
  seamark convert -- dnsmasq --cache-size=1000 --server=192.0.2.53`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			in.Files = args
			if at := c.ArgsLenAtDash(); at >= 0 {
				in.Files, in.CommandLine = args[:at], args[at:]
				if len(in.CommandLine) == 0 {
					return errors.New("want a command line after --")
				}
			}

			key := in.ConfigMap
			if !strings.Contains(key, "/") {
				key = "namespace/" + key
			}
			if _, ok := cluster.ParseKey(key); in.ConfigMap != "" && !ok {
				return fmt.Errorf("--config-map: want [NAMESPACE/]NAME, got %q", in.ConfigMap)
			}
			if len(args) == 0 {
				return errors.New("want a file, - for standard input, or a command line after --")
			}

			in.Directives = p.directiveNames()
			result, err := in.Corefile()
			switch {
			case err != nil:
			case output == "json":
				err = indented(p.out, result)
			default:
				_, err = io.WriteString(p.out, result.Corefile)
			}
			return failed(err)
		},
	}

	c.Flags().StringVar(&in.ConfigMap, "config-map", "",
		"`[NAMESPACE/]NAME` of the ConfigMap (default the pod's ConfigMap, or kube-dns)")
	c.Flags().BoolVar(&in.Follow, "follow", false, "follow the ConfigMap even if the input has it")
	outputFlag(c, &output)
	return c
}

// convertObjects returns the Corefile for the pod and the ConfigMap among objects in JSON.
func (p *program) convertObjects(objects [][]byte) (string, error) {
	in := convert.Input{Files: []string{"-"}, Stdin: bytes.NewReader(bytes.Join(objects, []byte("\n---\n"))),
		Directives: p.directiveNames()}
	result, err := in.Corefile()
	return result.Corefile, err
}

func (p *program) directiveNames() (names []string) {
	for _, d := range p.directives {
		names = append(names, d.Name)
	}
	return names
}
