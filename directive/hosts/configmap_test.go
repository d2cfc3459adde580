package hosts

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/metrics"
)

// The API server is connected to with Block.Dial.
func TestConfigMapDial(t *testing.T) {
	dialed := make(chan string, 1)
	b := &config.Block{Log: slog.New(slog.DiscardHandler), Metrics: new(metrics.Registry)}
	b.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
		select {
		case dialed <- address:
		default:
		}
		return nil, errors.New("unreachable")
	}
	m := watchMap(cluster.Options{ConfigMap: "dns/custom", Endpoint: "http://192.0.2.1:8080"}, b)
	defer m.Stop()
	if got := <-dialed; got != "192.0.2.1:8080" {
		t.Errorf("got a connection to %s, want 192.0.2.1:8080", got)
	}
}

// Listed deletes the data only if the list does not have the ConfigMap.
func TestConfigMapListed(t *testing.T) {
	m := new(configMap)
	sink := &cluster.ConfigMapSink{Set: m.set}
	key := mapKey{m, "dns/custom", "hosts"}
	expect := func(want string, wantListed bool) {
		t.Helper()
		if got, listed := key.lines(); got != want || listed != wantListed {
			t.Errorf("lines of %s: got %q, listed %v, want %q, listed %v", key, got, listed, want, wantListed)
		}
	}
	custom := &cluster.ConfigMap{Namespace: "dns", Name: "custom", Data: map[string]string{"hosts": "10.0.0.1 a"}}
	has := func(key cluster.Key) bool { return key == custom.Key() }
	none := func(cluster.Key) bool { return false }
	expect("", false)
	sink.Listed(cluster.ConfigMaps, none)
	expect("", true)
	sink.Put(cluster.ConfigMaps, custom)
	sink.Listed(cluster.ConfigMaps, has)
	expect("10.0.0.1 a", true)
	sink.Listed(cluster.ConfigMaps, none)
	expect("", true)
	sink.Put(cluster.ConfigMaps, custom)
	sink.Delete(cluster.ConfigMaps, custom.Key())
	sink.Listed(cluster.ConfigMaps, has)
	expect("", true)
}
