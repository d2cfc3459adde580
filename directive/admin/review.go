package admin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/cluster/apiserver"
	"github.com/seamark/seamark/sys/slots"
)

// reviewedPath is the URL on which a user needs the verb get to read, and post to remove
// cached answers. It is no path of an API server.
const reviewedPath = "/seamark/admin"

const (
	reviewTimeout  = 2 * time.Second
	maxReviews     = 4                // that are under way, half of them for one client
	allowedFor     = time.Minute      // after which an accepted token is reviewed again
	refusedFor     = 10 * time.Second // the same for a refused one
	maxReviewed    = 1024             // tokens that are remembered, accepted and refused ones each
	reviewRate     = 10               // reviews a second of tokens that were not accepted before
	reviewBurst    = 20               // of which one client may have half
	maxReviewRates = 1024             // clients whose rates are remembered
	reviewLogPause = 10 * time.Second // between two errors in the log
)

// A reviewer checks tokens with an API server. Tokens that were accepted before have
// precedence, and no client has more than half of the reviews: clients with wrong tokens can
// neither flood the API server nor keep others out for long.
type reviewer struct {
	*verdicts
	api      *connection
	audience string
	log      *slog.Logger
	places   *slots.Pool
}

// A verdictsKey identifies the verdicts of an API server.
type verdictsKey struct {
	addr, audience string
	cluster        cluster.Options
}

// Verdicts are what a reviewer remembers. They survive reloads, which may happen while the API
// server is away.
type verdicts struct {
	mu       sync.Mutex
	accepted map[reviewKey]verdict
	refused  map[reviewKey]verdict
	all      rate                // of reviews
	rates    map[netip.Addr]rate // of the reviews for each client
	logged   time.Time
}

func newVerdicts() *verdicts {
	return &verdicts{
		accepted: map[reviewKey]verdict{}, refused: map[reviewKey]verdict{}, rates: map[netip.Addr]rate{},
	}
}

// Stop implements config.Stopper. Verdicts have nothing to stop.
func (*verdicts) Stop() {}

// A rate limits events: each takes a token.
type rate struct {
	used float64 // tokens
	at   time.Time
}

// now returns the rate at a time, when some tokens have come back.
func (r rate) now(now time.Time, perSecond float64) rate {
	return rate{max(0, r.used-perSecond*now.Sub(r.at).Seconds()), now}
}

// A reviewKey is a hash of a token and a verb.
type reviewKey [sha256.Size]byte

var errNoReviews = errors.New("the server has no permission to check tokens: " +
	"allow its service account to create tokenreviews.authentication.k8s.io and " +
	"subjectaccessreviews.authorization.k8s.io, as the ClusterRole system:auth-delegator does")

// A verdict is the result of a review.
type verdict struct {
	code  int // http.StatusOK if the request may be served
	err   error
	until time.Time
}

func newReviewer(api *connection, audience string, log *slog.Logger) *reviewer {
	return &reviewer{
		verdicts: newVerdicts(), api: api, audience: audience, log: log, places: slots.New(maxReviews, maxReviews/2),
	}
}

// check returns http.StatusOK if the user of a client's token may use a verb, get or post.
func (v *reviewer) check(ctx context.Context, client netip.Addr, token, verb string) (code int, err error) {
	if token == "" {
		return http.StatusUnauthorized, errNoToken
	}

	key := sha256.Sum256([]byte(verb + " " + token))
	old, admitted := v.known(key, slots.Client(client), time.Now())
	if old.code != 0 {
		return old.code, old.err
	}

	busy := errors.New("too many tokens are being checked: try again")
	if !admitted {
		return http.StatusServiceUnavailable, busy
	}

	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	if v.places.Acquire(ctx, client) != nil {
		return http.StatusServiceUnavailable, busy
	}
	defer v.places.Release(client)

	code, err = v.review(ctx, token, verb)
	if code != http.StatusServiceUnavailable {
		v.remember(key, verdict{code: code, err: err})
	}
	return code, err
}

// known returns the verdict about a token, if there is one, or whether a review is admitted.
func (v *verdicts) known(key reviewKey, client netip.Addr, now time.Time) (old verdict, admitted bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old, accepted := v.accepted[key]
	if !accepted {
		old = v.refused[key]
	}
	if now.Before(old.until) {
		return old, true
	}
	if accepted {
		return verdict{}, true
	}

	return verdict{}, v.admits(client, now)
}

// admits reports whether the rates allow another review for a client.
func (v *verdicts) admits(client netip.Addr, now time.Time) bool {
	own, all := v.rates[client].now(now, reviewRate/2), v.all.now(now, reviewRate)
	if own.used+1 > reviewBurst/2 || all.used+1 > reviewBurst {
		return false
	}

	own.used++
	all.used++
	if len(v.rates) >= maxReviewRates {
		clear(v.rates)
	}
	v.rates[client], v.all = own, all
	return true
}

func (v *verdicts) remember(key reviewKey, result verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()

	list, lifetime := v.accepted, allowedFor
	if result.code != http.StatusOK {
		delete(v.accepted, key)
		list, lifetime = v.refused, refusedFor
	}
	if len(list) >= maxReviewed {
		clear(list)
	}
	result.until = time.Now().Add(lifetime)
	list[key] = result
}

// review asks the API server.
func (v *reviewer) review(ctx context.Context, token, verb string) (code int, err error) {
	session, err := v.api.open()
	var user apiserver.User
	ok := false
	if err == nil {
		user, ok, err = session.Authenticate(ctx, token, v.audience)
	}
	if err == nil && !ok {
		return http.StatusUnauthorized, errors.New("the API server does not accept the token")
	}
	if err == nil {
		ok, err = session.AllowedURL(ctx, user, verb, reviewedPath)
	}

	refused, isResponse := errors.AsType[*apiserver.ResponseError](err)
	switch {
	case isResponse && refused.Code == http.StatusForbidden:
		v.report(fmt.Errorf("%w: %w", errNoReviews, err))
		return http.StatusServiceUnavailable, errNoReviews
	case err != nil:
		v.report(err)
		return http.StatusServiceUnavailable,
			errors.New("the token cannot be checked now: the log of the server has the reason")
	case !ok:
		return http.StatusForbidden, fmt.Errorf(
			"user %s may not %s the URL %s: bind a ClusterRole with nonResourceURLs [%s] and verbs [%s]",
			user.Name, verb, reviewedPath, reviewedPath, verb)
	}
	return http.StatusOK, nil
}

func (v *reviewer) report(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := time.Now(); now.Sub(v.logged) >= reviewLogPause {
		v.logged = now
		v.log.Error("admin: Checking a token with the API server failed", "error", err)
	}
}
