package measure

import (
	"math"
	"math/rand/v2"
	"testing"
)

// blocks makes turns of samples around a time, with noise of each turn as a whole and of each sample, both as shares.
func blocks(seed uint64, turns, samples int, seconds, ofTurn, ofSample float64) [][]float64 {
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([][]float64, turns)
	for i := range all {
		mean := seconds * (1 + ofTurn*random.NormFloat64())
		for range samples {
			all[i] = append(all[i], mean*(1+ofSample*random.NormFloat64()))
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
		t.Errorf("got %+v; want 2 within a hundredth or so", s)
	}
}

// Where turns differ as a whole, the interval must say so: many samples of few turns are few.
func TestCompareBlocksKnowsItsTurns(t *testing.T) {
	held := 0
	const sessions = 60
	for seed := range uint64(sessions) {
		s := CompareBlocks(blocks(2*seed, 12, 6, 1, 0.02, 0.001), blocks(2*seed+1, 12, 6, 1, 0.02, 0.001))
		if s.Low <= 1 && 1 <= s.High {
			held++
		}
	}
	// 95 % are meant; the bootstrap of twelve turns is a little narrow.
	if held < sessions*85/100 {
		t.Errorf("1 was inside the interval of %d of %d sessions with equal kernels", held, sessions)
	}
}
