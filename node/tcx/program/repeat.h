//go:build ignore

// Replies that are repeated without the server.
//
// The worker stores the reply to a query that it has answered from its cache, or from the
// cluster's objects, with the query, for a limited time. A packet with the same query, but for
// its ID, is turned into the reply and sent back by its interface. The reply is the one that the
// worker would send, with TTLs that are less than a second old.
//
// A reply from the cluster's objects is repeated only while none of its generations has changed:
// package generation says what that guarantees. The worker reads them before the objects, and
// changes them before and after it changes an object. Of all the cells of a reply, the one that
// is compared first decides at what time the reply was right.

#pragma once
#include "kernel.h"
#include "state.h"

enum {
	QUERY = 96,  // bytes of the largest query, without the ID
	REPLY = 424, // bytes of the largest reply, without the ID
	SETS = 256,
	WAYS = 4, // replies in a set
	REPLIES = SETS * WAYS,
	CELLS = 910, // elements with generations
};

// A reply. The worker writes `until` last, and sets it to zero before it changes the others,
// but not while a packet may be compared with them: a fraction of a second passes between the
// time that `until` was and a change.
struct reply {
	__u64 until;    // CLOCK_MONOTONIC
	__u64 repeated; // packets
	__u32 alias[4]; // that the query was sent to; one of IPv4 is the first word
	__u16 query_size, reply_size; // without the ID
	__u32 difference; // of the sums of the reply and the query
	__u16 cells[3], unused; // that the reply depends on
	__u64 generations; // their sum
	__u64 query[QUERY / 8]; // followed by zeros
	__u8 reply[REPLY];
};

enum { WORDS = sizeof(struct reply) / sizeof(__u64) };

// An array of replies, and after them one of generations, which the worker maps as one file.
union element {
	struct reply reply;
	__u64 cells[WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REPLIES + CELLS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, union element);
} seamark_replies SEC(".maps");

// repeatable reports whether replies of a family may be repeated to a pod: one of the server's
// own has reached it within the last second, so no policy of the network forbids them. A
// repeated reply does not count as one, so that a later policy is found.
INLINE bool repeatable(struct family *f, __u64 now)
{
	__u32 zero = 0;
	volatile __u64 *open = bpf_map_lookup_elem(&seamark_gate, &zero);
	return open && *open && (__s64)(now - *(volatile __u64 *)&f->replied) < reached;
}

// generation returns the value of a cell.
INLINE __u64 generation(__u32 cell)
{
	__u32 index = REPLIES + cell / WORDS, word = cell % WORDS;
	asm volatile("" : "+r"(word)); // or clang removes the comparison, and the verifier knows no bound
	union element *e = bpf_map_lookup_elem(&seamark_replies, &index);
	return e && word < WORDS ? *(volatile __u64 *)&e->cells[word] : 0;
}

// current reports whether nothing that a reply depends on has changed since the reply was made.
INLINE bool current(const struct reply *r)
{
	return generation(r->cells[0]) + generation(r->cells[1]) + generation(r->cells[2]) == r->generations;
}

INLINE bool equal(const __u64 *a, const __u64 *b)
{
	__u64 difference = 0;
	for (int n = 0; n < QUERY / 8; n++)
		difference |= a[n] ^ b[n];
	return !difference;
}

// find_reply returns the reply to a query, and the time until which it is repeated; NULL if
// there is none.
INLINE struct reply *find_reply(const __u64 *query, __u32 size, const __u32 *alias, __u64 now, __u64 *until)
{
	__u64 hash = size;
	for (int n = 0; n < QUERY / 8; n++) {
		hash ^= hash >> 32;
		hash = (hash ^ query[n]) * 0x9e3779b97f4a7c15ULL;
	}

	for (__u32 way = 0; way < WAYS; way++) {
		__u32 index = ((hash >> 40) & (SETS - 1)) * WAYS + way;
		union element *e = bpf_map_lookup_elem(&seamark_replies, &index);
		if (!e)
			continue;
		struct reply *r = &e->reply;
		*until = *(volatile __u64 *)&r->until;
		if ((__s64)(*until - now) <= 0)
			continue;
		if (r->query_size == size && equal6(r->alias, alias) && equal(r->query, query) && current(r))
			return r;
	}
	return NULL;
}

