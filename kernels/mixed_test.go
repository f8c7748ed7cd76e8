package kernels_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"attune/internal/half"
)

// mixedFolder is the folder of the attention that converts Q.
const mixedFolder = "attention/mixed"

// The stage is right on all shapes of the simulator with all checkers, and so are two pipeline stages
// with exact exponentials.
func TestMixedIsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, mixedFolder)
	for index, name := range []string{"mixed", "mixed+KV_STAGES=2+EXP2_LINEAR_EIGHTHS=0+EXP2_SEGMENTS=1"} {
		t.Run(name, func(t *testing.T) {
			skipUnlessSampled(t, index, 2)
			t.Parallel()
			checkDeclared(t, kernel, builder, mixedFolder, name, sampleOf(t, index, 2, kernel.Run.SimShapes))
		})
	}
}

// Each 16 rows of Q have a scale, a power of two that the scores undo: Q times a power of two beside a
// softmax scale that undoes it has the same bits, up to the ends of BF16.
func TestMixedScales(t *testing.T) {
	plain := runMixed(t, func([]float32, *float32) {})
	for _, exponent := range []int{-50, -1, 3, 50} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			got := runMixed(t, func(q []float32, scale *float32) {
				for i := range q {
					q[i] = float32(math.Ldexp(float64(q[i]), exponent))
				}
				*scale = float32(math.Ldexp(float64(*scale), -exponent))
			})
			if !bytes.Equal(got, plain) {
				t.Errorf("Q times 2^%d has another output", exponent)
			}
		})
	}
	// Rows 16 to 31 are another warp's, whose scale is its own: those of the others stay.
	got := runMixed(t, func(q []float32, _ *float32) {
		for i := 16 * 64; i < 32*64; i++ {
			q[i] *= 1 << 40
		}
	})
	if !bytes.Equal(got[:16*128], plain[:16*128]) || !bytes.Equal(got[32*128:], plain[32*128:]) || bytes.Equal(got[16*128:32*128], plain[16*128:32*128]) {
		t.Error("large rows change the rows of other warps, or not their own")
	}
}

// A NaN in Q stays in its row, a row of zeros has equal weights, and an infinity is a large number.
func TestMixedSpecialValues(t *testing.T) {
	plain := half.DecodeBFloat16(runMixed(t, func([]float32, *float32) {}))
	got := half.DecodeBFloat16(runMixed(t, func(q []float32, _ *float32) {
		q[5*64+3] = float32(math.NaN())
		clear(q[7*64 : 8*64])
		q[40*64+1] = float32(math.Inf(1))
	}))
	for row := range 64 {
		for column := range 64 {
			x, before := got[row*64+column], plain[row*64+column]
			switch {
			case math.IsNaN(x) != (row == 5):
				t.Fatalf("row %d, column %d is %v", row, column, x)
			case row < 16 && row != 5 && row != 7 && x != before:
				t.Fatalf("row %d, column %d: got %v, want %v", row, column, x, before)
			}
		}
	}
}

// runMixed computes O of a head of 64 rows and 300 keys on the simulator, with a changed Q and softmax
// scale.
func runMixed(t *testing.T, change func(q []float32, scale *float32)) []byte {
	t.Helper()
	j := newDeclaredJob(t, mixedFolder, "mixed", "batch=1,kv_heads=1,group=1,queries=64,keys=300,blocks=1,causal=0,lse=0,q_fp16=0,o_bf16=1,q_max=100,k_max=16,v_max=2")
	var q []float32
	for _, x := range half.DecodeBFloat16(j.arg("q").Input) {
		q = append(q, float32(x))
	}
	scale := math.Float32frombits(binary.LittleEndian.Uint32(j.arg("softmax_scale").Scalar))
	change(q, &scale)
	j.arg("q").Input = bfloats(q)
	j.arg("softmax_scale").Scalar = binary.LittleEndian.AppendUint32(nil, math.Float32bits(scale))
	return j.run(t)[0]
}
