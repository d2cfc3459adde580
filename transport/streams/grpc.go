package streams

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/seamark/seamark/dns"
	"github.com/seamark/seamark/transport"
	"github.com/seamark/seamark/wire"
	"github.com/seamark/seamark/wire/grpcmessage"
)

// A grpcCode is a status code of gRPC.
type grpcCode int

const (
	grpcOK                grpcCode = 0
	grpcInvalidArgument   grpcCode = 3
	grpcResourceExhausted grpcCode = 8
	grpcUnimplemented     grpcCode = 12
	grpcUnavailable       grpcCode = 14
)

// grpcMessage is a field in the header of a response that is nothing but an error.
const grpcMessage = "Grpc-Message"

// ListenGRPC opens addr for CoreDNS's gRPC service. The caller must call Stop.
func ListenGRPC(ctx context.Context, addr netip.AddrPort, o Options) (*HTTPS, error) {
	l := new(HTTPS)
	return l, l.open(ctx, addr, o, grpcQueries{&l.listener}, "h2")
}

// grpcQueries answers the gRPC requests of a listener.
type grpcQueries struct{ *listener }

func (h grpcQueries) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Context().Err() != nil {
		return // the client has reset the stream before its turn
	}
	contentType, parameters, _ := strings.Cut(r.Header.Get("Content-Type"), "+")
	switch {
	case r.ProtoMajor < 2:
		http.Error(w, "gRPC needs HTTP/2", http.StatusHTTPVersionNotSupported)
		return
	case r.Method != http.MethodPost:
		http.Error(w, "gRPC needs POST", http.StatusMethodNotAllowed)
		return
	case contentType != grpcmessage.ContentType || parameters != "" && parameters != "proto":
		http.Error(w, "want the content type "+grpcmessage.ContentType, http.StatusUnsupportedMediaType)
		return
	}

	from := origin(r)
	client := from.Peer.Addr()
	body, code, problem := h.answer(w, r, from)
	reserved, ok := h.load.enqueue(client, body)
	defer h.load.dequeue(client, reserved)
	if !ok {
		code, problem = grpcUnavailable, "too many large replies wait for other clients"
	}

	header := w.Header()
	header.Set("Content-Type", grpcmessage.ContentType)
	if code == grpcOK {
		header.Set("Trailer", "Grpc-Status")
		_, _ = w.Write(body)
	} else {
		header.Set(grpcMessage, problem)
	}
	header.Set("Grpc-Status", strconv.Itoa(int(code)))
}

// answer returns the body of the response, or another code than grpcOK and its reason.
func (h grpcQueries) answer(
	w http.ResponseWriter, r *http.Request, from transport.Origin,
) (body []byte, code grpcCode, problem string) {
	if r.URL.Path != grpcmessage.Path {
		return nil, grpcUnimplemented, "unknown method: want " + grpcmessage.Path
	}

	request, err := h.readBody(w, r, from.Peer.Addr(), grpcmessage.MaxSize)
	if _, tooLarge := err.(*http.MaxBytesError); tooLarge {
		return nil, grpcResourceExhausted, "the DNS message is larger than " + strconv.Itoa(wire.MaxMessage) + " bytes"
	}
	var packet []byte
	if err == nil {
		packet, err = grpcmessage.Parse(request)
	}

	use := func(q *dns.Query) {
		if reply := q.Reply(); len(reply) > 0 {
			body = grpcmessage.Append(nil, reply)
		}
	}
	switch {
	case err == errBusy:
		return nil, grpcUnavailable, err.Error()
	case errors.Is(err, grpcmessage.ErrCompressed):
		w.Header().Set("Grpc-Accept-Encoding", "identity")
		return nil, grpcUnimplemented, err.Error()
	case err != nil:
		return nil, grpcInvalidArgument, err.Error()
	case !h.Answer(r.Context(), packet, from, use):
		return nil, grpcInvalidArgument, "the DNS message is not a query"
	case body == nil:
		return nil, grpcUnavailable, "the query was dropped"
	}
	return body, grpcOK, ""
}
