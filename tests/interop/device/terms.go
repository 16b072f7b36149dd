package main

import (
	"math"
	"math/big"
	"slices"
	"strconv"
)

// limits are what the application allows (docs/foreign-clients/terms.md).
type limits struct {
	epsilon, delta, localEpsilon, honestFraction float64
	minBatch                                     uint64
	visibility                                   string
}

var defaults = limits{1, 1e-5, 4, 0.9, 1000, "visible"}

// A mechanism is a randomized response over symbols.
type mechanism struct {
	kind                     string
	epsilon                  float64
	buckets, levels, symbols uint64
	hasElsewhere             bool
}

func readMechanism(value any) (mechanism, layout) {
	values, isMap := value.(map[string]any)
	require(isMap, "mechanism")
	known := map[string][]string{
		"signed-symbol": {"type", "layout", "epsilon", "buckets", "elsewhere"},
		"named-symbol":  {"type", "layout", "epsilon", "buckets", "levels"},
		"event-symbol":  {"type", "layout", "epsilon"},
	}
	m := mechanism{kind: text(values, "type"), epsilon: number(values, "epsilon"), levels: 2}
	require(known[m.kind] != nil, "mechanism")
	for key := range values {
		require(slices.Contains(known[m.kind], key), key)
	}
	l := readLayout(values["layout"])
	if m.kind == "event-symbol" {
		m.symbols = uint64(l.keys) + 1
	} else {
		m.buckets = whole(values["buckets"], "buckets")
		require(m.buckets <= 1<<15, "symbols")
	}
	if values["levels"] != nil {
		m.levels = whole(values["levels"], "levels")
		require(m.levels >= 2 && m.levels <= 1<<15, "symbols")
	}
	switch m.kind {
	case "signed-symbol":
		m.hasElsewhere, isMap = values["elsewhere"].(bool)
		require(isMap, "elsewhere")
		m.symbols = 2 * m.buckets
		if m.hasElsewhere {
			m.symbols++
		}
	case "named-symbol":
		m.symbols = m.levels * m.buckets
	}
	require(m.epsilon > 0 && m.epsilon <= 30, "epsilon")
	require(m.symbols >= 2 && m.symbols <= 1<<15, "symbols")
	return m, l
}

// checkTerms computes what a report costs, and refuses what the application does not allow or the mechanism does not keep.
func (p *publication) checkTerms(allowed limits) {
	require(number(p.terms, "epsilon") == p.epsilon, "epsilon")
	require(number(p.terms, "delta") == p.delta, "delta")
	require(text(p.terms, "calibration") == "tight", "calibration")
	isShuffled := p.model == "shuffle"
	honest, reports, local := uint64(0), uint64(1), p.epsilon
	if isShuffled {
		honest, reports = keepThreeDigits(math.Floor(p.honestFraction*float64(p.batchSize))), p.reports
		local = float64(reports) * p.mechanism.epsilon
	}
	require(reports == 1, "reports") // this device makes one
	require(whole(p.terms["honest"], "honest") == honest, "honest")
	require(whole(p.terms["reports"], "reports") == reports, "reports")
	require(p.epsilon <= allowed.epsilon, "epsilon")
	require(p.delta <= allowed.delta, "delta")
	if isShuffled {
		require(p.batchSize >= p.minBatch, "least")
		require(accepts(allowed.visibility, p.visibility), "arm_visibility")
		require(p.honestFraction <= allowed.honestFraction, "honest_fraction")
		require(p.batchSize >= allowed.minBatch && p.batchSize <= 1e8, "batch_size")
		most := p.localEpsilonMax
		if p.visibility == "as-local" {
			most = p.epsilon
		}
		require(p.mechanism.epsilon <= most, "local_epsilon")
	}
	require(local <= allowed.localEpsilon, "local_epsilon")
	if isShuffled {
		require(p.mechanism.delta(honest, p.epsilon) <= p.delta*(1+1e-6), "delta")
	} else {
		require(p.mechanism.epsilon <= p.epsilon, "delta")
	}
}

