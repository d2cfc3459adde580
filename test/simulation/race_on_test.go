//go:build race

package simulation

// defaultSeeds is smaller with the race detector, which makes a world eight times as
// expensive. make test runs a thousand without it.
const defaultSeeds = 100
