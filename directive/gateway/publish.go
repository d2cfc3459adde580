package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/wire"
)

// A publisher makes the published hosts of a state. It depends on the state alone, and not on the order in
// which the objects have arrived.
type publisher struct {
	*settings
	state
	frontends *frontends
	parents   map[parent]*attachable
	selectors map[string]func(*cluster.Labels) bool
	usage     map[string]map[host]bool // the hosts of a namespace
	published published

	// ignored is told why a unit does not publish a host; it may be nil.
	ignored func(id objects.ID, h host, why string)
}

// Published is what the objects publish.
type published struct {
	hosts  map[host]*slot
	faults map[objects.ID]string
}

// A slot has the units that own a host. All is for any depth below a wildcard; label for one label, where
// the wildcard of an Ingress may be older. An exact host has label alone.
type slot struct{ label, all won }

// A won host has the unit that owns it; without an owner unit is nil.
type won struct {
	unit *unit
	to   *target
}

// A parent identifies an attachable.
type parent struct {
	cluster.Key
	set bool
}

// An attachable is a Gateway or a ListenerSet to which Routes may be attached.
type attachable struct {
	listeners []listener
	to        *target
}

type listener struct {
	*cluster.Listener
	host
}

// publish returns the hosts of a state.
func (s *settings) publish(all state, ignored func(id objects.ID, h host, why string)) published {
	p := &publisher{
		settings: s, state: all, frontends: newFrontends(all), parents: map[parent]*attachable{},
		selectors: map[string]func(*cluster.Labels) bool{}, usage: map[string]map[host]bool{}, ignored: ignored,
		published: published{map[host]*slot{}, map[objects.ID]string{}},
	}
	for _, u := range p.units() {
		p.add(u)
	}
	return p.published
}

// fault records the first thing that is wrong with a unit.
func (p *publisher) fault(id objects.ID, h host, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.published.faults[id] == "" {
		p.published.faults[id] = text
	}
	p.ignore(id, h, text)
}

func (p *publisher) ignore(id objects.ID, h host, why string) {
	if p.ignored != nil {
		p.ignored(id, h, why)
	}
}

// ignoreListeners tells why the hosts of listeners are not published.
func (p *publisher) ignoreListeners(kind cluster.Kind, key cluster.Key, listeners []cluster.Listener, why string) {
	if p.ignored == nil {
		return
	}
	for _, l := range listeners {
		if h, err := parseHost(l.Host); err == nil {
			p.ignore(objects.ID{Kind: kind, Key: key}, h, why)
		}
	}
}

// units returns the objects that name hosts, the oldest first.
func (p *publisher) units() (units []*unit) {
	for g := range each[*cluster.Gateway](p.state, cluster.Gateways) {
		if u := p.gateway(g); u != nil && p.names.Has(cluster.Gateways) {
			units = append(units, u)
		}
	}
	for set := range each[*cluster.ListenerSet](p.state, cluster.ListenerSets) {
		if u := p.listenerSet(set); u != nil && p.names.Has(cluster.ListenerSets) {
			units = append(units, u)
		}
	}
	for _, kind := range []cluster.Kind{cluster.HTTPRoutes, cluster.GRPCRoutes, cluster.TLSRoutes} {
		for r := range each[*cluster.Route](p.state, kind) {
			units = append(units, p.route(r))
		}
	}
	for in := range each[*cluster.Ingress](p.state, cluster.Ingresses) {
		units = append(units, p.ingress(in))
	}
	slices.SortFunc(units, older)
	return units
}

// gateway returns the hosts of a Gateway's listeners, nil for a Gateway that serves none.
func (p *publisher) gateway(g *cluster.Gateway) *unit {
	if why := p.refuses(g); why != "" {
		p.ignoreListeners(cluster.Gateways, g.Key(), g.Listeners, why)
		return nil
	}
	u := &unit{ID: objects.ID{Kind: cluster.Gateways, Key: g.Key()}, created: g.Created}
	p.listen(u, g, g.Listeners)
	return u
}

// refuses returns why a Gateway serves no hosts, "" if it serves them: a controller has accepted it, and its class is
// one of the directive.
func (p *publisher) refuses(g *cluster.Gateway) string {
	switch {
	case len(p.gatewayClasses) > 0 && !slices.Contains(p.gatewayClasses, g.Class):
		return "the class of the Gateway is not in gatewayClasses"
	case !g.Accepted:
		return "no controller has accepted the Gateway"
	}
	return ""
}

