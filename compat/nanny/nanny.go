// Package nanny implements the parts of the command dnsmasq-nanny that are not
// dnsmasq's options: its flags, a ConfigMap that is read once, and the log of
// statistics. Package cmd runs the server; package dnsmasq translates the options.
package nanny

import (
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/seamark/seamark/compat/dnsmasq"
	"github.com/seamark/seamark/compat/flags"
	"github.com/spf13/pflag"
)

// Flags are the flags of dnsmasq-nanny and a few of Seamark.
type Flags struct {
	ConfigDir    string        // directory of the mounted ConfigMap; may be empty
	Restart      bool          // serve changes of the ConfigMap
	SyncInterval time.Duration // poll interval of ConfigDir
	Resolver     string        // IP:PORT, resolves hostnames of stub domains' servers
	LogInterval  time.Duration // of the statistics in the log; 0: never
	Lameduck     time.Duration
}

// AddFlags adds the flags to set.
func (f *Flags) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&f.ConfigDir, "configDir", "/etc/k8s/dns/dnsmasq-nanny",
		"`DIR` with the mounted ConfigMap kube-dns to follow; may be empty")
	set.BoolVar(&f.Restart, "restartDnsmasq", false,
		"serve changes of the ConfigMap, without a restart; if false, only log them")
	set.DurationVar(&f.SyncInterval, "syncInterval", 10*time.Second,
		"poll -configDir at this interval, for file systems without change notification")
	set.StringVar(&f.Resolver, "kubednsServer", "127.0.0.1:10053",
		"`IP:PORT` that resolves hostnames of stub domains' servers in the cluster")
	set.DurationVar(&f.LogInterval, "logInterval", 0,
		"log the statistics of cache and upstreams at this interval; 0 disables it")
	set.String("dnsmasqExec", "/usr/sbin/dnsmasq", "ignored: no dnsmasq is started")
	set.DurationVar(&f.Lameduck, "lameduck", 5*time.Second, "keep answering for this time after SIGTERM")
}

// Check returns all mistakes in the flags. It adds port 53 to a Resolver without a
// port.
func (f *Flags) Check() error {
	var errs flags.Errors
	if addr, err := netip.ParseAddr(f.Resolver); err == nil {
		f.Resolver = netip.AddrPortFrom(addr, 53).String()
	}
	_, err := netip.ParseAddrPort(f.Resolver)
	errs.If(err != nil, "-kubednsServer: want IP:PORT, got %q", f.Resolver)
	errs.Add(flags.CheckRange("-syncInterval", f.SyncInterval, 10*time.Millisecond, 24*time.Hour))
	errs.If(f.LogInterval < 0, "-logInterval: want 0s or more, got %s", f.LogInterval)
	errs.Add(flags.CheckRange("--lameduck", f.Lameduck, 0, time.Hour))

	relative := f.ConfigDir != "" && !strings.HasPrefix(f.ConfigDir, "/") && !strings.HasPrefix(f.ConfigDir, ".")
	errs.If(relative || strings.ContainsAny(f.ConfigDir, "\"\\{}\n"),
		"-configDir: want a directory that starts with / or ., got %q", f.ConfigDir)
	return errs.Join()
}

// Environment returns the environment of dnsmasq's options, as the flags describe it.
func (f *Flags) Environment() dnsmasq.Environment {
	return dnsmasq.Environment{
		ConfigMap: f.ConfigDir, Period: f.SyncInterval, Resolver: f.Resolver, Lameduck: f.Lameduck,
	}
}

// Interfaces returns the names of the host's network interfaces with addresses.
func Interfaces() (names []string) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil // the server looks up each name it needs and reports errors
	}
	for _, i := range interfaces {
		if addrs, err := i.Addrs(); err == nil && len(addrs) > 0 {
			names = append(names, i.Name)
		}
	}
	return names
}
