// Package node tests the command node, as processes in network namespaces that have the
// interfaces, the rules of kube-proxy and the pods of a node. It contains tests only.
package node
