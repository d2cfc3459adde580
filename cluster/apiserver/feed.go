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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/sys/clock"
)

// Waits before the next attempt. Each wait is twice the previous one, up to a limit,
// with a random part so that replicas do not retry at the same time.
const (
	firstWait = 50 * time.Millisecond
	// An API server that has restarted is found within about a second. A refused
	// connection is cheap. A TLS handshake is not, if thousands of nodes repeat it.
	reconnectWait = time.Second
	// An API server that has just started reports for a moment that some resources
	// are not ready. This is not logged at once.
	busyWait = 300 * time.Millisecond
	// A list or watch that breaks off is requested again within this time.
	brokenWait = 2 * time.Second
	// An error response, such as a missing permission, lasts longer.
	errorWait = 4 * time.Second
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
	reporter *reporter
	store    *store
	detector *stallDetector

	// listMu is held during a list request. The reflector does not wait for the
	// goroutine that sends it.
	listMu    sync.Mutex
	healthy   atomic.Bool // the watch has delivered an event or a bookmark
	relisting atomic.Bool // the next request has to be a list

	// listRequest is set while the reflector has the response to a list request. It belongs to
	// the reflector.
	listRequest bool
}

// newFeed returns the feed of a resource that delivers its objects to out.
func newFeed(r api.Resource, client *client, reporter *reporter, s *source, out namespaceSink, limits timeouts) *feed {
	f := &feed{
		Resource: r, client: client, reporter: reporter, detector: newStallDetector(limits),
		store: &store{
			source: s, kinds: r.Kinds, sink: out, versions: versions{seed: s.seed}, confirmWait: limits.confirm,
		},
	}
	prober := client.prober(f.String())
	f.detector.probe = func(req *http.Request, since time.Time) bool { return client.probe(prober, req, since, limits) }
	f.detector.stalled = f.stalled
	return f
}

// run returns when ctx is done and all goroutines of the feed have ended.
func (f *feed) run(ctx context.Context) {
	reflector := f.newReflector(ctx)
	delay := firstWait
	for ctx.Err() == nil {
		f.healthy.Store(false)
		f.listRequest = false
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			break
		}

		switch {
		case f.relisting.Load():
		case err != nil:
			f.logError(err)
		default:
			f.countError() // the watch broke off; the reflector does not return the reason
		}
		if f.healthy.Load() {
			delay = firstWait
		}
		sleep(ctx, delay)
		delay = min(2*delay, longestWait(err))
	}

	f.listMu.Lock()
	defer f.listMu.Unlock()
}

// longestWait returns the limit of the wait after err, which is nil for a list
// or watch that broke off.
func longestWait(err error) time.Duration {
	switch {
	case apierrors.IsNotFound(err):
		return missingWait
	case errors.As(err, new(apierrors.APIStatus)):
		return errorWait
	}
	return brokenWait
}

func (f *feed) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	// The API server ends a watch after TimeoutSeconds. If it does not, the feed does.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*opts.TimeoutSeconds)*time.Second+30*time.Second)
	opts.Watch = true
	withList := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if withList {
		f.relisting.Store(false)
	}

	var w watch.Interface
	err := f.request(ctx, "watch", &opts, func(r *rest.Request) (err error) {
		w, err = r.Watch(ctx)
		return err
	})
	if err != nil {
		cancel()
		return nil, err
	}

	fw := feedWatch{w, cancel, make(chan watch.Event, 1)}
	if f.relisting.Load() && !withList {
		fw.Stop()
		return nil, errRelist
	}
	if withList {
		last, ok := f.store.receiveList(w.ResultChan())
		if ok {
			fw.lastListed <- last
		}
		if endsList(last) {
			f.detector.listEnded()
		} else if last.Type != watch.Error { // which the reflector returns
			f.countError()
		}
	}
	return fw, nil
}

