package cluster

import "k8s.io/apimachinery/pkg/labels"

// A Selector selects objects by their labels. The zero value selects all.
type Selector struct{ of labels.Selector }

// ParseSelector parses a label selector as kubectl takes it: "app=web,tier!=cache".
func ParseSelector(text string) (Selector, error) {
	s, err := labels.Parse(text)
	return Selector{s}, err
}

// Matches reports whether an object with these labels is selected. l may be nil.
func (s Selector) Matches(l *Labels) bool { return s.of == nil || s.of.Matches(selectable{l}) }

// selectable implements labels.Labels.
type selectable struct{ *Labels }

func (s selectable) Has(key string) bool {
	_, ok := s.Labels.Get(key)
	return ok
}

func (s selectable) Get(key string) string {
	value, _ := s.Labels.Get(key)
	return value
}

func (s selectable) Lookup(key string) (string, bool) { return s.Labels.Get(key) }
