package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seamark/seamark/wire/protobuf"
)

// The field numbers of this file come from generated.proto in each API group of
// Kubernetes. They never change. The tests compare them with k8s.io/api.

// readMeta decodes an object's metadata into o, and calls label for each label.
func (o *Decoded) readMeta(m *protobuf.Message, label func(key, value []byte)) {
	for meta := m.Embedded(); m.NextIn(&meta); {
		switch meta.Number {
		case 1:
			o.Name = meta.String()
		case 3:
			o.Namespace = intern(meta.String())
		case 6:
			o.Version = meta.String()
		case 8:
			for created := meta.Embedded(); meta.NextIn(&created); {
				if created.Number == 1 {
					o.Created = Seconds(created.Varint())
				}
			}
		case 9:
			meta.Bytes() // an error, if it is none
			o.Ending = true

		case 11:
			if key, value := meta.Pair(); label != nil && meta.Err == nil {
				label(key, value)
			}
		case 12:
			switch key, value := meta.Pair(); string(key) {
			case annotationChanged:
				o.setChanged(value)
			case AnnotationListEnd:
				o.ListEnd = string(value)
			}
		}
	}
}

func readNamespace(raw []byte, o *Decoded) (n Namespace, err error) {
	m := protobuf.Message{Rest: raw}
	for m.NextOf(1) {
		o.readMeta(&m, nil)
	}
	n.Name = o.Name
	return n, m.Err
}

func readService(raw []byte, o *Decoded) (s Service, err error) {
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		switch m.Number {
		case 1:
			o.readMeta(&m, nil)
		case 2:
			s.readSpec(&m)
		case 3:
			s.readStatus(&m)
		}
	}
	s.Namespace, s.Name = o.Namespace, o.Name
	return s, m.Err
}

func (s *Service) readSpec(m *protobuf.Message) {
	for spec := m.Embedded(); m.NextIn(&spec); {
		switch spec.Number {
		case 1:
			port, _ := readServicePort(&spec)
			s.Spec.Ports = append(s.Spec.Ports, port)
		case 2:
			key, value := spec.Pair()
			if s.Spec.Selector == nil {
				s.Spec.Selector = map[string]string{}
			}
			s.Spec.Selector[string(key)] = string(value)

		case 3:
			s.Spec.ClusterIP = spec.String()
		case 4:
			s.Spec.Type = spec.String()
		case 5:
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, spec.String())
		case 10:
			s.Spec.ExternalName = spec.String()
		case 13:
			s.Spec.PublishNotReadyAddresses = spec.Bool()
		case 18:
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, spec.String())
		}
	}
}

// readServicePort reads a port of a Service or an EndpointSlice, whose port need not have a number.
func readServicePort(m *protobuf.Message) (p ServicePort, numbered bool) {
	for port := m.Embedded(); m.NextIn(&port); {
		switch port.Number {
		case 1:
			p.Name = port.String()
		case 2:
			p.Protocol = port.String()
		case 3:
			p.Port, numbered = int32(port.Varint()), true
		}
	}
	return p, numbered
}

func (s *Service) readStatus(m *protobuf.Message) {
	for status := m.Embedded(); m.NextIn(&status); {
		if status.Number != 1 {
			continue
		}
		for balancer := status.Embedded(); status.NextIn(&balancer); {
			if balancer.Number == 1 {
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, readIngress(&balancer))
			}
		}
	}
}

func readIngress(m *protobuf.Message) (in Ingress) {
	for ingress := m.Embedded(); m.NextIn(&ingress); {
		switch ingress.Number {
		case 1:
			in.IP = ingress.String()
		case 2:
			in.Hostname = ingress.String()
		}
	}
	return in
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
			o.readMeta(&m, label)
		case 2:
			for spec := m.Embedded(); m.NextIn(&spec); {
				if spec.Number == 11 {
					p.Spec.HostNetwork = spec.Bool()
				}
			}
		case 3:
			p.readStatus(&m)
		}
	}
	p.Namespace, p.Name = o.Namespace, o.Name
	if o.Ending {
		p.DeletionTimestamp = new(metav1.Time)
	}
	return p, m.Err
}

func (p *Pod) readStatus(m *protobuf.Message) {
	for status := m.Embedded(); m.NextIn(&status); {
		switch status.Number {
		case 1:
			p.Status.Phase = status.String()
		case 6:
			p.Status.PodIP = status.String()
		case 12:
			var text PodIP
			for ip := status.Embedded(); status.NextIn(&ip); {
				if ip.Number == 1 {
					text.IP = ip.String()
				}
			}
			p.Status.PodIPs = append(p.Status.PodIPs, text)
		}
	}
}

// readNode decodes a Node, or its PartialObjectMetadata.
func readNode(raw []byte, o *Decoded) (n Node, err error) {
	labels, err := readLabels(raw, o)
	return Node(labels), err
}

func readConfigMap(raw []byte, o *Decoded) (c ConfigMap, err error) {
	m := protobuf.Message{Rest: raw}
	for m.Next() {
		switch m.Number {
		case 1:
			o.readMeta(&m, nil)
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
	c.Namespace, c.Name, c.CreationTimestamp = o.Namespace, o.Name, o.Created
	return c, m.Err
}