INLINE __u16 add_sums(__u32 a, __u32 b)
{
	a += b;
	a = (a >> 16) + (a & 0xffff);
	return (a >> 16) + (a & 0xffff);
}

// replace_sum returns the checksum of a header in which a word was replaced (RFC 1624).
INLINE __u16 replace_sum(__u16 sum, __u16 from, __u16 to)
{
	return ~add_sums(add_sums((__u16)~sum, (__u16)~from), to);
}

// return_to_sender exchanges the addresses and sets the size of a UDP packet.
INLINE bool return_to_sender(struct __sk_buff *skb, __u16 udp_length, bool is6)
{
	__u32 size = sizeof(struct ethernet) + (is6 ? sizeof(struct ip6) : sizeof(struct ip4)) + sizeof(struct udp);
	if (bpf_skb_pull_data(skb, size))
		return false;
	struct ethernet *eth = (void *)(long)skb->data;
	if ((void *)eth + size > (void *)(long)skb->data_end)
		return false;

	struct ethernet from = *eth;
	__builtin_memcpy(&eth->destination, from.source, 6);
	__builtin_memcpy(eth->source, &from.destination, 6);

	struct udp *udp;
	if (is6) {
		struct ip6 *ip = (void *)(eth + 1);
		udp = (void *)(ip + 1);
		for (int n = 0; n < 4; n++) {
			__u32 source = ip->source[n];
			ip->source[n] = ip->destination[n];
			ip->destination[n] = source;
		}
		ip->length = udp_length;
		ip->hops = 64;
	} else {
		struct ip4 *ip = (void *)(eth + 1);
		udp = (void *)(ip + 1);
		__u32 source = ip->source;
		ip->source = ip->destination;
		ip->destination = source;

		// The sum of the addresses is the same.
		__u16 length = BE16(BE16(udp_length) + sizeof(*ip));
		__u16 sum = replace_sum(ip->checksum, ip->length, length);
		ip->length = length;
		ip->checksum = replace_sum(sum, BE16(ip->ttl << 8), BE16(64 << 8));
		ip->ttl = 64;
	}

	__u16 source = udp->source;
	udp->source = udp->destination;
	udp->destination = source;
	udp->length = udp_length;
	return true;
}

// repeat turns a UDP packet with a query into the reply and sends it back, if there is one.
// TCX_NEXT means that the packet is as before.
INLINE int repeat(struct __sk_buff *skb, const __u32 *alias, __u64 now, bool is6)
{
	__u32 transport = sizeof(struct ethernet) + (is6 ? sizeof(struct ip6) : sizeof(struct ip4));
	__u32 id = transport + sizeof(struct udp);
	__u32 size = skb->len - id - 2;
	__u64 query[QUERY / 8] = {};
	struct udp udp;
	if (size < 1 || size > QUERY || bpf_skb_load_bytes(skb, transport, &udp, sizeof(udp)) ||
	    bpf_skb_load_bytes(skb, id + 2, query, size))
		return TCX_NEXT;
	if (BE16(udp.length) != skb->len - transport)
		return TCX_NEXT;

	__u64 until = 0;
	struct reply *r = find_reply(query, size, alias, now, &until);
	if (!r)
		return TCX_NEXT;
	__u32 reply_size = r->reply_size;
	if (reply_size < 1 || reply_size > REPLY || bpf_skb_change_tail(skb, id + 2 + reply_size, 0))
		return TCX_NEXT;

	__u16 length = BE16(sizeof(struct udp) + 2 + reply_size);
	__u32 sum = transport + UDP_CHECKSUM;
	// The length is also in the pseudo header. The ports and addresses add up to the same.
	if (bpf_skb_store_bytes(skb, id + 2, r->reply, reply_size, 0) ||
	    bpf_l4_csum_replace(skb, sum, 0, r->difference, BPF_F_MARK_MANGLED_0) ||
	    bpf_l4_csum_replace(skb, sum, udp.length, length, BPF_F_MARK_MANGLED_0 | sizeof(length)) ||
	    bpf_l4_csum_replace(skb, sum, udp.length, length, BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0 | sizeof(length)) ||
	    !return_to_sender(skb, length, is6))
		return TCX_DROP;

	__sync_fetch_and_add(&r->repeated, 1);
	if (*(volatile __u64 *)&r->until != until) // this processor was interrupted for long
		return TCX_DROP;
	return bpf_redirect(skb->ifindex, 0);
}
