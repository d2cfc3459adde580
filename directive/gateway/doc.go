// Package gateway implements the directive gateway: it answers the hosts that Gateways, their Routes and
// Ingresses publish with the addresses of the Services that receive their traffic.
//
// A source (source.go) has the objects of a cluster (objects.go). After each change a publisher
// (publish.go) makes the published hosts from all of them: which Route is attached to which listener, whose
// hosts they have in common (host.go), where their traffic goes (target.go), and which object owns a host.
// Queries read a table of hosts (table.go), which gets what has changed. Handler (handler.go) answers
// clients inside of the cluster; External (external.go) serves zones for clients outside.
package gateway
