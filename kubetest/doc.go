package kubetest

import (
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "k8s.io/apiserver/pkg/server"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/apiserver/pkg/registry/generic/registry"
	_ "k8s.io/client-go/dynamic"
	_ "k8s.io/client-go/tools/clientcmd"
	_ "k8s.io/client-go/metadata"
)
