package cluster

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The field numbers of this file are those of generated.proto in each API group of
// Kubernetes. They never change. The tests compare them with k8s.io/api.

// readMeta decodes an object's metadata into a, and calls label for each label.
func (a *arrived) readMeta(raw []byte, label func(key, value []byte)) error {
	m := message{rest: raw}
	for m.next() {
		switch m.number {
		case 1:
			a.name = m.string()
		case 3:
			a.namespace = intern(m.string())
		case 6:
			a.version = m.string()
		case 9:
			m.bytes()
			a.ending = true
		case 11:
			if key, value := m.pair(); label != nil && m.err == nil {
				label(key, value)
			}
		case 12:
			switch key, value := m.pair(); string(key) {
			case annotationChanged:
				a.since(value)
			case annotationListed:
				a.annotations = map[string]string{annotationListed: string(value)}
			}
		}
	}
	return m.err
}

func readNamespace(raw []byte, a *arrived) (n apiNamespace, err error) {
	m := message{rest: raw}
	for m.next() {
		if m.number == 1 {
			m.fail(a.readMeta(m.bytes(), nil))
		}
	}
	n.Name = a.name
	return n, m.err
}

func readService(raw []byte, a *arrived) (s apiService, err error) {
	m := message{rest: raw}
	for m.next() {
		switch m.number {
		case 1:
			m.fail(a.readMeta(m.bytes(), nil))
		case 2:
			m.fail(s.readSpec(m.bytes()))
		case 3:
			status := message{rest: m.bytes()}
			for status.next() {
				if status.number == 1 {
					status.fail(s.readBalancer(status.bytes()))
				}
			}
			m.fail(status.err)
		}
	}
	s.Namespace, s.Name = a.namespace, a.name
	return s, m.err
}

func (s *apiService) readSpec(raw []byte) error {
	m := message{rest: raw}
	for m.next() {
		switch m.number {
		case 1:
			var p apiServicePort
			port := message{rest: m.bytes()}
			for port.next() {
				switch port.number {
				case 1:
					p.Name = port.string()
				case 2:
					p.Protocol = port.string()
				case 3:
					p.Port = int32(port.varint())
				}
			}
			m.fail(port.err)
			s.Spec.Ports = append(s.Spec.Ports, p)
		case 2:
			key, value := m.pair()
			if s.Spec.Selector == nil {
				s.Spec.Selector = map[string]string{}
			}
			s.Spec.Selector[string(key)] = string(value)
		case 3:
			s.Spec.ClusterIP = m.string()
		case 4:
			s.Spec.Type = m.string()
		case 5:
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, m.string())
		case 10:
			s.Spec.ExternalName = m.string()
		case 13:
			s.Spec.PublishNotReadyAddresses = m.bool()
		case 18:
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, m.string())
		}
	}
	return m.err
}

func (s *apiService) readBalancer(raw []byte) error {
	m := message{rest: raw}
	for m.next() {
		if m.number != 1 {
			continue
		}
		var in apiIngress
		ingress := message{rest: m.bytes()}
		for ingress.next() {
			switch ingress.number {
			case 1:
				in.IP = ingress.string()
			case 2:
				in.Hostname = ingress.string()
			}
		}
		m.fail(ingress.err)
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, in)
	}
	return m.err
}

// readPod decodes a Pod without the fields that only manifests need.
func (o Options) readPod(raw []byte, a *arrived) (p apiPod, err error) {
	var label func(key, value []byte)
	if o.PodLabels {
		p.Labels = map[string]string{}
		label = func(key, value []byte) { p.Labels[string(key)] = string(value) }
	}
	m := message{rest: raw}
	for m.next() {
		switch m.number {
		case 1:
			m.fail(a.readMeta(m.bytes(), label))
		case 2:
			spec := message{rest: m.bytes()}
			for spec.next() {
				if spec.number == 11 {
					p.Spec.HostNetwork = spec.bool()
				}
			}
			m.fail(spec.err)
		case 3:
			m.fail(p.readStatus(m.bytes()))
		}
	}
	p.Namespace, p.Name = a.namespace, a.name
	if a.ending {
		p.DeletionTimestamp = new(metav1.Time)
	}
	return p, m.err
}

func (p *apiPod) readStatus(raw []byte) error {
	m := message{rest: raw}
	for m.next() {
		switch m.number {
		case 1:
			p.Status.Phase = m.string()
		case 6:
			p.Status.PodIP = m.string()
		case 12:
			ip := message{rest: m.bytes()}
			var text apiPodIP
			for ip.next() {
				if ip.number == 1 {
					text.IP = ip.string()
				}
			}
			m.fail(ip.err)
			p.Status.PodIPs = append(p.Status.PodIPs, text)
		}
	}
	return m.err
}

func readConfigMap(raw []byte, a *arrived) (c apiConfigMap, err error) {
	m := message{rest: raw}
	for m.next() {
		switch m.number {
		case 1:
			m.fail(a.readMeta(m.bytes(), nil))
		case 2:
			key, value := m.pair()
			if c.Data == nil {
				c.Data = map[string]string{}
			}
			c.Data[string(key)] = string(value)
		case 3:
			key, value := m.pair()
			if c.BinaryData == nil {
				c.BinaryData = map[string][]byte{}
			}
			c.BinaryData[string(key)] = append([]byte(nil), value...)
		}
	}
	c.Namespace, c.Name = a.namespace, a.name
	return c, m.err
}
