module github.com/seamark/seamark/bench

go 1.26.0

require (
	github.com/cilium/ebpf v0.22.0
	github.com/miekg/dns v1.1.73
	github.com/quic-go/quic-go v0.65.0
	golang.org/x/net v0.57.0
	golang.org/x/sys v0.49.0
)

require (
	golang.org/x/crypto v0.54.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)
