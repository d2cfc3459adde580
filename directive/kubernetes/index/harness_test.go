package index

import (
	"log/slog"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/test/clustertest"
)

// Short names for the functions that make objects.
var (
	namespaceObject = clustertest.Namespace
	clusterIP       = clustertest.ClusterIP
	headless        = clustertest.Headless
	external        = clustertest.ExternalName
	slice           = clustertest.Slice
	ports           = clustertest.Ports
	load            = clustertest.Load[*Index]
	relist          = clustertest.List
)

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// watchedKinds returns the kinds that an index needs with the default options.
func watchedKinds() []cluster.Kind { return cluster.Options{}.Kinds() }

func newTestIndex() *Index { return New(Settings{TTL: 5}, watchedKinds(), discardLog()) }

// syncedIndex returns an index that has received empty lists.
func syncedIndex() *Index { return load(newTestIndex()) }