// listenerSet returns the hosts of the listeners of a ListenerSet, nil for one that its Gateway does not have. The
// status of the ListenerSet is no proof: a Gateway allows namespaces itself.
func (p *publisher) listenerSet(set *cluster.ListenerSet) *unit {
	g := get[*cluster.Gateway](p.state, cluster.Gateways, set.Gateway)
	if why := p.refusesSet(g, set); why != "" {
		p.ignoreListeners(cluster.ListenerSets, set.Key(), set.Listeners, why)
		return nil
	}
	u := &unit{ID: objects.ID{Kind: cluster.ListenerSets, Key: set.Key()}, created: set.Created}
	p.listen(u, g, set.Listeners)
	return u
}

// refusesSet returns why the Gateway of a ListenerSet, nil if there is none, does not have it, "" if it has it.
func (p *publisher) refusesSet(g *cluster.Gateway, set *cluster.ListenerSet) string {
	switch {
	case g == nil:
		return fmt.Sprintf("the Gateway %s does not exist", set.Gateway)
	case p.refuses(g) != "":
		return p.refuses(g)
	case !set.Accepted:
		return "no controller has accepted the ListenerSet"
	case !p.allows(g.Sets, set.Gateway.Namespace, set.Namespace):
		return fmt.Sprintf("the Gateway %s does not allow ListenerSets of the namespace (allowedListeners)", set.Gateway)
	}
	return ""
}

// listen adds the hosts of listeners to the unit that has them. Their traffic goes where that of the Gateway goes.
func (p *publisher) listen(u *unit, g *cluster.Gateway, listeners []cluster.Listener) {
	at := &attachable{to: p.target(g.Class, g.Key(), g.Addresses, append(portsOf(g.Listeners), portsOf(listeners)...))}
	p.parents[parent{u.Key, u.Kind == cluster.ListenerSets}] = at
	for i := range listeners {
		l := &listeners[i]
		h := anyHost
		if l.Host != "" {
			var err error
			if h, err = parseHost(l.Host); err != nil {
				p.fault(u.ID, h, "listeners: %s: hostname %q: %v", l.Name, l.Host, err)
				continue
			}
			u.claims = append(u.claims, claim{h, false, at.to})
		}
		at.listeners = append(at.listeners, listener{l, h})
	}
}

func portsOf(listeners []cluster.Listener) (ports []int32) {
	for _, l := range listeners {
		ports = append(ports, l.Port)
	}
	return ports
}

// route returns the hosts of a Route at the listeners to which it is attached.
func (p *publisher) route(r *cluster.Route) *unit {
	u := &unit{ID: objects.ID{Kind: r.Kind, Key: r.Key()}, created: r.Created}
	hosts := make([]host, 0, len(r.Hosts))
	for _, text := range r.Hosts {
		if h, err := parseHost(text); err == nil {
			hosts = append(hosts, h)
		} else {
			p.fault(u.ID, h, "hostnames: %q: %v", text, err)
		}
	}
	if len(r.Hosts) == 0 {
		hosts = append(hosts, anyHost)
	}

	for _, ref := range r.Parents {
		at := p.parents[parent{ref.Key, ref.Set}]
		if at == nil {
			continue
		}
		for i := range at.listeners {
			if p.attaches(r, ref, &at.listeners[i]) {
				u.attach(hosts, at.listeners[i].host, at.to)
			}
		}
	}
	p.explainHosts(u, hosts)
	return u
}

// attach adds the hosts of a Route that a listener has, too.
func (u *unit) attach(hosts []host, listener host, to *target) {
	for _, h := range hosts {
		both, ok := intersect(listener, h)
		if c := (claim{both, false, to}); ok && both != anyHost && !slices.Contains(u.claims, c) {
			u.claims = append(u.claims, c)
		}
	}
}

// explainHosts tells of hosts of a Route that it has at no listener.
func (p *publisher) explainHosts(u *unit, hosts []host) {
	if p.ignored == nil {
		return
	}
	for _, h := range hosts {
		if !slices.ContainsFunc(u.claims, func(c claim) bool { _, ok := intersect(c.host, h); return ok }) {
			p.ignore(u.ID, h, "no listener that has accepted it, and allows its namespace, has the host")
		}
	}
}

// attaches reports whether a Route is attached to a listener of one of its parents. The status of the
// Route is no proof: a listener allows kinds and namespaces itself.
func (p *publisher) attaches(r *cluster.Route, parent cluster.Parent, l *listener) bool {
	if parent.Listener != "" && parent.Listener != l.Name || parent.Port != 0 && parent.Port != l.Port || !l.Routes.Has(r.Kind) {
		return false
	}
	return p.allows(l.From, parent.Namespace, r.Namespace)
}

// allows reports whether an object in one namespace may be attached to one in another.
func (p *publisher) allows(from cluster.From, own, namespace string) bool {
	return from.From == "All" || from.From == "Same" && namespace == own ||
		from.From == "Selector" && p.selects(from.Selector, namespace)
}

