package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/api"
	"github.com/seamark/seamark/metrics"
	"github.com/seamark/seamark/sys/follow"
)

// Limits of a Recorder. An Event costs two requests: one for the metadata of its object.
const (
	maxPendingEvents = 1000
	eventRate        = 1 // requests a second
	eventBurst       = 25
	eventTimeout     = 10 * time.Second // of a request

	// An Event that cannot be written is tried again, after waits as between the requests of a
	// feed, and is dropped when it is as old as the Events that an API server deletes.
	firstEventWait   = time.Second
	longestEventWait = time.Minute
	maxEventAge      = time.Hour
	// A permission that is missing is tried once in this time in each namespace.
	forbiddenEventWait = 10 * time.Minute
	// eventLogInterval is the time between two log lines about the same problem.
	eventLogInterval = time.Hour
)

// A Recorder writes Events about objects of a cluster, which kubectl describe shows. Events inform
// a person: they are bounded in number and rate, and one that cannot be written is no error.
type Recorder struct {
	component string
	kinds     []cluster.Kind
	log       *slog.Logger
	task      *follow.Task  // nil if no API server is watched
	changed   follow.Signal // another Event is pending

	written, existing, dropped *metrics.Counter // Events

	mu      sync.Mutex
	pending []*pendingEvent // in the order in which they became pending; one for each object

	// The fields below belong to the task.
	client     *client
	resources  []api.Resource
	readOrigin cluster.ReadOrigin
	rate       flowcontrol.RateLimiter
	logged     map[string]time.Time // by message
	forbidden  map[string]time.Time // by namespace: no attempt before that time
}

// A pendingEvent waits to be written.
type pendingEvent struct {
	kind            cluster.Kind
	key             cluster.Key
	version         string // of the object's API; "" is the watched one
	reason, message string
	at              time.Time // of the call of Warn
	due             time.Time // of the next attempt
	wait            time.Duration
	origin          cluster.Origin // of the object; the zero value before it was read
}

// NewRecorder returns a Recorder of Events about the objects that the options select. component is
// the source that the Events name. A Recorder for a folder of manifests writes nothing.
func NewRecorder(
	o cluster.Options, component string, log *slog.Logger, reg *metrics.Registry, dial Dial,
) *Recorder {
	r := &Recorder{
		component: component, kinds: o.Kinds(), log: log, changed: follow.NewSignal(),
		rate: flowcontrol.NewTokenBucketRateLimiter(eventRate, eventBurst), logged: map[string]time.Time{},
		forbidden: map[string]time.Time{},
	}
	count := func(result string) *metrics.Counter {
		return reg.Counter("seamark_kubernetes_object_events_total",
			"Events about objects of the cluster: written, existing since another server has written the same, "+
				"or dropped.", "result", result)
	}
	r.written, r.existing, r.dropped = count("written"), count("existing"), count("dropped")
	if o.Manifests != "" {
		return r
	}

	// The feeds log an API server that cannot be reached.
	silent := &reporter{
		log: slog.New(slog.DiscardHandler), metrics: reg, age: func() (time.Duration, bool) { return 0, false },
	}
	r.client = newClient(o, silent, dial)
	r.resources = api.Slimmer{Options: o, Warn: func(string, ...any) {}}.Resources()
	r.readOrigin = r.client.readOrigin(r.resources, flowcontrol.NewFakeAlwaysRateLimiter())
	r.task = follow.Go(r.run)
	return r
}

// Close ends the Recorder. It does not wait for pending Events.
func (r *Recorder) Close() {
	if r.task != nil {
		r.task.Stop()
	}
}

// Warn writes an Event of type Warning about an object, in the background. version is the apiVersion
// of the object, "" the one that is watched. An Event about the object that is still pending is
// replaced. Equal Events of several servers become one.
func (r *Recorder) Warn(kind cluster.Kind, key cluster.Key, version, reason, message string) {
	if r.task == nil || !slices.Contains(r.kinds, kind) {
		return
	}
	now := time.Now()
	e := &pendingEvent{kind: kind, key: key, version: version, reason: reason, message: message, at: now, due: now}
	if !r.add(e, true) {
		r.dropped.Add(1)
		return
	}
	r.changed.Send()
}

