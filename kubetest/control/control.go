// Package control is the protocol between a test and the process that runs the
// API machinery for it: net/rpc on the standard input and output of cmd/api
// control. Package kubetest is its client, cmd/api its server.
package control

import (
	"context"
	"time"

	"github.com/seamark/seamark/kubetest/gate"
)

// The services of the protocol. A process serves either one API server or one etcd
// cluster, whichever is started first; it exits at the end of its standard input.
const (
	Machinery = "Machinery" // starts both, and controls the API server
	EtcdName  = "Etcd"      // controls the etcd cluster, once it is started
)

// None is the argument or the reply of a command that has none. Package gob does
// not encode a struct without fields.
type None struct{ Unused bool }

// Wait bounds a command.
type Wait struct{ Timeout time.Duration }

// Context returns a context that ends after the timeout.
func (w Wait) Context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), w.Timeout)
}

// StartArgs are the arguments of Start.
type StartArgs struct {
	Wait
	Dir string // exists and is empty
}

// Server describes a running API server.
type Server struct {
	URL       string // https://127.0.0.1:port
	CA        []byte // PEM
	Cert, Key []byte // PEM: the serving certificate and its key
}

// StartEtcdArgs are the arguments of StartEtcd.
type StartEtcdArgs struct {
	Wait
	Dir     string // exists and is empty
	Options EtcdOptions
}

// EtcdOptions describe an etcd cluster. The zero value has three members and no
// requirements on clients.
type EtcdOptions struct {
	// Members is the number of members; 0 means 3.
	Members int
	// TLS requires a certificate of clients.
	TLS bool
	// Username and Password belong to a user that may read and write every key.
	// With a Username, the cluster refuses clients without one. The user root has
	// the same password.
	Username, Password string
	// Quota is the size of a member's data in bytes; 0 is etcd's default, 2 GB.
	Quota int64
}

// Etcd describes a running etcd cluster.
type Etcd struct {
	Endpoints     []string // URLs for clients, by member; each leads through a proxy
	Cert, Key, CA string   // PEM files for clients
}

// MemberArgs name a member.
type MemberArgs struct {
	Wait
	Member int
}

// LeaderArgs are the arguments of Leader.
type LeaderArgs struct {
	Wait
	Except []int // members that do not count as leader
}

// FaultArgs set a fault between a member and its clients, or another member.
type FaultArgs struct {
	Member, Other int // Other is for Link
	Fault         gate.Fault
}
