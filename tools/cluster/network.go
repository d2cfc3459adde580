//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// The addresses of a cluster. The control plane and the nodes are at a bridge, and each node
// has a network of pods behind it. 8.8.8.8 and 192.0.2.1 stand for the Internet.
const (
	controlAddress = "172.30.0.1"
	apiServer      = controlAddress + ":6443"
	dnsService     = "10.96.0.10"
	podNetwork     = "10.244.0.0/16" // of IPv4
	internet       = "8.8.8.8"
	website        = "192.0.2.1" // of the names in internet.corefile
)

// networks returns a network of IPv4, and with dual stack the one of IPv6.
func (c *cluster) networks(ipv4, ipv6 string) []string {
	if c.Options.DualStack {
		return []string{ipv4, ipv6}
	}
	return []string{ipv4}
}

func (c *cluster) serviceNetworks() string {
	return strings.Join(c.networks("10.96.0.0/16", "fd00:96::/112"), ",")
}

func (c *cluster) podNetworks() string {
	return strings.Join(c.networks(podNetwork, "fd00:244::/48"), ",")
}

func (c *cluster) podsOfNode(n int) []string {
	return c.networks(fmt.Sprintf("10.244.%d.0/24", n), fmt.Sprintf("fd00:244:0:%d::/64", n))
}

func (c *cluster) nodeAddresses(n int) []string {
	return c.networks(fmt.Sprintf("172.30.0.%d", 10+n), fmt.Sprintf("fd00:30::%d", 10+n))
}

func nodeName(n int) string   { return "node" + strconv.Itoa(n) }
func vethOfNode(n int) string { return "to-" + nodeName(n) }

// makeNetwork makes the bridge of the nodes.
func (c *cluster) makeNetwork(ctx context.Context) error {
	if err := c.forward(nil); err != nil {
		return err
	}
	commands := []string{
		"link set lo up",
		"address add " + internet + "/32 dev lo",
		"address add " + website + "/32 dev lo",
		"link add nodes type bridge",
		"link set nodes up",
		"address add " + controlAddress + "/24 dev nodes",
		// Without a default route programs do not find their own address. It leads nowhere.
		"route add default via 172.30.0.254",
	}
	if c.Options.DualStack {
		commands = append(commands, "address add fd00:30::1/64 dev nodes nodad", "route add default via fd00:30::ffff")
	}
	return ip(ctx, commands...)
}

// connectNode gives the network namespace of a process an interface at the bridge.
func (c *cluster) connectNode(ctx context.Context, n, pid int) error {
	return ip(ctx, append([]string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", vethOfNode(n), pid),
		fmt.Sprintf("link set %s master nodes up", vethOfNode(n)),
	}, c.podRoutes(n)...)...)
}

// podRoutes returns the commands for the routes to the pods of node n.
func (c *cluster) podRoutes(n int) (commands []string) {
	for i, network := range c.podsOfNode(n) {
		commands = append(commands, "route add "+network+" via "+c.nodeAddresses(n)[i])
	}
	return commands
}

// makeNodeNetwork configures the network namespace of node n.
func (c *cluster) makeNodeNetwork(ctx context.Context, n int) error {
	// Pods of a node reach each other through Services only if rules see bridged packets.
	if err := c.forward(map[string]string{
		"net/bridge/bridge-nf-call-iptables":  "1",
		"net/bridge/bridge-nf-call-ip6tables": "1",
	}); err != nil {
		return err
	}

	commands := []string{"link set lo up", "link set eth0 up"}
	for i, gateway := range c.networks(controlAddress, "fd00:30::1") {
		mask := []string{"/24", "/64 nodad"}[i]
		address, flags, _ := strings.Cut(c.nodeAddresses(n)[i]+mask, " ")
		commands = append(commands, "address add "+address+" dev eth0 "+flags, "route add default via "+gateway)
	}
	for other := 1; other <= c.Options.Nodes; other++ {
		if other != n {
			commands = append(commands, c.podRoutes(other)...)
		}
	}
	return ip(ctx, commands...)
}

// forward lets the network namespace forward packets, and sets further sysctls of it.
func (c *cluster) forward(sysctls map[string]string) error {
	all := map[string]string{"net/ipv4/ip_forward": "1"}
	if c.Options.DualStack {
		all["net/ipv6/conf/all/forwarding"] = "1"
	}
	maps.Copy(all, sysctls)
	for name, value := range all {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// startInternet serves the names of the stand-in for the Internet, to which pods' other names
// are forwarded.
func (c *cluster) startInternet(context.Context) error {
	corefile := c.file("internet.corefile")
	err := writeTemplate("internet.corefile", corefile, map[string]string{"Address": internet, "Website": website})
	if err != nil {
		return err
	}
	c.start("internet", c.file("bin", "seamark"), "-conf", corefile)

	l, err := net.Listen("tcp", net.JoinHostPort(website, "80"))
	if err == nil {
		go http.Serve(l, http.NotFoundHandler())
	}
	return err
}

// ip runs the program ip for each command.
func ip(ctx context.Context, commands ...string) error {
	for _, command := range commands {
		if _, err := output(exec.CommandContext(ctx, "ip", strings.Fields(command)...)); err != nil {
			return err
		}
	}
	return nil
}
