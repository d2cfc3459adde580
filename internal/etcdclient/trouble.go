package etcdclient

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Trouble is an error of the client in words for a person: without gRPC's names for
// kinds of errors, and with what to do where that is clear.
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
	return errors.New(inner(err.Error()))
}

// reason finds what gRPC had to say at the end: that is the cause.
var reason = regexp.MustCompile(`(?s)^.* desc = "?(?:transport: )?(.*?)"?$`)

func inner(text string) string {
	if m := reason.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return text
}

// Why is Trouble, and if the trouble is that nobody has answered in time it asks once
// more, to learn what stood in the way: the client says that to its log alone. It
// takes a second at most.
func (o Options) Why(ctx context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return Trouble(err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	o.Username, o.Password = "", "" // they are shown when there is a connection
	c, wrong := o.Client(ctx)
	if wrong != nil {
		return Trouble(wrong)
	}
	defer c.Close()
	_, wrong = pb.NewKVClient(c.ActiveConnection()).Range(ctx, &pb.RangeRequest{Key: []byte{0}})
	if wrong != nil && strings.Contains(wrong.Error(), "connection error:") {
		return errors.New(inner(wrong.Error()))
	}
	return Trouble(err)
}
