package diff

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A failed request ends the comparison only if repeating it does not help.
func TestProblemRecovered(t *testing.T) {
	for _, c := range []struct {
		name, want string
		log        func(*slog.Logger)
	}{
		{"refused", "reading objects of the kind Service: 500", func(l *slog.Logger) { l.Warn("List failed, retrying", "kind", "Service", "error", "500") }},
		{"no kind", "reading objects of the kind EndpointSlice: the server could not find the requested resource\nThe API server lacks this kind: Seamark needs discovery.k8s.io/v1, of Kubernetes 1.21 or later", func(l *slog.Logger) {
			l.Warn("Resource not defined in the API server, retrying", "kind", "EndpointSlice", "error", "the server could not find the requested resource")
		}},
		{"token", "token rejected: 401", func(l *slog.Logger) { l.Warn("token rejected, retrying", "error", "401") }},
		{"stalled", "reading objects of the kind Service: no progress for 1s: look for a slow connection or an overloaded API server", func(l *slog.Logger) { l.Warn("List stalled, retrying", "kind", "Service", "duration", time.Second) }},
		{"repeated", "", func(l *slog.Logger) {
			l.Warn("List failed, retrying", "kind", "Service", "error", "500")
			l.Info("List recovered", "kind", "Service")
		}},
		{"another repeated", "reading objects of the kind EndpointSlice: 500", func(l *slog.Logger) {
			l.Warn("List failed, retrying", "kind", "Service", "error", "500")
			l.Warn("List failed, retrying", "kind", "EndpointSlice", "error", "500")
			l.Info("List recovered", "kind", "Service")
		}},
		{"object", "", func(l *slog.Logger) {
			l.Warn("Ignored invalid port", "kind", "Service", "namespace", "a", "name", "b", "value", "0")
		}},
		{"no multi-cluster Services", "", func(l *slog.Logger) {
			l.Warn("Resource not defined in the API server, retrying", "kind", "ServiceImport", "error", "404")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(problems)
				c.log(slog.New(problemLog{slog.DiscardHandler, p}))
				if err := p.err(); err != nil {
					t.Errorf("at once: got the error %v, want none", err)
				}
				time.Sleep(patience + time.Millisecond)
				err := p.err()
				if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
					t.Errorf("after %v: got the error %v, want %q", patience, err, c.want)
				}
			})
		})
	}
}

func TestTimeoutAdvice(t *testing.T) {
	for _, c := range []struct{ logged, want string }{
		{"", "not complete within 2m0s: the API server has not sent them: look for"},
		{"pods is forbidden", "reading objects of the kind pods: pods is forbidden\nGrant the verbs list and watch"},
		{"connection refused", "not complete within 2m0s: reading objects of the kind pods: connection refused"},
	} {
		p := new(problems)
		if c.logged != "" {
			slog.New(problemLog{slog.DiscardHandler, p}).Warn("m", "kind", "pods", "error", c.logged)
		}
		if err := p.timeout(2 * time.Minute); !strings.Contains(err.Error(), c.want) {
			t.Errorf("timeout after %q: got %q, want %q", c.logged, err, c.want)
		}
	}
}
