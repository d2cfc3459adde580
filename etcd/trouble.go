package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Trouble is an error of the client in words for a person: without the names that
// gRPC has for kinds of errors, and with what to do where that is clear.
func Trouble(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", patience)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return errors.New("it wants to know who asks: give a user and a password")
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return errors.New("it does not take this user and password")
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return errors.New("this user may not read the keys")
	case errors.Is(err, rpctypes.ErrNoLeader):
		return errors.New("none of its members leads")
	}
	text := err.Error()
	for _, before := range [...]string{` desc = "transport: `, " desc = "} {
		if i := strings.LastIndex(text, before); i >= 0 {
			text = strings.TrimSuffix(text[i+len(before):], `"`)
		}
	}
	return errors.New(text)
}
