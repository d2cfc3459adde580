package diff

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

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
