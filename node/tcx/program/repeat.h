//go:build ignore

// Replies that are repeated without the server.
//
// The worker stores the reply to a query that it has answered from its cache, or from the
// cluster's objects, with the query, for a limited time. A packet with the same query, but for
// its ID, is turned into the reply and sent back by its interface. The reply is the one that the
// worker would send: TTLs of the cache decrease, and addresses take turns if the worker rotates them.
//
// A reply is repeated only while none of its generations has changed: package generation says what
// that guarantees. The worker reads them before the data, and changes them before and after it
// changes the data. Of all the cells of a reply, the one that is compared first decides at what time
// the reply was right.

#pragma once
#include "kernel.h"
#include "state.h"

enum {
	QUERY = 96,  // bytes of the largest query, without the ID
	REPLY = 424, // bytes of the largest reply, without the ID
	SETS = 2048,
	WAYS = 4, // replies in a set
	REPLIES = SETS * WAYS,
	CELLS = 852, // elements with generations
	SAMPLING = REPLIES + CELLS, // the element with struct sampling
	PACKET = sizeof(struct ip6) + sizeof(struct udp) + 2 + REPLY, // bytes of the largest IP packet with a reply
	SAMPLES = 1 << 16, // bytes
	TTLS = 8,    // of a reply that decrease
	TURNS = 8,   // of addresses
	RECORD = 32, // bytes of the largest record that takes turns
};

// A reply. The worker writes `until` last, and sets it to zero before it changes the others,
// but not while a packet may be compared with them: a fraction of a second passes between the
// time that `until` was and a change. A program reads `until`, has a barrier, and reads the others:
// they are what the worker had written before it wrote `until`.
struct reply {
	__u64 until;    // CLOCK_MONOTONIC
	__u64 repeated; // packets
	__u32 hash, difference; // of the query; of the sums of the reply and the query
	__u32 alias[4]; // that the query was sent to; one of IPv4 is the first word
	__u16 query_size, reply_size; // without the ID
	__u16 rotated, turns; // the offset of the records that take turns, and their number; 0 if there are none
	__u16 record; // their size
	__u16 cells[3]; // that the reply depends on
	__u64 generations; // their sum
	__u64 aged; // the time that the TTLs are of; 0 if they do not decrease
	__u16 ttls[TTLS]; // their offsets, followed by zeros
	__u8 reply[REPLY]; // before the query, so that the verifier lets a program read a record at any offset
	__u64 query[QUERY / 8]; // followed by zeros
};

enum { WORDS = sizeof(struct reply) / sizeof(__u64) };

// What the worker sets, and learns, of samples.
struct sampling {
	__u64 share; // a random 32-bit number below it makes a repeated reply a sample; 0 without a reader of samples
	__u64 lost;  // samples for which there was no room
};

// An array of replies, after them one of generations, and the sampling, which the worker maps as one file.
union element {
	struct reply reply;
	__u64 cells[WORDS];
	struct sampling sampling;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SAMPLING + 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, union element);
} seamark_replies SEC(".maps");

// A sample of the repeated replies, for the worker.
struct sample {
	__u64 time, share;
	__u32 alias[4];
	__u16 query_size, packet_size;
	__u32 unused;
	__u64 query[QUERY / 8]; // as in the reply
	__u8 packet[PACKET + 6 & ~7]; // IP, with the reply, as it is sent
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SAMPLES);
} seamark_samples SEC(".maps");

// repeatable reports whether replies of a family may be repeated to a pod: one of the server's
// own has reached it lately, so no policy of the network forbids them. A
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
	KEEP(word); // or clang removes the comparison, and the verifier knows no bound
	union element *e = bpf_map_lookup_elem(&seamark_replies, &index);
	if (!e || word >= WORDS)
		return 0;
	KEEP(word); // the one that was compared: see bounded
	return *(volatile __u64 *)&e->cells[word];
}

// current reports whether nothing that a reply depends on has changed since the reply was made.
INLINE bool current(const struct reply *r)
{
	return generation(r->cells[0]) + generation(r->cells[1]) + generation(r->cells[2]) == r->generations;
}

// bounded reports whether a size that is passed to the kernel is from 1 to most, so that the verifier knows it. Linux 6.1
// knows no bounds of a copy on the stack that was made before the comparison, and Linux 7.2 forgets the lower one at a
// second comparison: there is one, of the size less one, and the size is made from its result.
INLINE bool bounded(__u32 *size, __u32 most)
{
	__u32 last = *size - 1;
	KEEP(last);
	if (last >= most)
		return false;
	KEEP(last);
	*size = last + 1;
	return true;
}

INLINE bool equal(const __u64 *a, const __u64 *b)
{
	__u64 difference = 0;
	for (int n = 0; n < QUERY / 8; n++)
		difference |= a[n] ^ b[n];
	return !difference;
}

// count adds to the number of packets that got the reply, and returns the number before. Reads after it
// follow those before it, also on processors that reorder them: operations that return a value are the
// full barriers of BPF.
INLINE __u64 count(struct reply *r, __u64 packets)
{
	__u64 before = __sync_fetch_and_add(&r->repeated, packets);
	KEEP(before); // or clang uses the operation that returns none
	return before;
}

// find_reply returns the reply to a query, and the time until which it is repeated; NULL if
// there is none.
INLINE struct reply *find_reply(const __u64 *query, __u32 size, const __u32 *alias, __u64 now, __u64 *until, __u64 *turn)
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
		if ((__s64)(*until - now) <= 0 || *(volatile __u32 *)&r->hash != (__u32)(hash >> 32))
			continue;
		*turn = count(r, 0);
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

