//go:build linux

package main

import (
	"math"
	"slices"
)

// A spread is the median, least and greatest value of several rounds.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf requires at least one value.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// percentile returns the p-th quantile of sorted values by nearest rank; NaN if
// there are no values.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[max(0, min(rank, len(sorted)-1))]
}

// quantile returns the p-th quantile of values in any order.
func quantile(values []float64, p float64) float64 {
	return percentile(slices.Sorted(slices.Values(values)), p)
}

// mean requires at least one value.
func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// ratios divides round by round, since a disturbance affects a whole round.
func ratios(over, under []float64) []float64 {
	n := min(len(over), len(under))
	out := make([]float64, 0, n)
	for i := range n {
		if under[i] > 0 {
			out = append(out, over[i]/under[i])
		}
	}
	return out
}

// differences subtracts round by round, for the same reason.
func differences(over, under []float64) (out []float64) {
	for i := range min(len(over), len(under)) {
		out = append(out, over[i]-under[i])
	}
	return out
}

// turns returns the order of n contenders in each round: ABBA. Every second round
// is reversed, so that slow drifts affect all contenders alike.
func turns(n, rounds int) [][]int {
	order := make([][]int, rounds)
	for r := range order {
		for i := range n {
			order[r] = append(order[r], i)
		}
		if r%2 == 1 {
			slices.Reverse(order[r])
		}
	}
	return order
}

// The verdicts on a goal.
const (
	met     = "met"
	missed  = "missed"
	near    = "unclear" // the limit lies within the spread of the rounds
	unknown = "not measured"
)

func judge(s spread, limit float64) string {
	switch {
	case s.Max <= limit:
		return met
	case s.Min > limit:
		return missed
	}
	return near
}
