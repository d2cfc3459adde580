package memory

import (
	"runtime"
	"runtime/metrics"
)

// Tight reports whether the collector had almost nothing to work with when it ran last: the limit
// left the heap less than a sixteenth above what is in use. What is released then is not free
// before the collector has run again, and the more is allocated, the more of it the collector
// leaves: at half of the processor's time it lets the heap grow over the limit, and the kernel
// kills the process. So while memory is tight, no part grows beyond its minimum, and nothing large
// should be replaced.
func (b *Budget) Tight() bool { return b != nil && b.tight.Load() }

// Tights returns after how many collections memory was tight.
func (b *Budget) Tights() uint64 { return b.tights.Load() }

// A collected object is unreachable from its beginning, so that the next collection finds it.
type collected struct{ _ [64]byte } // more than what shares a block with others

// follow keeps tight up to date.
func (b *Budget) follow() {
	runtime.AddCleanup(new(collected), func(b *Budget) {
		tight := isTight()
		b.tight.Store(tight)
		if tight {
			b.tights.Add(1)
		}
		b.adapt(inUse())
		b.follow()
	}, b)
}

func isTight() bool {
	samples := [...]metrics.Sample{
		{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/gogc:percent"},
	}
	metrics.Read(samples[:])
	goal, live, percent := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()

	// A low GOGC sets such a goal, too, without any shortage.
	return goal < live+live/16 && percent > 100/16
}