func accepts(allowed, asked string) bool {
	order := []string{"visible", "as-local", "grouped", "hidden"}
	return slices.Index(order, asked) <= slices.Index(order, allowed)
}

func keepThreeDigits(n float64) uint64 {
	digits := strconv.FormatUint(uint64(n), 10)
	unit := uint64(1)
	for range max(0, len(digits)-3) {
		unit *= 10
	}
	return uint64(n) / unit * unit
}

// delta bounds the delta of a batch with n honest reports at a promise of epsilon.
func (m mechanism) delta(n uint64, epsilon float64) float64 {
	if m.epsilon <= epsilon {
		return 0
	}
	l, e, s := math.Exp(m.epsilon), math.Exp(epsilon), float64(m.symbols)
	w := 1 / (l + s - 1)
	gain, loss, others := (l-1)*(1+e), l*e-1, e-1
	sum := 4 * s / 1e20
	for t, pt := range binomial(int(n), 2*w) {
		above, means := tails(t)
		for c, pc := range binomial(int(n)-t, (s-2)*w/(1-2*w)) {
			cost := loss*float64(t) + others*float64(c)
			if first := int(math.Floor(cost/gain)) + 1; first <= t {
				sum += pt * pc * (gain*means[first] - cost*above[first]) / float64(n)
			}
		}
	}
	return sum * (1 + 1e-5)
}

// binomial yields the numbers that are not too far from the mean, with their probabilities.
func binomial(n int, p float64) func(func(int, float64) bool) {
	return func(yield func(int, float64) bool) {
		if p == 0 {
			yield(0, 1)
			return
		}
		u, mean := math.Log(1e20), float64(n)*p
		far := u/3 + math.Sqrt(u*u/9+2*mean*(1-p)*u)
		all, _ := math.Lgamma(float64(n + 1))
		for k := max(0, int(mean-far)); k <= min(n, int(mean+far)+1); k++ {
			inside, _ := math.Lgamma(float64(k + 1))
			outside, _ := math.Lgamma(float64(n - k + 1))
			logarithm := all - inside - outside + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p)
			if !yield(k, math.Exp(logarithm)) {
				return
			}
		}
	}
}

// tails returns P(A >= k) and E[A; A >= k] of A ~ Bin(t, 1/2), for every k.
func tails(t int) (above, means []float64) {
	above, means = make([]float64, t+2), make([]float64, t+2)
	for k, p := range binomial(t, 0.5) {
		above[k], means[k] = p, p*float64(k)
	}
	for k := t; k >= 0; k-- {
		above[k] += above[k+1]
		means[k] += means[k+1]
	}
	return above, means
}

// threshold is the word below which the truth is kept.
func (m mechanism) threshold() *big.Int {
	shrink := new(big.Rat).Sub(big.NewRat(1, 1), new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), 50)))
	e := new(big.Rat).Mul(new(big.Rat).SetFloat64(math.Exp(m.epsilon)), shrink)
	words, s := new(big.Int).Lsh(big.NewInt(1), 64), new(big.Int).SetUint64(m.symbols)
	quotient, rest := new(big.Int).QuoRem(words, s, new(big.Int))
	a, b := new(big.Rat).SetInt(quotient), new(big.Rat).SetInt(quotient)
	if rest.Sign() > 0 {
		b.Add(b, big.NewRat(1, 1))
	}
	gap := new(big.Rat).Sub(new(big.Rat).Mul(e, a), b)
	ratio := new(big.Rat).Quo(gap, new(big.Rat).Add(new(big.Rat).SetInt(words), gap))
	ratio.Mul(ratio, new(big.Rat).SetInt(words))
	kept := new(big.Int).Div(ratio.Num(), ratio.Denom()) // rounds down: the denominator is positive
	if kept.Sign() < 0 {
		return new(big.Int)
	}
	return kept
}
