//go:build ignore

// The capture of DNS queries of pods, at the host's side of their interfaces.
//
// seamark_query sees the packets of a pod. It replaces the destination of DNS queries, an
// address of the cluster's DNS service, by the alias that the server listens at.
// seamark_reply sees the packets to a pod and does the reverse with their source. Both
// keep no state of connections, and pass on every packet: what they do not change is
// delivered as it would be without them. There is one exception: if the server has answered
// the same query lately, and would give the same answer now, seamark_query turns the packet into the reply
// (repeat.h).

#include "kernel.h"
#include "state.h"
#include "repeat.h"

enum { PAIRS = 4 }; // addresses of each family

// Set when the program is loaded. Unused pairs are zero.
struct pair4 { __u32 cluster, alias; };
struct pair6 { __u32 cluster[4], alias[4]; };
const volatile struct pair4 pairs4[PAIRS];
const volatile struct pair6 pairs6[PAIRS];
const volatile __u16 dns_port; // in network order

// alive reports whether the worker has stamped recently.
INLINE bool alive(struct shared *s, __u64 now)
{
	// Signed: the stamp of another processor may be later.
	return (__s64)(now - *(volatile __u64 *)&s->stamp) < stale;
}

// admit reports whether a new query of a family may be captured at an interface.
INLINE bool admit(struct shared *s, struct family *f, __u64 now)
{
	__u32 zero = 0;
	volatile __u64 *open = bpf_map_lookup_elem(&seamark_gate, &zero);
	if (!open || !*open)
		return false;

	if (*(volatile __u32 *)&f->paused)
		return *(volatile __u32 *)&f->probe && __sync_lock_test_and_set(&f->probe, 0);

	__u64 pending = *(volatile __u64 *)&f->pending;
	__s64 waiting = now - pending;
	if (pending && waiting > silence && waiting < forget) {
		__sync_fetch_and_add(&s->silent, 1);
		return false;
	}

	if (!pending || waiting >= forget)
		f->pending = now;
	return true;
}