// halves returns the sum of the halves of a word, in which it is added to a checksum at an even or
// odd offset.
INLINE __u32 halves(__u32 word, bool odd)
{
	if (odd)
		word = (word & 0x00ff00ff) << 8 | (word >> 8) & 0x00ff00ff;
	return (word >> 16) + (word & 0xffff);
}

// decrease_ttls subtracts the seconds that have passed from the TTLs of a reply, which starts at an
// offset of the packet. It adds the difference of the sums.
INLINE bool decrease_ttls(struct __sk_buff *skb, const struct reply *r, __u32 start, __u64 now, __u64 *difference)
{
	__s64 age = now - r->aged;
	if (!r->aged || age < 1000000000)
		return true;
	__u32 seconds = (__u64)age / 1000000000;

	const __u16 *next = r->ttls;
	for (int n = 0; n < TTLS; n++) {
		__u32 at = *next;
		if (!at || at > REPLY - 4)
			break;
		// Without CAP_PERFMON the verifier lets a pointer grow by an immediate value only, or by one that is
		// the same in each pass.
		asm volatile("%0 += 2" : "+r"(next));
		const __u8 *b = r->reply + at;
		__u32 ttl = (__u32)b[0] << 24 | (__u32)b[1] << 16 | (__u32)b[2] << 8 | b[3];
		__u32 before = BE32(ttl), after = BE32(ttl > seconds ? ttl - seconds : 0);
		if (bpf_skb_store_bytes(skb, start + at, &after, sizeof(after), 0))
			return false;
		*difference += halves(after, at & 1) + halves(~before, at & 1);
	}
	return true;
}

// rotate lets the next one of the addresses be the first, at the turn of a packet. The sum stays: the
// records have an even size.
INLINE bool rotate(struct __sk_buff *skb, const struct reply *r, __u32 start, __u64 turn)
{
	__u32 turns = r->turns, size = r->record, from = r->rotated;
	if (turns < 2 || turns > TURNS || !bounded(&size, RECORD) || from > REPLY)
		return true;
	__u32 source = (__u32)turn % turns;

	for (__u32 n = 0; n < TURNS; n++) {
		if (n >= turns)
			break;
		__u32 at = from + source * size;
		if (at > REPLY)
			return false;
		if (bpf_skb_store_bytes(skb, start + from + n * size, r->reply + at, size, 0))
			return false;
		source = source + 1 < turns ? source + 1 : 0;
	}
	return true;
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

// sample passes a repeated reply to the worker, or not: it costs one comparison while there is no reader.
// The worker polls, so that no sample wakes it.
INLINE void sample(struct __sk_buff *skb, const struct reply *r, __u64 now)
{
	__u32 index = SAMPLING;
	union element *e = bpf_map_lookup_elem(&seamark_replies, &index);
	__u64 share = e ? *(volatile __u64 *)&e->sampling.share : 0;
	if (!share || bpf_get_prandom_u32() >= share)
		return;

	struct sample *s = bpf_ringbuf_reserve(&seamark_samples, sizeof(*s), 0);
	if (!s) {
		__sync_fetch_and_add(&e->sampling.lost, 1);
		return;
	}
	__u32 size = skb->len - sizeof(struct ethernet);
	if (!bounded(&size, PACKET) || bpf_skb_load_bytes(skb, sizeof(struct ethernet), s->packet, size)) {
		bpf_ringbuf_discard(s, BPF_RB_NO_WAKEUP);
		return;
	}

	s->time = now;
	s->share = share;
	s->query_size = r->query_size;
	s->packet_size = size;
	for (int n = 0; n < 4; n++)
		s->alias[n] = r->alias[n];
	for (int n = 0; n < QUERY / 8; n++)
		s->query[n] = r->query[n];
	bpf_ringbuf_submit(s, BPF_RB_NO_WAKEUP);
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
	if (!bounded(&size, QUERY) || bpf_skb_load_bytes(skb, transport, &udp, sizeof(udp)) ||
	    bpf_skb_load_bytes(skb, id + 2, query, size))
		return TCX_NEXT;
	if (BE16(udp.length) != skb->len - transport)
		return TCX_NEXT;

	__u64 until = 0, turn = 0;
	struct reply *r = find_reply(query, size, alias, now, &until, &turn);
	if (!r)
		return TCX_NEXT;
	__u32 reply_size = r->reply_size;
	if (!bounded(&reply_size, REPLY) || bpf_skb_change_tail(skb, id + 2 + reply_size, 0))
		return TCX_NEXT;

	__u16 length = BE16(sizeof(struct udp) + 2 + reply_size);
	__u32 sum = transport + UDP_CHECKSUM;
	__u64 difference = r->difference;
	// The length is also in the pseudo header. The ports and addresses add up to the same.
	if (bpf_skb_store_bytes(skb, id + 2, r->reply, reply_size, 0) ||
	    !rotate(skb, r, id + 2, turn) || !decrease_ttls(skb, r, id + 2, now, &difference) ||
	    bpf_l4_csum_replace(skb, sum, 0, add_sums(difference >> 16, difference & 0xffff), BPF_F_MARK_MANGLED_0) ||
	    bpf_l4_csum_replace(skb, sum, udp.length, length, BPF_F_MARK_MANGLED_0 | sizeof(length)) ||
	    bpf_l4_csum_replace(skb, sum, udp.length, length, BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0 | sizeof(length)) ||
	    !return_to_sender(skb, length, is6))
		return TCX_DROP;

	count(r, 1);
	if (*(volatile __u64 *)&r->until != until) // this processor was interrupted for long
		return TCX_DROP;
	sample(skb, r, now);
	return bpf_redirect(skb->ifindex, 0);
}
