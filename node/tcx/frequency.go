package tcx

// A frequency estimates how often things were counted lately, by their hashes: a count-min sketch
// (Cormode and Muthukrishnan, 2005) of two rows, whose counts are halved from time to time.
type frequency struct{ rows [2][1 << 16]uint8 }

// places returns the counts of a hash.
func (f *frequency) places(hash uint64) (a, b *uint8) {
	return &f.rows[0][hash>>32&0xffff], &f.rows[1][hash>>48]
}

// add counts n times.
func (f *frequency) add(hash, n uint64) {
	a, b := f.places(hash)
	for _, p := range [2]*uint8{a, b} {
		*p = uint8(min(uint64(*p)+n, 255))
	}
}

// of returns the estimate for a hash, which is not too small.
func (f *frequency) of(hash uint64) uint8 {
	a, b := f.places(hash)
	return min(*a, *b)
}

// halve makes what was counted before weigh half as much as what is counted from now on.
func (f *frequency) halve() {
	for i := range f.rows {
		for j := range f.rows[i] {
			f.rows[i][j] /= 2
		}
	}
}
