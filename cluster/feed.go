package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
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
)

// How long to wait before the next attempt. Each wait is twice the one before,
// up to a limit, and between half of that and all of it, so that the replicas
// of a server do not come all at once.
const (
	firstWait = 50 * time.Millisecond
	// An API server that restarts should be found within about a second of its
	// return, and asking for a connection costs nobody anything.
	reconnectWait = time.Second
	// An API server that has just started says for a moment that it is not ready,
	// for one resource and not for another: that is no news yet.
	busyWait = 300 * time.Millisecond
	// A list or watch that breaks off is requested again within this time.
	brokenWait = 2 * time.Second
	// A refusal, such as a missing permission, lasts longer.
	refusedWait = 4 * time.Second
	// A resource that the API server does not have needs a definition first.
	missingWait = 30 * time.Second
)

// A feed follows one resource, in one namespace or in all, for as long as it
// runs. The lists, watches, resource versions and bookmarks are the reflector's;
// the retries are its own, since the reflector takes up to a minute to return
// to an API server that was away.
type feed struct {
	resource
	namespace string // "" is all
	client    *client
	state     *state
	store     *store
	detector  *stallDetector

	// listing is held during a list, which the reflector makes on a goroutine
	// that it does not wait for.
	listing sync.Mutex
	good    atomic.Bool // the watch has delivered something
}

// run returns when ctx is done and nothing of the feed is running any more.
func (f *feed) run(ctx context.Context) {
	pace := flowcontrol.NewTokenBucketRateLimiter(1, 5) // against streams that break off as soon as they have begun
	lw := &cache.ListWatch{
		// The reflector's context for lists ends with nothing: ours does.
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
			f.failed() // the watch broke off: the reflector keeps the reason to itself
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
	// The API server ends a watch after TimeoutSeconds. Should it be gone by
	// then without a word, so do we.
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

// watching is a watch that leaves nothing running when it has been stopped. If
// it has begun with a list, that has been taken from it, but for the event with
// which the list has ended: the reflector would collect the objects.
type watching struct {
	watch.Interface
	cancel context.CancelFunc
	first  chan watch.Event // has room for one, and is never closed
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

// list is for API servers that do not stream lists (before Kubernetes 1.32). It
// is held as the bytes that it came in, until its objects have gone on one by
// one.
func (f *feed) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	f.listing.Lock()
	defer f.listing.Unlock()
	list := new(records)
	err := f.ask(ctx, "list", &opts, func(r *rest.Request) error {
		if opts.Continue == "" { // or it is another page
			f.store.begin()
		}
		*list = records{take: f.store.listing.put}
		err := r.Do(ctx).Into(list)
		if err == nil && list.ResourceVersion == "" {
			err = errors.New("the answer has no resourceVersion: it is not an API server's") // such as {}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	f.store.plain = true
	return list, nil
}

// ask makes a request until somebody answers it, and says which verb it was if
// the answer is a refusal. The reflector must not see that the API server is
// away: it would list everything anew, where the same watch can go on.
func (f *feed) ask(ctx context.Context, verb string, opts *metav1.ListOptions, do func(*rest.Request) error) error {
	opts.LabelSelector, opts.FieldSelector = f.labels, f.fields
	for delay := firstWait; ; delay = min(2*delay, reconnectWait) {
		group, err := f.client.group(f.resource, f.detector)
		if err == nil {
			err = do(group.Get().Namespace(f.namespace).Resource(f.name).VersionedParams(opts, metav1.ParameterCodec).MaxRetries(0))
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
			f.state.trouble(f.topic(), "busy", "cannot "+verb+" "+f.where()+"; trying again", "error", err)
		}
		sleep(ctx, delay)
	}
}

// fine is called when a watch has delivered something. That one was accepted
// is not enough: it may break off at once.
func (f *feed) fine() {
	if f.good.Swap(true) {
		return
	}
	f.state.fine("token", "the API server accepts us again")
	f.state.fine(f.topic(), "watching "+f.where()+" again")
}

// stalled logs that the API server has been silent for some time, and whether the
// request has been given up and is sent again.
func (f *feed) stalled(silence time.Duration, retry bool) {
	f.good.Store(false)
	silence = silence.Round(time.Millisecond)
	message := "API server does not respond"
	if retry {
		message = "list or watch stalled, retrying"
	}
	f.state.trouble(f.topic(), "stalled", message, "resource", f.String(), "namespace", f.namespace, "duration", silence)
}

// A refusal is an answer that is not the one that was asked for.
type refusal struct {
	verb string
	error
}

func (r refusal) Unwrap() error { return r.error }

func (f *feed) failed() { f.store.source.count.errors[f.kinds[0]].Add(1) }

// report says what is refused, and what to do about it.
func (f *feed) report(err error) {
	verb := "watch"
	if r := (refusal{}); errors.As(err, &r) {
		verb = r.verb
	}
	switch {
	case errors.Is(err, errStalled): // which is logged
	case apierrors.IsUnauthorized(err):
		f.state.trouble("token", "", "the API server does not accept our token or certificate; trying again: give it one that is valid", "error", err)
	case apierrors.IsForbidden(err):
		f.state.trouble(f.topic(), verb, "the API server forbids to "+verb+" "+f.where()+"; trying again: grant list and watch to the service account", "error", err)
	case apierrors.IsNotFound(err):
		f.state.trouble(f.topic(), verb, "the API server has no "+f.String()+"; trying again: is its definition installed?", "error", err)
		if f.kinds[0] == Imports { // a cluster without the definition has no ServiceImports, and waits for none
			f.store.none()
		}
	default:
		f.state.trouble(f.topic(), verb, "cannot "+verb+" "+f.where()+"; trying again", "error", err)
	}
}

// topic tells the feed's troubles from those of others.
func (f *feed) topic() string { return f.String() + "/" + f.namespace }

// where says what is followed, as the log has it.
func (f *feed) where() string {
	switch {
	case f.kinds[0] == ConfigMaps:
		return f.String() + " with " + f.fields + " in namespace " + f.namespace
	case f.kinds[0] == Nodes: // these are not in a namespace
		return f.String()
	case f.namespace != "":
		return f.String() + " in namespace " + f.namespace
	case f.fields != "" && f.kinds[0] == Namespaces:
		return f.String() + " with " + f.fields
	}
	return f.String() + " in all namespaces"
}

// sleep waits for between half of d and all of it.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d/2 + rand.N(d/2)):
	case <-ctx.Done():
	}
}