// selects reports whether a selector matches the labels of a namespace. An invalid selector matches none.
func (p *publisher) selects(text, namespace string) bool {
	selector := p.selectors[text]
	if selector == nil {
		parsed, err := cluster.ParseSelector(text)
		selector = func(l *cluster.Labels) bool { return err == nil && parsed.Matches(l) }
		p.selectors[text] = selector
	}
	n := get[*cluster.Namespace](p.state, cluster.Namespaces, cluster.Key{Name: namespace})
	return n != nil && selector(n.Labels)
}

// ingressPorts are the ports of ingress controllers.
var ingressPorts = []int32{80, 443}

// ingress returns the hosts of an Ingress. One without a load balancer is served by no controller.
func (p *publisher) ingress(in *cluster.Ingress) *unit {
	u := &unit{ID: objects.ID{Kind: cluster.Ingresses, Key: in.Key()}, created: in.Created}
	other := len(p.ingressClasses) > 0 && !slices.Contains(p.ingressClasses, in.Class)
	to := p.target(in.Class, cluster.Key{}, in.Addresses, ingressPorts)
	for _, text := range in.Hosts {
		h, err := parseHost(text)
		switch {
		case other && err == nil:
			p.ignore(u.ID, h, "the class of the Ingress is not in ingressClasses")
		case other:
		case err != nil:
			p.fault(u.ID, h, "rules: host %q: %v", text, err)
		case to.isEmpty():
			p.ignore(u.ID, h, "no controller has written an address into its status")
		default:
			u.claims = append(u.claims, claim{h, h.wild, to})
		}
	}
	return u
}

// target returns where the traffic of a Gateway goes, or that of an Ingress, whose gateway is zero.
func (p *publisher) target(class string, gateway cluster.Key, status []string, ports []int32) *target {
	t := new(target)
	if p.external {
		for _, text := range status {
			t.addStatus(text)
		}
		return t.clean()
	}

	if key, ok := p.serviceOf(class); ok {
		if f := p.frontends.withAddress(key); f != nil {
			t.add(f)
		}
		return t.clean()
	}
	if f := best(p.frontends.byGateway[gateway], ports); f != nil {
		t.add(f)
		return t.clean()
	}

	for _, text := range status {
		if f := p.frontends.ofAddress(text, ports); f != nil {
			t.add(f)
		}
	}
	if t.isEmpty() {
		for _, text := range status {
			t.addStatus(text)
		}
	}
	return t.clean()
}

// add publishes the hosts of u that no older unit has. They must be in zones that are delegated to its
// namespace, which may have a limited number of hosts.
func (p *publisher) add(u *unit) {
	claims := make([]claim, 0, len(u.claims))
	for _, c := range u.claims {
		owner := c.owner()
		if p.rules.ZoneOf([]byte(owner)) == 0 {
			p.ignore(u.ID, c.host, "the host is in no zone of the directive")
			continue
		}
		if p.isServer(owner) {
			p.ignore(u.ID, c.host, "the zone has a name server of this name (apex or secondary)")
			continue
		}
		if err := p.rules.Check(u.Key.Namespace, owner); err != nil {
			p.fault(u.ID, c.host, "%v", err)
			continue
		}
		claims = append(claims, c)
	}

	// A host counts once, however many listeners and Routes of the namespace have it.
	has := p.usage[u.Key.Namespace]
	if has == nil {
		has = map[host]bool{}
		p.usage[u.Key.Namespace] = has
	}
	more := map[host]bool{}
	for _, c := range claims {
		if !has[c.host] {
			more[c.host] = true
		}
	}
	if len(has)+len(more) > p.most {
		for _, c := range claims {
			p.fault(u.ID, c.host, "with it namespace %s would have more than %d hosts (max_hosts)", u.Key.Namespace, p.most)
		}
		return
	}
	maps.Copy(has, more)
	for _, c := range claims {
		p.take(u, c)
		if p.external && c.to.isEmpty() {
			p.ignore(u.ID, c.host, "the status of the Gateway has no address")
		}
	}
}

// take gives a host to a unit, or tells it who has the host. Units come by their age.
func (p *publisher) take(u *unit, c claim) {
	s := p.published.hosts[c.host]
	if s == nil {
		s = new(slot)
		p.published.hosts[c.host] = s
	}
	rival := s.label.take(u, c.to)
	if c.wild && !c.label {
		rival = cmp.Or(s.all.take(u, c.to), rival)
	}
	if rival != nil {
		p.fault(u.ID, c.host, "%s is in %s, which is older", wire.Name(c.owner()), rival)
	}
}

// take has the unit own a host, unless another does whose answers are others.
func (w *won) take(u *unit, to *target) (rival *unit) {
	switch {
	case w.unit == nil:
		w.unit, w.to = u, to
	case w.unit == u:
		w.to = w.to.with(to)
	case !w.to.includes(to):
		return w.unit
	}
	return nil
}
