//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// repeatedReplies is the metric that counts the answers of the kernel.
const repeatedReplies = "seamark_node_repeated_replies_total"

// nodeChange measures the age of answers that the kernel repeats: the time from a change's acknowledgement to the
// second answer with it that a pod gets, at 100 changes a second. The first one is of the server, the second one of
// the kernel, or of the server as well where replies are not repeated. Both nodes run at the same time, and one at
// a time is queried.
func (b *bench) nodeChange(ctx context.Context) error {
	defer b.stopServers()
	if why := nodeImpossible(); why != nil {
		b.miss("node change: %v", why)
		return nil
	}

	api, err := loopbackServer(b.api.kubeconfig)
	if err != nil {
		b.miss("node change: %v", err)
		return nil
	}
	corefile := b.file("Corefile-node-change")
	values := nodeValues()
	values["source"] = b.source()
	if err := b.expand(corefile, "node.Corefile", nil, values); err != nil {
		return err
	}
	answers, err := b.tableFile(table{})
	if err != nil {
		return err
	}

	nodes := []changedNode{
		{nodeServer: nodeServer{label: "tcx", target: nodeCluster, argv: b.nodeCommand(corefile, "tcx"), api: api}},
		{plain: true, nodeServer: nodeServer{label: "tcx, not repeated", target: nodeCluster,
			argv: b.nodeCommand(corefile, "tcx", "-repeat-replies=false"), api: api}},
	}
	for i := range nodes {
		n := &nodes[i]
		n.server, n.network, err = b.startNode(ctx, n.nodeServer, answers, b.pop.last())
		if n.network != nil {
			defer n.network.close()
		}
		if err != nil {
			return fmt.Errorf("node change, %s: %w", n.label, err)
		}
	}
	return b.changeNodes(ctx, nodes)
}

// A changedNode is a node that is asked for changes.
type changedNode struct {
	nodeServer
	plain   bool // the kernel repeats no replies
	server  *server
	network *network

	medians, tails, shares, queries []float64 // of each round
}

// changeNodes measures the nodes in turn.
func (b *bench) changeNodes(ctx context.Context, nodes []changedNode) error {
	c, err := b.newChanger(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	c.repeats = 1

	const warm, rate = 50, 100
	for i := range nodes {
		if err := c.delays(ctx, nodes[i].server, warm, rate, new(delays)); err != nil {
			return err
		}
	}

	for _, turn := range turns(len(nodes), b.rounds) {
		for _, i := range turn {
			n := &nodes[i]
			before, err := n.repeated()
			if err != nil {
				return err
			}

			var d delays
			if err := c.delays(ctx, n.server, int(rate*b.time.Seconds()*3), rate, &d); err != nil {
				return fmt.Errorf("%s: %w", n.label, err)
			}

			after, err := n.repeated()
			if err != nil {
				return err
			}
			share := (after - before) / float64(d.queries)
			if !n.plain && share < 0.5 {
				return fmt.Errorf("%s: the kernel has answered %.0f %% of the queries, want most", n.label, 100*share)
			}
			n.medians = append(n.medians, quantile(d.answered, 0.5))
			n.tails = append(n.tails, quantile(d.answered, 0.99))
			n.shares = append(n.shares, share)
			n.queries = append(n.queries, float64(d.queries)/float64(len(d.answered)))
		}
	}

	for _, n := range nodes {
		b.number("node change median/"+n.label, "acknowledged to answered twice to a pod, median, "+n.label, "ms", n.medians...)
		b.number("node change/"+n.label, "the same, p99, "+n.label, "ms", n.tails...)
		b.number("node change queries/"+n.label, "queries for a change, "+n.label, "", n.queries...)
		b.number("node change share/"+n.label, "share of them that the kernel answered, "+n.label, "", n.shares...)
	}
	return nil
}

// repeated returns the number of answers that the kernel of a node has given. A server that repeats none has no metric
// of them.
func (n *changedNode) repeated() (float64, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (conn net.Conn, err error) {
			err = within(n.network.node, func() error {
				conn, err = net.Dial(network, address)
				return err
			})
			return conn, err
		}}}
	reply, err := client.Get("http://127.0.0.1:9253/metrics")
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, repeatedReplies+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, nil
}

// loopbackServer returns the address of a kubeconfig's server, which has to be on the loopback interface.
func loopbackServer(kubeconfig string) (string, error) {
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		server, ok := strings.CutPrefix(strings.TrimSpace(line), "server:")
		if !ok {
			continue
		}
		at, err := url.Parse(strings.Trim(server, ` "'`))
		if err != nil {
			return "", err
		}
		if ip := net.ParseIP(at.Hostname()); ip == nil || !ip.IsLoopback() || at.Port() == "" {
			return "", fmt.Errorf("the API server %s is not at a port of 127.0.0.1, which a node of this machine would reach", at)
		}
		return at.Host, nil
	}
	return "", fmt.Errorf("%s names no server", kubeconfig)
}
