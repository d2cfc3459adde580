package stubzones

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seamark/seamark/cluster"
	"github.com/seamark/seamark/config"
	"github.com/seamark/seamark/corefile"
	"github.com/seamark/seamark/directive/forward"
	"github.com/seamark/seamark/directive/internal/objects"
	"github.com/seamark/seamark/wire"
)

// A content is the zones of a ConfigMap, and what is wrong with it.
type content struct {
	objects.Content
	settings  *settings
	namespace string
	most      int
	targets   map[wire.Name]string // separated by spaces
}

// read reads a ConfigMap. Valid lines of one with errors are read, too.
func (s *settings) read(o cluster.Object, most int) *objects.Content {
	c := &content{settings: s, namespace: o.Key().Namespace, most: most, targets: map[wire.Name]string{}}
	if m, ok := o.(*cluster.ConfigMap); ok {
		c.EachLine(m, "zones", most, c.readLine)
	}

	for _, zone := range slices.Sorted(maps.Keys(c.targets)) {
		c.Packed = string(objects.AppendName([]byte(c.Packed), zone, []byte(c.targets[zone])))
		c.Count += units(c.targets[zone])
	}
	return &c.Content
}

// units returns as how many zones one counts.
func units(targets string) int { return 1 + len(targets)/objects.SizeUnit }

// readLine reads the words of a line, ZONE TO....
func (c *content) readLine(key string, number int, words []string) {
	zones, err := config.ParseZones("", []corefile.Token{{Text: words[0]}})
	if err != nil {
		c.Fail(key, number, fmt.Errorf("not a zone: %q", words[0]))
		return
	}
	targets, err := c.settings.targets(words[1:])
	for _, zone := range zones {
		if c.Used += units(targets); c.Used > c.most {
			return
		}
		wrong := err
		if wrong == nil {
			wrong = c.settings.Rules().Check(c.namespace, zone)
		}
		if _, twice := c.targets[zone]; twice && wrong == nil {
			wrong = fmt.Errorf("%s has two lines", zone)
		}
		if wrong != nil {
			c.Fail(key, number, wrong)
			continue
		}
		c.targets[zone] = targets
	}
}

// targets checks the targets of a line, and returns them separated by spaces.
func (s *settings) targets(words []string) (string, error) {
	if n := len(words); n == 0 || n > forward.MaxUpstreams {
		return "", fmt.Errorf("want ZONE TO... with 1 to %d upstreams, got %d", forward.MaxUpstreams, n)
	}
	for _, word := range words {
		addr, err := forward.ParseAddress(word)
		switch {
		case err != nil:
			return "", err
		case !s.allows(addr):
			return "", fmt.Errorf("%s is not an address that upstreams may have", addr)
		}
	}
	return strings.Join(words, " "), nil
}
