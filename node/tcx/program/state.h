//go:build ignore

// The state that the programs keep, and share with the processes of the command node.

#pragma once
#include "kernel.h"

enum { INTERFACES = 2048 };

// Durations in nanoseconds. Tests set others when the program is loaded.
const volatile __s64 stale = 1500000000;   // the worker stamps a few times a second
const volatile __s64 silence = 1000000000; // without a reply: the replies do not arrive
const volatile __s64 forget = 30000000000; // a query without a reply counts no longer
const volatile __s64 reached = 10000000000; // since a reply: replies may be repeated

// The page that is shared with the worker.
struct shared {
	__u64 stamp;            // the worker's last sign of life, CLOCK_MONOTONIC
	__u64 queries, replies; // rewritten packets
	__u64 silent;           // queries that were not captured because replies do not arrive
	__u64 interfaces;       // written by the supervisor: captured, and paused in the upper half
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct shared);
} seamark_shared SEC(".maps");

// Whether new queries are captured. The worker cannot write it.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} seamark_gate SEC(".maps");

// The state of an address family at an interface. A rule of the node may concern only one.
struct family {
	__u64 pending; // time of the first query since the last reply, 0 if there is none
	__u64 replied; // time of the last reply over UDP
	__u32 paused;  // replies do not arrive: capture no queries
	__u32 probe;   // but one, once
};

// The state of an interface.
struct interface {
	__u32 mac; // the address that frames to the node have: of the interface or its bridge
	__u16 mac_end;
	__u16 unused;
	__u64 queries;
	struct family families[2]; // IPv4 and IPv6
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INTERFACES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct interface);
} seamark_states SEC(".maps");

// The index in seamark_states by the index of the interface.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, INTERFACES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} seamark_slots SEC(".maps");

INLINE struct interface *find_interface(__u32 index)
{
	__u32 *slot = bpf_map_lookup_elem(&seamark_slots, &index);
	return slot ? bpf_map_lookup_elem(&seamark_states, slot) : NULL;
}

INLINE bool equal6(const __u32 *a, const __u32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}
