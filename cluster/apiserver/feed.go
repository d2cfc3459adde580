package apiserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
)

// Waits before the next attempt. Each wait is twice the previous one, up to a limit,
// with a random part so that replicas do not retry at the same time.
const (
	firstWait = 50 * time.Millisecond
	// An API server that has restarted is found within about a second, and a
	// connection attempt is cheap.
	reconnectWait = time.Second
	// An API server that has just started reports for a moment that some resources
	// are not ready. This is not logged at once.
	busyWait = 300 * time.Millisecond
	// A list or watch that breaks off is requested again within this time.
	brokenWait = 2 * time.Second
	// A refusal, such as a missing permission, lasts longer.
	refusedWait = 4 * time.Second
	// A resource that the API server does not have needs a definition first.
	missingWait = 30 * time.Second
)

const requestFailed = "List or watch failed, retrying"

// A feed lists and watches one resource, in one namespace or in all. It leaves lists,
// watches, resource versions and bookmarks to a reflector, but retries itself: the
// reflector takes up to a minute to return to an unreachable API server.
type feed struct {
	api.Resource
	client   *client
	state    *state
	store    *store
	detector *stallDetector

	// listing is held during a list. The reflector does not wait for the goroutine
	// that lists.
	listing sync.Mutex
	good    atomic.Bool // the watch has delivered something
}

// run returns when ctx is done and all goroutines of the feed have ended.
func (f *feed) run(ctx context.Context) {
	pace := flowcontrol.NewTokenBucketRateLimiter(1, 5) // limits streams that break off at once
	lw := &cache.ListWatch{
		// The reflector does not cancel the context of lists.
		ListWithContextFunc: func(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) { return f.list(ctx, opts) },
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if err := pace.Wait(ctx); err != nil {
				return nil, err
			}
			return f.watch(ctx, opts)
		},
	}
	f.store.fine = f.fine
	prober := f.client.prober(f.String())
	f.detector.probe = func(req *http.Request, since time.Time) bool {
		return f.client.probe(prober, req, since, f.detector.timeouts)
	}
	f.detector.stalled = f.stalled
	reflector := cache.NewReflectorWithOptions(lw, new(arrived), f.store, cache.ReflectorOptions{
		Name: f.String(), TypeDescription: f.String(), Logger: &klog.Logger{},
		Backoff: &wait.Backoff{Duration: firstWait, Factor: 2, Jitter: 1, Steps: 5, Cap: reconnectWait},
	})
	delay := firstWait
	for ctx.Err() == nil {
		f.good.Store(false)
		f.store.plain = false
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			f.report(err)
		} else {
			f.failed() // the watch broke off; the reflector does not return the reason
		}
		if f.good.Load() {
			delay = firstWait
		}
		sleep(ctx, delay)
		delay = min(2*delay, longestWait(err))
	}
	f.listing.Lock()
	defer f.listing.Unlock()
}

// longestWait returns the limit of the wait after err, which is nil for a list
// or watch that broke off.
func longestWait(err error) time.Duration {
	switch {
	case apierrors.IsNotFound(err):
		return missingWait
	case errors.As(err, new(apierrors.APIStatus)):
		return refusedWait
	}
	return brokenWait
}

func (f *feed) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	// The API server ends a watch after TimeoutSeconds. If it does not, the feed does.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*opts.TimeoutSeconds)*time.Second+30*time.Second)
	opts.Watch = true
	var w watch.Interface
	err := f.ask(ctx, "watch", &opts, func(r *rest.Request) (err error) {
		w, err = r.Watch(ctx)
		return err
	})
	if err != nil {
		cancel()
		return nil, err
	}
	all := watching{w, cancel, make(chan watch.Event, 1)}
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		last, ok := f.store.receive(w.ResultChan())
		if ok {
			all.first <- last
		}
		if endsList(last) {
			f.detector.listed()
		} else if last.Type != watch.Error { // which the reflector returns
			f.failed()
		}
	}
	return all, nil
}

// watching is a watch whose Stop waits for its goroutine. If the watch began with a
// list, the list has been received already, except for its last event: the reflector
// would collect the objects.
type watching struct {
	watch.Interface
	cancel context.CancelFunc
	first  chan watch.Event // of capacity one, never closed
}

func (w watching) ResultChan() <-chan watch.Event {
	if len(w.first) > 0 {
		return w.first
	}
	return w.Interface.ResultChan()
}

