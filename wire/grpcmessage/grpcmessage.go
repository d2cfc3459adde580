// Package grpcmessage encodes DNS messages for CoreDNS's gRPC service:
//
//	package coredns.dns;
//	message DnsPacket { bytes msg = 1; }
//	service DnsService { rpc Query (DnsPacket) returns (DnsPacket); }
//
// gRPC is an HTTP/2 request at Path, with the message in its body, and a response with the
// status in its trailers, so that package net/http is sufficient for servers and clients.
package grpcmessage

import (
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/seamark/seamark/wire"
)

const (
	Path        = "/coredns.dns.DnsService/Query"
	ContentType = "application/grpc"
	// MaxSize is the size in bytes of a body with the largest DNS message: the headers of
	// the frame and of the field have 9 bytes.
	MaxSize = wire.MaxMessage + 9

	frameHeader = 5 // a flag and the length
	msgField    = 1
)

var (
	errFrame      = errors.New("the body is not one gRPC message")
	errPacket     = errors.New("the gRPC message is not a DnsPacket")
	ErrCompressed = errors.New("compressed gRPC messages are not supported")
)

// Append appends the body with a DNS message to dst.
func Append(dst, message []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, frameHeader)...)
	dst = protowire.AppendTag(dst, msgField, protowire.BytesType)
	dst = protowire.AppendBytes(dst, message)
	binary.BigEndian.PutUint32(dst[start+1:], uint32(len(dst)-start-frameHeader))
	return dst
}

// Parse returns the DNS message in a body. It is empty if the DnsPacket has none.
func Parse(body []byte) (message []byte, err error) {
	if len(body) < frameHeader {
		return nil, errFrame
	}
	if body[0] == 1 {
		return nil, ErrCompressed
	}

	packet := body[frameHeader:]
	if body[0] != 0 || uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(packet)) {
		return nil, errFrame
	}

	for len(packet) > 0 {
		number, kind, size := protowire.ConsumeTag(packet)
		if size < 0 {
			return nil, errPacket
		}
		packet = packet[size:]

		if size = protowire.ConsumeFieldValue(number, kind, packet); size < 0 {
			return nil, errPacket
		}
		if number == msgField && kind == protowire.BytesType {
			message, _ = protowire.ConsumeBytes(packet)
		}
		packet = packet[size:]
	}
	return message, nil
}
