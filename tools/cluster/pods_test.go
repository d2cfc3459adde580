//go:build linux

package main

import (
	"strings"
	"testing"
)

func TestPodKinds(t *testing.T) {
	if got := len(podKinds(options{}, dnsService)); got != 2 {
		t.Errorf("IPv4: got %d kinds, want 2", got)
	}
	kinds := podKinds(options{DualStack: true}, dnsService)
	if got := kinds[len(kinds)-1]; !got.IPv6Only || !strings.Contains(got.Spec, dnsService6) {
		t.Errorf("dual stack: got %+v last, want one with IPv6 only", got)
	}
}