// served reports whether a socket of the server receives a packet, and whether the packet
// is the first of a query or a connection. A connection that the server has accepted stays
// with it whatever is decided about new ones; a packet of any other connection belongs to
// another server. (The listener also gets the packets of connections that it knows only by
// a cookie, during a flood of connections. They are not captured.)
INLINE bool served(struct __sk_buff *skb, struct bpf_sock_tuple *to, __u32 size, struct tcp *tcp,
	bool is_tcp, bool *new)
{
	bool ok = true;
	struct bpf_sock *sk;
	*new = !is_tcp || (tcp->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	if (is_tcp)
		sk = bpf_skc_lookup_tcp(skb, to, size, BPF_CURRENT_NETNS, 0);
	else
		sk = bpf_sk_lookup_udp(skb, to, size, BPF_CURRENT_NETNS, 0);
	if (!sk)
		return false;
	if (!*new && sk->state == BPF_TCP_LISTEN)
		ok = false;
	bpf_sk_release(sk);
	return ok;
}

// addressed returns the state of a packet's interface if the packet is for the node and the
// worker is alive, and NULL otherwise. A frame to another machine does not enter the node.
INLINE struct interface *addressed(struct __sk_buff *skb, struct ethernet *eth, __u64 now)
{
	__u32 zero = 0;
	struct shared *s = bpf_map_lookup_elem(&seamark_shared, &zero);
	struct interface *i = find_interface(skb->ifindex);
	if (!s || !i || eth->destination != i->mac || eth->destination_end != i->mac_end || !alive(s, now))
		return NULL;
	return i;
}

// captured decides about a packet to an address of the cluster's DNS service.
INLINE bool captured(struct __sk_buff *skb, struct interface *i, bool is6, __u64 now, struct bpf_sock_tuple *to,
	struct tcp *tcp, bool is_tcp)
{
	__u32 zero = 0;
	__u32 size = is6 ? sizeof(to->ipv6) : sizeof(to->ipv4);
	bool new;
	struct shared *s = bpf_map_lookup_elem(&seamark_shared, &zero);
	if (!s || !served(skb, to, size, tcp, is_tcp, &new) || new && !admit(s, &i->families[is6], now))
		return false;

	__sync_fetch_and_add(&i->queries, 1);
	__sync_fetch_and_add(&s->queries, 1);
	return true;
}

// count_reply notes that a reply of the server reaches a pod. One over TCP says nothing of the pod's right to
// answers over UDP: a policy may permit TCP alone.
INLINE void count_reply(struct __sk_buff *skb, bool is6, bool is_tcp)
{
	__u32 zero = 0;
	struct shared *s = bpf_map_lookup_elem(&seamark_shared, &zero);
	struct interface *i = find_interface(skb->ifindex);
	if (s)
		__sync_fetch_and_add(&s->replies, 1);
	if (i) {
		struct family *f = &i->families[is6];
		if (!is_tcp)
			*(volatile __u64 *)&f->replied = bpf_ktime_get_ns();
		if (*(volatile __u64 *)&f->pending)
			f->pending = 0;
		if (*(volatile __u32 *)&f->paused)
			f->paused = 0;
	}
}

INLINE __u32 checksum_offset(bool is_tcp)
{
	return is_tcp ? __builtin_offsetof(struct tcp, checksum) : UDP_CHECKSUM;
}

// rewrite4 replaces an address. Once the first call has made the headers writable, the
// others cannot fail. transport is 0 in fragments without the transport header.
INLINE bool rewrite4(struct __sk_buff *skb, __u32 field, __u32 from, __u32 to, __u32 transport, bool is_tcp)
{
	__u32 flags = BPF_F_PSEUDO_HDR | (is_tcp ? 0 : BPF_F_MARK_MANGLED_0) | sizeof(to);
	if (transport && bpf_l4_csum_replace(skb, transport + checksum_offset(is_tcp), from, to, flags))
		return false;
	if (bpf_l3_csum_replace(skb, sizeof(struct ethernet) + __builtin_offsetof(struct ip4, checksum), from, to,
			sizeof(to)))
		return false;
	return !bpf_skb_store_bytes(skb, sizeof(struct ethernet) + field, &to, sizeof(to), 0);
}

// rewrite6 is the same for IPv6, whose header has no checksum. So if the network card has
// summed up the whole packet, the sum changes with the address, unless it does with the
// transport header's checksum.
INLINE bool rewrite6(struct __sk_buff *skb, __u32 field, __u32 *from, __u32 *to, __u32 transport, bool is_tcp)
{
	__u32 flags = BPF_F_PSEUDO_HDR | (is_tcp ? 0 : BPF_F_MARK_MANGLED_0);
	__s64 difference = bpf_csum_diff(from, 16, to, 16, 0);
	if (transport && bpf_l4_csum_replace(skb, transport + checksum_offset(is_tcp), 0, difference, flags))
		return false;
	return !bpf_skb_store_bytes(skb, sizeof(struct ethernet) + field, to, 16, BPF_F_RECOMPUTE_CSUM);
}

// readable makes the first bytes of a packet directly accessible, if it is that long.
INLINE bool readable(struct __sk_buff *skb, __u32 size)
{
	if ((void *)(long)skb->data + size <= (void *)(long)skb->data_end)
		return true;
	return skb->len >= size && !bpf_skb_pull_data(skb, size);
}

// Sizes up to the end of a TCP header. A UDP query, with a DNS header, is not shorter.
enum {
	SIZE4 = sizeof(struct ethernet) + sizeof(struct ip4) + sizeof(struct tcp),
	SIZE6 = sizeof(struct ethernet) + sizeof(struct ip6) + sizeof(struct tcp),
};

INLINE int query4(struct __sk_buff *skb)
{
	if (!readable(skb, SIZE4))
		return TCX_NEXT;
	struct ethernet *eth = (void *)(long)skb->data;
	if ((void *)eth + SIZE4 > (void *)(long)skb->data_end)
		return TCX_NEXT;

	struct ip4 ip = *(struct ip4 *)(eth + 1);
	struct tcp tcp = *(struct tcp *)((void *)(eth + 1) + sizeof(ip));
	bool is_tcp = ip.protocol == PROTOCOL_TCP;
	// Fragments and options: queries have neither.
	if (ip.version_length != 0x45 || ip.fragment & BE16(IP_FRAGMENT) || !is_tcp && ip.protocol != PROTOCOL_UDP ||
	    tcp.destination != dns_port)
		return TCX_NEXT;

	for (int n = 0; n < PAIRS; n++) {
		__u32 alias = pairs4[n].alias, cluster = pairs4[n].cluster;
		if (!alias || ip.destination != cluster)
			continue;
		__u64 now = bpf_ktime_get_ns();
		struct interface *i = addressed(skb, eth, now);
		if (!i)
			break;

		// Without the server, if the whole packet is one UDP query that it has just answered.
		__u32 alias6[4] = {alias};
		if (!is_tcp && repeatable(&i->families[0], now) && BE16(ip.length) + sizeof(*eth) == skb->len) {
			int verdict = repeat(skb, alias6, now, false);
			if (verdict != TCX_NEXT)
				return verdict;
		}

		struct bpf_sock_tuple to = {.ipv4 = {ip.source, alias, tcp.source, tcp.destination}};
		if (captured(skb, i, false, now, &to, &tcp, is_tcp))
			rewrite4(skb, __builtin_offsetof(struct ip4, destination), cluster, alias, sizeof(*eth) + sizeof(ip),
				is_tcp);
		break;
	}
	return TCX_NEXT;
}

// read_pair6 copies a pair word by word: copied as a whole it counts as the constant zero.
INLINE void read_pair6(struct pair6 *to, const volatile struct pair6 *from)
{
	for (int n = 0; n < 4; n++) {
		to->cluster[n] = from->cluster[n];
		to->alias[n] = from->alias[n];
	}
}

INLINE int query6(struct __sk_buff *skb)
{
	if (!readable(skb, SIZE6))
		return TCX_NEXT;
	struct ethernet *eth = (void *)(long)skb->data;
	if ((void *)eth + SIZE6 > (void *)(long)skb->data_end)
		return TCX_NEXT;

	struct ip6 ip = *(struct ip6 *)(eth + 1);
	struct tcp tcp = *(struct tcp *)((void *)(eth + 1) + sizeof(ip));
	bool is_tcp = ip.protocol == PROTOCOL_TCP;
	if (!is_tcp && ip.protocol != PROTOCOL_UDP || tcp.destination != dns_port)
		return TCX_NEXT;

	for (int n = 0; n < PAIRS; n++) {
		struct pair6 pair;
		read_pair6(&pair, &pairs6[n]);
		if (!pair.alias[0] || !equal6(ip.destination, pair.cluster))
			continue;
		__u64 now = bpf_ktime_get_ns();
		struct interface *i = addressed(skb, eth, now);
		if (!i)
			break;

		if (!is_tcp && repeatable(&i->families[1], now) && BE16(ip.length) + sizeof(*eth) + sizeof(ip) == skb->len) {
			int verdict = repeat(skb, pair.alias, now, true);
			if (verdict != TCX_NEXT)
				return verdict;
		}

		struct bpf_sock_tuple to = {};
		__builtin_memcpy(to.ipv6.saddr, ip.source, 16);
		__builtin_memcpy(to.ipv6.daddr, pair.alias, 16);
		to.ipv6.sport = tcp.source;
		to.ipv6.dport = tcp.destination;
		if (captured(skb, i, true, now, &to, &tcp, is_tcp))
			rewrite6(skb, __builtin_offsetof(struct ip6, destination), pair.cluster, pair.alias,
				sizeof(*eth) + sizeof(ip), is_tcp);
		break;
	}
	return TCX_NEXT;
}

SEC("tc")
int seamark_query(struct __sk_buff *skb)
{
	if (skb->vlan_present)
		return TCX_NEXT;
	if (skb->protocol == BE16(ETH_P_IP))
		return query4(skb);
	if (skb->protocol == BE16(ETH_P_IPV6))
		return query6(skb);
	return TCX_NEXT;
}

INLINE int reply4(struct __sk_buff *skb)
{
	__u32 size = sizeof(struct ethernet) + sizeof(struct ip4);
	if (!readable(skb, size))
		return TCX_NEXT;
	struct ethernet *eth = (void *)(long)skb->data;
	if ((void *)eth + size > (void *)(long)skb->data_end)
		return TCX_NEXT;

	struct ip4 *ip = (void *)(eth + 1);
	bool is_tcp = ip->protocol == PROTOCOL_TCP;
	if (!is_tcp && ip->protocol != PROTOCOL_UDP)
		return TCX_NEXT;

	for (int n = 0; n < PAIRS; n++) {
		__u32 alias = pairs4[n].alias, cluster = pairs4[n].cluster;
		if (!alias || ip->source != alias)
			continue;

		// Only the first fragment has the transport header. All of them have the address.
		__u32 transport = 0;
		if (!(ip->fragment & BE16(IP_OFFSET)))
			transport = sizeof(*eth) + (ip->version_length & 15) * 4;

		if (rewrite4(skb, __builtin_offsetof(struct ip4, source), alias, cluster, transport, is_tcp))
			count_reply(skb, false, is_tcp);
		break;
	}
	return TCX_NEXT;
}

INLINE int reply6(struct __sk_buff *skb)
{
	__u32 size = sizeof(struct ethernet) + sizeof(struct ip6);
	if (!readable(skb, size))
		return TCX_NEXT;
	struct ethernet *eth = (void *)(long)skb->data;
	if ((void *)eth + size > (void *)(long)skb->data_end)
		return TCX_NEXT;

	struct ip6 ip = *(struct ip6 *)(eth + 1);
	for (int n = 0; n < PAIRS; n++) {
		struct pair6 pair;
		read_pair6(&pair, &pairs6[n]);
		if (!pair.alias[0] || !equal6(ip.source, pair.alias))
			continue;

		__u32 transport = size;
		if (ip.protocol == PROTOCOL_FRAGMENT) {
			struct fragment6 fragment;
			if (bpf_skb_load_bytes(skb, size, &fragment, sizeof(fragment)))
				break;
			ip.protocol = fragment.protocol;
			transport = fragment.offset & BE16(IP6_OFFSET) ? 0 : size + sizeof(fragment);
		}

		bool is_tcp = ip.protocol == PROTOCOL_TCP;
		if ((is_tcp || ip.protocol == PROTOCOL_UDP) &&
		    rewrite6(skb, __builtin_offsetof(struct ip6, source), pair.alias, pair.cluster, transport, is_tcp))
			count_reply(skb, true, is_tcp);
		break;
	}
	return TCX_NEXT;
}

SEC("tc")
int seamark_reply(struct __sk_buff *skb)
{
	if (skb->vlan_present)
		return TCX_NEXT;
	if (skb->protocol == BE16(ETH_P_IP))
		return reply4(skb);
	if (skb->protocol == BE16(ETH_P_IPV6))
		return reply6(skb);
	return TCX_NEXT;
}

char seamark_license[] SEC("license") = "Apache-2.0";
