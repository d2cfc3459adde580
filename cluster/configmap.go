package cluster

// A ConfigMapSink is the Sink of a source that watches one ConfigMap.
type ConfigMapSink struct {
	Traced
	// Set receives the data of each state, nil if the ConfigMap does not exist. It
	// must not block.
	Set func(data map[string]string)
	key Key // zero if the ConfigMap does not exist
}

// Put implements Sink.
func (s *ConfigMapSink) Put(_ Kind, objects ...Object) {
	for _, o := range objects {
		if c, ok := o.(*ConfigMap); ok {
			s.key = c.Key()
			s.Set(c.Data)
		}
	}
}

// Delete implements Sink.
func (s *ConfigMapSink) Delete(Kind, Key) {
	s.key = Key{}
	s.Set(nil)
}

// Listed implements Sink.
func (s *ConfigMapSink) Listed(kind Kind, has func(Key) bool) {
	if s.key == (Key{}) || !has(s.key) {
		s.Delete(kind, s.key)
	}
}
