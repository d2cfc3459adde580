//go:build ignore

// Declarations of the kernel's stable interface for BPF programs, as far as capture.c uses
// it: linux/bpf.h, linux/ip.h and others. They are repeated here, so that the object does
// not depend on the headers of the machine that builds it.

#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

// KEEP hides from clang where the value of a variable comes from: what follows uses the register.
#define KEEP(variable) asm volatile("" : "+r"(variable))

#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BE16(x) ((__u16)__builtin_bswap16(x))
#define BE32(x) ((__u32)__builtin_bswap32(x))
#else
#define BE16(x) ((__u16)(x))
#define BE32(x) ((__u32)(x))
#endif

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,

	BPF_F_RECOMPUTE_CSUM = 1 << 0, // of bpf_skb_store_bytes
	BPF_F_PSEUDO_HDR = 1 << 4,     // of bpf_l4_csum_replace
	BPF_F_MARK_MANGLED_0 = 1 << 5,
	BPF_RB_NO_WAKEUP = 1 << 0,

	BPF_TCP_LISTEN = 10,
	BPF_CURRENT_NETNS = -1,

	TCX_NEXT = -1, // the same as TC_ACT_UNSPEC
	TCX_DROP = 2,
};

struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	__u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
};

struct bpf_sock {
	__u32 bound_dev_if, family, type, protocol, mark, priority, src_ip4, src_ip6[4], src_port;
	__u16 dst_port;
	__u32 dst_ip4, dst_ip6[4], state;
	int rx_queue_mapping;
};

struct bpf_sock_tuple {
	union {
		struct {
			__u32 saddr, daddr;
			__u16 sport, dport;
		} ipv4;
		struct {
			__u32 saddr[4], daddr[4];
			__u16 sport, dport;
		} ipv6;
	};
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static long (*bpf_skb_store_bytes)(struct __sk_buff *, __u32 offset, const void *from, __u32 len, __u64 flags) =
	(void *)9;
static long (*bpf_l3_csum_replace)(struct __sk_buff *, __u32 offset, __u64 from, __u64 to, __u64 size) = (void *)10;
static long (*bpf_l4_csum_replace)(struct __sk_buff *, __u32 offset, __u64 from, __u64 to, __u64 flags) = (void *)11;
static long (*bpf_redirect)(__u32 index, __u64 flags) = (void *)23;
static long (*bpf_skb_load_bytes)(const void *, __u32 offset, void *to, __u32 len) = (void *)26;
static __s64 (*bpf_csum_diff)(__u32 *from, __u32 from_size, __u32 *to, __u32 to_size, __u32 seed) = (void *)28;
static long (*bpf_skb_change_tail)(struct __sk_buff *, __u32 size, __u64 flags) = (void *)38;
static long (*bpf_skb_pull_data)(struct __sk_buff *, __u32 len) = (void *)39;
static struct bpf_sock *(*bpf_sk_lookup_udp)(void *, struct bpf_sock_tuple *, __u32 size, __u64 netns, __u64 flags) =
	(void *)85;
static long (*bpf_sk_release)(void *) = (void *)86;
static struct bpf_sock *(*bpf_skc_lookup_tcp)(void *, struct bpf_sock_tuple *, __u32 size, __u64 netns, __u64 flags) =
	(void *)99;
static void *(*bpf_ringbuf_reserve)(void *map, __u64 size, __u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *, __u64 flags) = (void *)132;
static void (*bpf_ringbuf_discard)(void *, __u64 flags) = (void *)133;

enum {
	ETH_P_IP = 0x0800,
	ETH_P_IPV6 = 0x86dd,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_FRAGMENT = 44,
	IP_FRAGMENT = 0x3fff, // more fragments, or an offset
	IP_OFFSET = 0x1fff,
	IP6_OFFSET = 0xfff8,
	TCP_SYN = 0x02,
	TCP_ACK = 0x10,
};

struct ethernet {
	__u32 destination; // its first four bytes
	__u16 destination_end;
	__u8 source[6];
	__u16 protocol;
} __attribute__((packed));

struct ip4 {
	__u8 version_length, service;
	__u16 length, id, fragment;
	__u8 ttl, protocol;
	__u16 checksum;
	__u32 source, destination;
};

struct ip6 {
	__u32 version_flow;
	__u16 length;
	__u8 protocol, hops;
	__u32 source[4], destination[4];
};

struct fragment6 {
	__u8 protocol, reserved;
	__u16 offset;
	__u32 id;
};

struct tcp {
	__u16 source, destination; // the same in UDP
	__u32 sequence, acknowledged;
	__u8 offset, flags;
	__u16 window, checksum, urgent;
};

struct udp {
	__u16 source, destination, length, checksum;
};

enum { UDP_CHECKSUM = 6 }; // offset of the field
