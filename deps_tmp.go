//go:build deps

package seamark

import (
	_ "github.com/coredns/caddy/caddyfile"
	_ "github.com/fsnotify/fsnotify"
	_ "github.com/miekg/dns"
	_ "github.com/spf13/cobra"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/tools/txtar"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/api/discovery/v1"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/tools/cache"
	_ "sigs.k8s.io/yaml"
)
