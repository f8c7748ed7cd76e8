package measure

import (
	"math"
	"math/rand/v2"
	"testing"
)

// blocks makes n blocks of samples around a time, with relative noise of each block and of each
// sample.
func blocks(seed uint64, n, samples int, seconds, blockNoise, sampleNoise float64) [][]float64 {
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([][]float64, n)
	for i := range all {
		mean := seconds * (1 + blockNoise*random.NormFloat64())
		for range samples {
			all[i] = append(all[i], mean*(1+sampleNoise*random.NormFloat64()))
		}
	}
	return all
}

func TestCompareBlocks(t *testing.T) {
	s := CompareBlocks([][]float64{{20, 21, 22}, {19, 20, 30}}, [][]float64{{10, 10, 10}, {10, 10, 11}})
	if s.Ratio != 2.05 || s.Low > s.Ratio || s.High < s.Ratio {
		t.Errorf("got %+v; want the ratio of the medians, 2.05, inside its interval", s)
	}
	s = CompareBlocks(blocks(1, 12, 5, 20e-6, 0, 0.01), blocks(2, 12, 5, 10e-6, 0, 0.01))
	if math.Abs(s.Ratio-2) > 0.02 || s.Low < 1.97 || s.High > 2.03 {
		t.Errorf("got %+v; want 2 within about 1 %%", s)
	}
}

// If blocks differ from each other, the interval must reflect it: many samples of few blocks do not
// narrow it.
func TestCompareBlocksCoverage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	inside := 0
	const sessions = 60
	for seed := range uint64(sessions) {
		s := CompareBlocks(blocks(2*seed, 12, 6, 1, 0.02, 0.001), blocks(2*seed+1, 12, 6, 1, 0.02, 0.001))
		if s.Low <= 1 && 1 <= s.High {
			inside++
		}
	}
	// The nominal coverage is 95 %, but a bootstrap of 12 blocks is slightly too narrow.
	if inside < sessions*85/100 {
		t.Errorf("1 was inside the interval of %d of %d sessions with equal kernels", inside, sessions)
	}
}
