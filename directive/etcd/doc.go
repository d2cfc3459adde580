// Package etcd answers from the messages of SkyDNS in etcd: the directive etcd.
// message.go reads a message, index.go keeps all of them sorted by their keys,
// handler.go and answer*.go say what a name answers, setup.go reads the
// directive's options. source.go follows etcd, and tells the index what it hears.
//
// The key of rails.production.east.skydns.local is
// /skydns/local/skydns/east/production/rails, and a name answers with everything at
// its key and below. In here a key is its path: the labels from the top, a zero byte
// behind each. So all that is below a name is one run of paths, which no neighbour's
// name can get between.
package etcd