// list requests a list from an API server that does not stream lists (before
// Kubernetes 1.32). The response is held in memory until its objects have been put.
func (f *feed) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	f.listMu.Lock()
	defer f.listMu.Unlock()
	f.relisting.Store(false)

	list := new(objectList)
	err := f.request(ctx, "list", &opts, func(r *rest.Request) error {
		if opts.Continue == "" { // not for the following pages
			f.store.startList()
		}
		*list = objectList{put: f.store.list.put}
		err := r.Do(ctx).Into(list)
		if err == nil && list.ResourceVersion == "" {
			// It is {}, for instance.
			err = errors.New("the response has no resourceVersion: it is not from an API server")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	f.listRequest = true
	return list, nil
}

// request sends a request until an API server responds, and returns an apiError if the
// response is an error. The reflector must not see that the API server is
// unreachable: it would list again, although the watch can be resumed.
func (f *feed) request(ctx context.Context, verb string, opts *metav1.ListOptions, do func(*rest.Request) error) error {
	opts.LabelSelector, opts.FieldSelector = f.Labels, f.Fields
	tried := 1 // versions of a custom resource
	for delay := firstWait; ; delay = min(2*delay, reconnectWait) {
		rest, err := f.client.restClient(f.Resource, verb, f.detector)
		if err == nil {
			err = do(newRequest(rest, f.Namespace, f.Name, opts))
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}

		if apierrors.IsNotFound(err) && tried < len(f.Versions) {
			f.client.otherVersion(f.Resource, rest.APIVersion())
			tried++
			continue
		}

		f.countError()
		var unavailable unavailableError
		if !errors.As(err, &unavailable) {
			return apiError{verb, err}
		}
		if !unavailable.logged && delay > busyWait {
			f.healthy.Store(false)
			f.reporter.problem(f.topic(), "busy", requestFailed, f.logAttrs("verb", verb, "error", err)...)
		}
		sleep(ctx, delay)
	}
}

// newRequest returns a request for the objects of a resource. Feeds retry by themselves.
func newRequest(rest rest.Interface, namespace, resource string, opts *metav1.ListOptions) *rest.Request {
	r := rest.Get().Namespace(namespace).Resource(resource)
	return r.VersionedParams(opts, metav1.ParameterCodec).MaxRetries(0)
}

// delivered is called when a watch has delivered an event or a bookmark. A watch that was only
// accepted may break off at once.
func (f *feed) delivered() {
	if f.healthy.Swap(true) {
		return
	}
	f.reporter.recovered("token", "API server accepts the credentials again")
	f.reporter.recovered(f.topic(), "List or watch recovered", f.logAttrs()...)
}

// stalled logs that the API server has been silent for some time, and whether the
// request has been given up and is sent again.
func (f *feed) stalled(silence time.Duration, retry bool) {
	f.healthy.Store(false)
	silence = silence.Round(time.Millisecond)
	message := "API server does not respond"
	if retry {
		message = "List or watch stalled, retrying"
	}
	f.reporter.problem(f.topic(), "stalled", message, f.logAttrs("duration", silence)...)
}

// An apiError is an error response, and the verb of the request.
type apiError struct {
	verb string
	error
}

func (e apiError) Unwrap() error { return e.error }

func (f *feed) countError() { f.store.source.Errors[f.Kinds[0]].Add(1) }

// logError logs an error response of a list or watch, and what to do about it.
func (f *feed) logError(err error) {
	verb := "watch"
	if e := (apiError{}); errors.As(err, &e) {
		verb = e.verb
	}
	problem := func(message string, more ...any) {
		attrs := append(f.logAttrs("verb", verb, "error", err), more...)
		f.reporter.problem(f.topic(), verb, message, attrs...)
	}
	switch {
	case errors.Is(err, errStalled): // logged already
	case apierrors.IsUnauthorized(err):
		f.reporter.problem("token", "", "API server rejects the token or certificate, retrying", "error", err)
	case apierrors.IsForbidden(err):
		problem("List or watch forbidden, grant both to the service account", "rule", f.rule())
	case apierrors.IsNotFound(err):
		problem("Resource not defined in the API server, retrying")
		if f.IsCustom() && !f.store.isEmpty() { // without the definition no object can exist
			f.store.startList()
			f.endList("")
		}
	default:
		problem(requestFailed)
	}
}

// topic identifies the feed's problems.
func (f *feed) topic() string { return f.String() + "/" + f.Namespace }

// logAttrs returns the attributes that identify the feed in the log, and more.
func (f *feed) logAttrs(more ...any) []any {
	attrs := []any{"kind", f.Kind}
	if f.Namespace != "" {
		attrs = append(attrs, "namespace", f.Namespace)
	}
	if name := f.objectName(); name != "" {
		attrs = append(attrs, "name", name)
	}
	return append(attrs, more...)
}

// objectName returns the name of the one object that is watched, "" if there may be several.
func (f *feed) objectName() string {
	name, ok := strings.CutPrefix(f.Fields, "metadata.name=")
	if !ok {
		return ""
	}
	return name
}

// rule returns the rule that the feed needs.
func (f *feed) rule() string { return rule(f.Group.Group, f.Name, f.objectName(), "list", "watch") }

// sleep waits for a random part of d, at least half of it.
func sleep(ctx context.Context, d time.Duration) {
	clock.Sleep(ctx, d/2+rand.N(d/2))
}
