package apiserver

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
)

// newReflector returns a reflector that lists and watches by the feed, and stores in the feed.
func (f *feed) newReflector(ctx context.Context) *cache.Reflector {
	pace := flowcontrol.NewTokenBucketRateLimiter(1, 5) // limits streams that break off at once
	lw := &cache.ListWatch{
		// The reflector does not cancel the context of lists.
		ListWithContextFunc: func(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return f.list(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if err := pace.Wait(ctx); err != nil {
				return nil, err
			}
			return f.watch(ctx, opts)
		},
	}

	// For a streaming list of a node's Pods the API server reads all Pods of the cluster; for a
	// plain list it has an index.
	var lister cache.ListerWatcher = lw
	if strings.HasPrefix(f.Fields, "spec.nodeName=") {
		lister = cache.ToListWatcherWithWatchListSemantics(lw, plainLists{})
	}
	return cache.NewReflectorWithOptions(lister, new(decodedObject), feedStore{f}, cache.ReflectorOptions{
		Name: f.String(), TypeDescription: f.String(), Logger: &klog.Logger{},
		Backoff: &wait.Backoff{Duration: firstWait, Factor: 2, Jitter: 1, Steps: 5, Cap: reconnectWait},
	})
}

// plainLists keeps the reflector from requesting streaming lists.
type plainLists struct{}

// IsWatchListSemanticsUnSupported reports that lists are not streamed.
func (plainLists) IsWatchListSemanticsUnSupported() bool { return true }

// A feedWatch is a watch whose Stop waits for its goroutine. If the watch began with a
// list, the list has been received already, except for its last event: the reflector
// would collect the objects.
type feedWatch struct {
	watch.Interface
	cancel     context.CancelFunc
	lastListed chan watch.Event // the last event of the list; never closed
}

// ResultChan returns the channel of the next event. The reflector calls it before each, and so takes the last event
// of the list first.
func (w feedWatch) ResultChan() <-chan watch.Event {
	if len(w.lastListed) > 0 {
		return w.lastListed
	}
	return w.Interface.ResultChan()
}

func (w feedWatch) Stop() {
	w.cancel()
	w.Interface.Stop()
	for range w.Interface.ResultChan() { // it is closed when the last goroutine ends
	}
}

// A feedStore is the store of the reflector. It passes events on to the store of the feed, and
// records in the feed that they were delivered. The objects of lists reach the store without the
// reflector.
type feedStore struct{ *feed }

var _ cache.ReflectorBookmarkStore = feedStore{}

// Add implements cache.ReflectorStore.
func (s feedStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s feedStore) Update(obj any) error {
	s.store.put(obj.(*decodedObject))
	s.delivered()
	return nil
}

// Delete implements cache.ReflectorStore.
func (s feedStore) Delete(obj any) error {
	s.store.delete(obj.(*decodedObject))
	s.delivered()
	return nil
}

// Replace ends a list. The reflector's own list is empty.
func (s feedStore) Replace(_ []any, version string) error {
	s.endList(version)
	if !s.listRequest {
		s.delivered()
	}
	s.listRequest = false
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (s feedStore) Bookmark(version string) error {
	s.store.bookmark(version)
	s.detector.bookmarked()
	s.delivered()
	return nil
}

// Resync does nothing: the sink keeps its objects.
func (s feedStore) Resync() error { return nil }

// endList ends a list, and has the resource listed again if another list has to confirm it.
func (f *feed) endList(version string) {
	if wait, unconfirmed := f.store.endList(version); unconfirmed {
		time.AfterFunc(wait, f.relist)
	}
}