func (w watching) Stop() {
	w.cancel()
	w.Interface.Stop()
	for range w.Interface.ResultChan() { // it is closed when the last goroutine ends
	}
}

// list requests a list from an API server that does not stream lists (before
// Kubernetes 1.32). The response is held in memory until its objects have been put.
func (f *feed) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	f.listing.Lock()
	defer f.listing.Unlock()
	list := new(records)
	err := f.ask(ctx, "list", &opts, func(r *rest.Request) error {
		if opts.Continue == "" { // not for the following pages
			f.store.begin()
		}
		*list = records{take: f.store.listing.put}
		err := r.Do(ctx).Into(list)
		if err == nil && list.ResourceVersion == "" {
			err = errors.New("the answer has no resourceVersion: it is not an API server's") // for instance {}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	f.store.plain = true
	return list, nil
}

// ask sends a request until an API server responds, and returns a refusal if the
// response is an error. The reflector must not see that the API server is
// unreachable: it would list again, although the watch can be resumed.
func (f *feed) ask(ctx context.Context, verb string, opts *metav1.ListOptions, do func(*rest.Request) error) error {
	opts.LabelSelector, opts.FieldSelector = f.Labels, f.Fields
	for delay := firstWait; ; delay = min(2*delay, reconnectWait) {
		group, err := f.client.group(f.Resource, f.detector)
		if err == nil {
			err = do(group.Get().Namespace(f.Namespace).Resource(f.Name).VersionedParams(opts, metav1.ParameterCodec).MaxRetries(0))
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.failed()
		var away noAnswer
		if !errors.As(err, &away) {
			return refusal{verb, err}
		}
		if !away.logged && delay > busyWait {
			f.good.Store(false)
			f.state.trouble(f.topic(), "busy", requestFailed, f.attrs("verb", verb, "error", err)...)
		}
		sleep(ctx, delay)
	}
}

// fine is called when a watch has delivered something. A watch that was only accepted
// may break off at once.
func (f *feed) fine() {
	if f.good.Swap(true) {
		return
	}
	f.state.fine("token", "API server accepts the credentials again")
	f.state.fine(f.topic(), "List or watch recovered", f.attrs()...)
}

// stalled logs that the API server has been silent for some time, and whether the
// request has been given up and is sent again.
func (f *feed) stalled(silence time.Duration, retry bool) {
	f.good.Store(false)
	silence = silence.Round(time.Millisecond)
	message := "API server does not respond"
	if retry {
		message = "List or watch stalled, retrying"
	}
	f.state.trouble(f.topic(), "stalled", message, f.attrs("duration", silence)...)
}

// A refusal is an error response, and the verb of the request.
type refusal struct {
	verb string
	error
}

func (r refusal) Unwrap() error { return r.error }

func (f *feed) failed() { f.store.source.Errors[f.Kinds[0]].Add(1) }

// report logs an error, and what to do about it.
func (f *feed) report(err error) {
	verb := "watch"
	if r := (refusal{}); errors.As(err, &r) {
		verb = r.verb
	}
	switch {
	case errors.Is(err, errStalled): // logged already
	case apierrors.IsUnauthorized(err):
		f.state.trouble("token", "", "API server rejects the token or certificate, retrying", "error", err)
	case apierrors.IsForbidden(err):
		f.state.trouble(f.topic(), verb, "List or watch forbidden, grant both to the service account", f.attrs("verb", verb, "error", err)...)
	case apierrors.IsNotFound(err):
		f.state.trouble(f.topic(), verb, "Resource not defined in the API server, retrying", f.attrs("verb", verb, "error", err)...)
		if f.Kinds[0] == cluster.Imports { // without the definition there are no ServiceImports to wait for
			f.store.none()
		}
	default:
		f.state.trouble(f.topic(), verb, requestFailed, f.attrs("verb", verb, "error", err)...)
	}
}

// topic identifies the feed's problems.
func (f *feed) topic() string { return f.String() + "/" + f.Namespace }

// attrs returns the attributes that identify the feed in the log, and more.
func (f *feed) attrs(more ...any) []any {
	attrs := []any{"resource", f.String()}
	if f.Namespace != "" {
		attrs = append(attrs, "namespace", f.Namespace)
	}
	if name, ok := strings.CutPrefix(f.Fields, "metadata.name="); ok {
		attrs = append(attrs, "name", name)
	}
	return append(attrs, more...)
}

// sleep waits for a random part of d, at least half of it.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d/2 + rand.N(d/2)):
	case <-ctx.Done():
	}
}
