package audit

import "time"

// A Report is what the groups of one server block would have denied.
type Report struct {
	Zones  string    `json:"zones"`  // of the server block
	Policy string    `json:"policy"` // the directive, in a server block of a Corefile
	Time   time.Time `json:"time"`   // of the report
	Groups []Group   `json:"groups"` // that audit
}

// A Group is what one group would have denied.
type Group struct {
	Name      string     `json:"name"`
	Began     time.Time  `json:"began"`
	LeftOut   uint64     `json:"left_out"` // queries for which the record had no room
	Workloads []Workload `json:"workloads"`
}

// A Workload is the pods of a namespace that have a label; without a namespace it is clients that are not
// known as pods.
type Workload struct {
	Namespace string `json:"namespace,omitempty"`
	Key       string `json:"key,omitempty"`
	Value     string `json:"value,omitempty"`
	Names     Counts `json:"names"`    // words of a line allow
	Services  Counts `json:"services"` // namespaces
	Transfers uint64 `json:"transfers,omitempty"`
}

// Counts are numbers of queries.
type Counts map[string]uint64

// add adds other counts.
func (c Counts) add(o Counts) {
	for key, count := range o {
		c[key] += count
	}
}

// A Sum is the reports of several servers about server blocks with equal zones.
type Sum struct {
	Report
	Servers int `json:"servers"`

	// Shortest and Longest are the times for which a group was audited, in seconds: on the server that has
	// begun last, and on the one that has begun first.
	Shortest float64 `json:"shortest_seconds"`
	Longest  float64 `json:"longest_seconds"`
	// Differ reports whether the servers have different directives. That of the first one is in the Report.
	Differ bool `json:"differ,omitempty"`
}

// Add adds the reports of one server to sums, which it returns.
func Add(sums []Sum, reports []Report) []Sum {
	for _, r := range reports {
		i := 0
		for i < len(sums) && sums[i].Zones != r.Zones {
			i++
		}
		if i == len(sums) {
			sums = append(sums, Sum{Report: Report{Zones: r.Zones, Policy: r.Policy, Time: r.Time}})
		}
		sums[i].add(r)
	}
	return sums
}

func (s *Sum) add(r Report) {
	s.Servers++
	s.Differ = s.Differ || s.Policy != r.Policy
	for _, g := range r.Groups {
		took := r.Time.Sub(g.Began).Seconds()
		if s.Longest == 0 || took < s.Shortest {
			s.Shortest = took
		}
		s.Longest = max(s.Longest, took)
		s.group(g.Name).add(g)
	}
}

// group returns a group by its name, which it adds if it is new.
func (s *Sum) group(name string) *Group {
	for i := range s.Groups {
		if s.Groups[i].Name == name {
			return &s.Groups[i]
		}
	}
	s.Groups = append(s.Groups, Group{Name: name})
	return &s.Groups[len(s.Groups)-1]
}

func (g *Group) add(o Group) {
	g.LeftOut += o.LeftOut
	for _, w := range o.Workloads {
		one := g.workload(w)
		one.Names.add(w.Names)
		one.Services.add(w.Services)
		one.Transfers += w.Transfers
	}
}

// workload returns the same workload as w of g, which it adds if it is new.
func (g *Group) workload(w Workload) *Workload {
	for i := range g.Workloads {
		if g.Workloads[i].id() == w.id() {
			return &g.Workloads[i]
		}
	}
	g.Workloads = append(g.Workloads, Workload{Namespace: w.Namespace, Key: w.Key, Value: w.Value, Names: Counts{}, Services: Counts{}})
	return &g.Workloads[len(g.Workloads)-1]
}

func (w *Workload) id() workload { return workload{w.Namespace, w.Key, w.Value} }
