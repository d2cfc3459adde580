// Package snapshot writes the slim objects of a cluster to a stream and reads them again.
// The directive kubernetes keeps a snapshot in a file, for a start without an API server.
//
// A snapshot begins with a line that names its version. The rest is in protobuf's wire
// format, which package protobuf reads: a [Header], the objects, each in a field with
// the number of its kind, and a CRC-32C of everything before it. It has objects, and not
// the records made of them, so that it does not depend on how these are indexed.
package snapshot

import (
	"hash/crc32"
	"time"

	"github.com/seamark/seamark/cluster"
)

// The first line of a snapshot is magic and the version.
const (
	magic   = "seamark snapshot "
	version = "1\n"
)

// A Header identifies the objects of a snapshot.
type Header struct {
	Written time.Time // in seconds
	Options string    // the options that select the objects
}

// The numbers of a snapshot's fields. The fields of objects follow fieldHeader.
const (
	fieldHeader = 1
	fieldSum    = 15
)

// kinds are the kinds of objects that a snapshot may have, by the number of their field
// minus fieldHeader+1.
var kinds = [...]cluster.Kind{
	cluster.Namespaces, cluster.Services, cluster.Slices, cluster.Pods, cluster.Imports, cluster.ImportSlices,
}

// The numbers of the fields of a Header, of an object and of a port.
const (
	headerWritten = 1
	headerOptions = 2

	objectNamespace    = 1
	objectName         = 2
	objectAddress      = 3 // repeated, as are ports, labels, and external addresses
	objectPort         = 4
	objectFlags        = 5
	objectExternalName = 6
	objectExternalIP   = 7
	objectExternalHost = 8
	objectService      = 9
	objectCluster      = 10
	objectEndpoints    = 11
	objectLabel        = 12 // a key, followed by its value

	portName     = 1
	portProtocol = 2
	portNumber   = 3
)

// The flags of an object.
const (
	flagHeadless = 1 << iota
	flagPublishNotReady
	flagSelector
	flagHost
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