// add adds an Event. If the object has one already, the newer one is kept. add returns false if too
// many are pending.
func (r *Recorder) add(e *pendingEvent, isNew bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := func(p *pendingEvent) bool { return p.kind == e.kind && p.key == e.key }
	if i := slices.IndexFunc(r.pending, same); i >= 0 {
		if isNew {
			e.due = r.pending[i].due
			r.pending[i] = e
		}
		return true
	}
	if len(r.pending) >= maxPendingEvents {
		return false
	}
	r.pending = append(r.pending, e)
	return true
}

// run writes the pending Events until ctx is done.
func (r *Recorder) run(ctx context.Context) {
	defer r.client.closeIdle()
	for ctx.Err() == nil {
		e, wait := r.next(time.Now())
		if e != nil {
			r.handle(ctx, e, r.write(ctx, e))
			continue
		}

		r.client.closeIdle()
		select {
		case <-r.changed:
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// next removes and returns the first Event that is due. If none is, it returns the time until one
// may be.
func (r *Recorder) next(now time.Time) (e *pendingEvent, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = maxEventAge
	for i, e := range r.pending {
		until := max(e.due.Sub(now), r.forbidden[e.key.Namespace].Sub(now))
		if until > 0 {
			wait = min(wait, until)
			continue
		}
		r.pending = slices.Delete(r.pending, i, i+1)
		return e, 0
	}
	return nil, wait
}

// handle counts or logs the result of an attempt, and decides whether there will be another one.
func (r *Recorder) handle(ctx context.Context, e *pendingEvent, err error) {
	status := apierrors.APIStatus(nil)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		delete(r.forbidden, e.key.Namespace)
		r.written.Add(1)
	case apierrors.IsAlreadyExists(err): // of another server, or of an earlier one
		r.existing.Add(1)
	case errors.Is(err, errGone), apierrors.IsNotFound(err), apierrors.HasStatusCause(err, namespaceTerminating):
		r.dropped.Add(1) // the object or its namespace does not exist

	case apierrors.IsForbidden(err):
		r.problem("Writing Events forbidden, grant it to the service account",
			"namespace", e.key.Namespace, "error", err, "rule", rule("", events, "", "create"))
		r.forbid(e.key.Namespace)
		r.retry(e, forbiddenEventWait)

	case errors.As(err, &status) && status.Status().Code < 500 && !apierrors.IsUnauthorized(err):
		r.problem("Event rejected", "kind", e.kind.ObjectKind(),
			"namespace", e.key.Namespace, "name", e.key.Name, "error", err)
		r.dropped.Add(1)

	default: // the feeds log it
		e.wait = min(max(firstEventWait, 2*e.wait), longestEventWait)
		r.retry(e, e.wait/2+rand.N(e.wait/2))
	}
}

// retry adds an Event again, unless it is too old.
func (r *Recorder) retry(e *pendingEvent, wait time.Duration) {
	now := time.Now()
	if e.due = now.Add(wait); e.due.Sub(e.at) > maxEventAge || !r.add(e, false) {
		r.dropped.Add(1)
	}
}

// forbid postpones the attempts of a namespace, also those of Events that are still to come.
func (r *Recorder) forbid(namespace string) {
	now := time.Now()
	maps.DeleteFunc(r.forbidden, func(_ string, until time.Time) bool { return !until.After(now) })
	r.forbidden[namespace] = now.Add(forbiddenEventWait)
}

// problem logs a problem unless it was logged a short time ago.
func (r *Recorder) problem(msg string, attrs ...any) {
	now := time.Now()
	if last, ok := r.logged[msg]; ok && now.Sub(last) < eventLogInterval {
		return
	}
	r.logged[msg] = now
	r.log.Warn(msg, attrs...)
}

// write sends the requests for an Event.
func (r *Recorder) write(ctx context.Context, e *pendingEvent) error {
	if e.origin == (cluster.Origin{}) {
		err := r.request(ctx, func(ctx context.Context) (err error) {
			e.origin, err = r.readOrigin(ctx, e.kind, e.key)
			return err
		})
		if err != nil {
			return err
		}
	}

	body, err := r.event(e)
	if err != nil {
		return err
	}
	return r.request(ctx, func(ctx context.Context) error {
		rest, err := r.client.restClient(eventResource(), "create", nil)
		if err != nil {
			return err
		}
		post := rest.Post().Namespace(eventNamespace(e.key)).Resource(events).MaxRetries(0)
		return post.SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	})
}

// request calls send, with a deadline, when the limit of requests allows it.
func (r *Recorder) request(ctx context.Context, send func(context.Context) error) error {
	if err := r.rate.Wait(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	return send(ctx)
}
