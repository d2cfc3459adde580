// Package etcd implements the directive etcd, which answers queries from SkyDNS
// messages in etcd. message.go parses a message, index.go keeps all messages
// sorted by key, handler.go and answer*.go answer queries, and setup.go reads the
// options of the directive. source.go follows etcd and updates the index.
//
// The key of rails.production.east.skydns.local is
// /skydns/local/skydns/east/production/rails, and a name has the records of its
// key and of all keys below it. In this package a key is represented by its path:
// the labels of the name, top label first, each followed by a zero byte. So the
// keys below a name are consecutive in the index.
package etcd
