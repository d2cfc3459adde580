package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/cluster/protobuf"
)

// The field numbers of this file come from generated.proto in each API group of
// Kubernetes. They never change. The tests compare them with k8s.io/api.

// readMeta decodes an object's metadata into o, and calls label for each label.
func (o *Decoded) readMeta(raw []byte, label func(key, value []byte)) error {
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		switch m.Number {
		case 1:
			o.Name = m.String()
		case 3:
			o.Namespace = intern(m.String())
		case 6:
			o.Version = m.String()
		case 9:
			m.Bytes()
			o.Ending = true
		case 11:
			if key, value := m.Pair(); label != nil && m.Err == nil {
				label(key, value)
			}
		case 12:
			switch key, value := m.Pair(); string(key) {
			case annotationChanged:
				o.setChanged(value)
			case AnnotationListEnd:
				o.ListEnd = string(value)
			}
		}
	}
	return m.Err
}

func readNamespace(raw []byte, o *Decoded) (n Namespace, err error) {
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		if m.Number == 1 {
			m.Fail(o.readMeta(m.Bytes(), nil))
		}
	}
	n.Name = o.Name
	return n, m.Err
}

func readService(raw []byte, o *Decoded) (s Service, err error) {
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		switch m.Number {
		case 1:
			m.Fail(o.readMeta(m.Bytes(), nil))
		case 2:
			m.Fail(s.readSpec(m.Bytes()))
		case 3:
			status := protobuf.Message{Rest: m.Bytes()}
			for status.Next() {
				if status.Number == 1 {
					status.Fail(s.readBalancer(status.Bytes()))
				}
			}
			m.Fail(status.Err)
		}
	}
	s.Namespace, s.Name = o.Namespace, o.Name
	return s, m.Err
}

func (s *Service) readSpec(raw []byte) error {
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		switch m.Number {
		case 1:
			var p ServicePort
			port := protobuf.Message{Rest: m.Bytes()}
			for port.Next() {
				switch port.Number {
				case 1:
					p.Name = port.String()
				case 2:
					p.Protocol = port.String()
				case 3:
					p.Port = int32(port.Varint())
				}
			}
			m.Fail(port.Err)
			s.Spec.Ports = append(s.Spec.Ports, p)
		case 2:
			key, value := m.Pair()
			if s.Spec.Selector == nil {
				s.Spec.Selector = map[string]string{}
			}
			s.Spec.Selector[string(key)] = string(value)
		case 3:
			s.Spec.ClusterIP = m.String()
		case 4:
			s.Spec.Type = m.String()
		case 5:
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, m.String())
		case 10:
			s.Spec.ExternalName = m.String()
		case 13:
			s.Spec.PublishNotReadyAddresses = m.Bool()
		case 18:
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, m.String())
		}
	}
	return m.Err
}

func (s *Service) readBalancer(raw []byte) error {
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		if m.Number != 1 {
			continue
		}
		var in Ingress
		ingress := protobuf.Message{Rest: m.Bytes()}
		for ingress.Next() {
			switch ingress.Number {
			case 1:
				in.IP = ingress.String()
			case 2:
				in.Hostname = ingress.String()
			}
		}
		m.Fail(ingress.Err)
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, in)
	}
	return m.Err
}

// readPod decodes a Pod without the fields that only manifests need.
func (s Slimmer) readPod(raw []byte, o *Decoded) (p Pod, err error) {
	var label func(key, value []byte)
	if s.Options.PodLabels {
		p.Labels = map[string]string{}
		label = func(key, value []byte) { p.Labels[string(key)] = string(value) }
	}
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		switch m.Number {
		case 1:
			m.Fail(o.readMeta(m.Bytes(), label))
		case 2:
			spec := protobuf.Message{Rest: m.Bytes()}
			for spec.Next() {
				if spec.Number == 11 {
					p.Spec.HostNetwork = spec.Bool()
				}
			}
			m.Fail(spec.Err)
		case 3:
			m.Fail(p.readStatus(m.Bytes()))
		}
	}
	p.Namespace, p.Name = o.Namespace, o.Name
	if o.Ending {
		p.DeletionTimestamp = new(metav1.Time)
	}
	return p, m.Err
}

func (p *Pod) readStatus(raw []byte) error {
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		switch m.Number {
		case 1:
			p.Status.Phase = m.String()
		case 6:
			p.Status.PodIP = m.String()
		case 12:
			ip := protobuf.Message{Rest: m.Bytes()}
			var text PodIP
			for ip.Next() {
				if ip.Number == 1 {
					text.IP = ip.String()
				}
			}
			m.Fail(ip.Err)
			p.Status.PodIPs = append(p.Status.PodIPs, text)
		}
	}
	return m.Err
}

// readNode decodes a Node, or its PartialObjectMetadata.
func readNode(raw []byte, o *Decoded) (n Node, err error) {
	n.Labels = map[string]string{}
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		if m.Number == 1 {
			m.Fail(o.readMeta(m.Bytes(), func(key, value []byte) { n.Labels[string(key)] = string(value) }))
		}
	}
	n.Name = o.Name
	return n, m.Err
}

func readConfigMap(raw []byte, o *Decoded) (c ConfigMap, err error) {
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		switch m.Number {
		case 1:
			m.Fail(o.readMeta(m.Bytes(), nil))
		case 2:
			key, value := m.Pair()
			if c.Data == nil {
				c.Data = map[string]string{}
			}
			c.Data[string(key)] = string(value)
		case 3:
			key, value := m.Pair()
			if c.BinaryData == nil {
				c.BinaryData = map[string][]byte{}
			}
			c.BinaryData[string(key)] = append([]byte(nil), value...)
		}
	}
	c.Namespace, c.Name = o.Namespace, o.Name
	return c, m.Err
}
