package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attune/internal/half"
)

// halfInputs are Q, K and V of one head, for kernels/fused and kernels/native.
type halfInputs struct {
	q, k, v [][]float64
	causal  bool
	scale   float64
	within  float64 // error of O that is allowed
	share   float64 // and of its largest addend
}

// rounded returns the BF16 next to x.
func rounded(x float64) float64 {
	return float64(half.BFloat16FromFloat32(float32(x)).Float32())
}

// offset adds to all elements.
func offset(rows [][]float64, by float64) {
	for _, row := range rows {
		for c := range row {
			row[c] = rounded(row[c] + by)
		}
	}
}

// matrix draws rows of 64 columns from -1 to 1, as BF16 has them.
func matrix(random *rand.Rand, rows int) [][]float64 {
	m := make([][]float64, rows)
	for i := range m {
		m[i] = make([]float64, 64)
		for c := range m[i] {
			m[i][c] = rounded(2*random.Float64() - 1)
		}
	}
	return m
}

func multiply(rows [][]float64, factor float64) {
	for _, row := range rows {
		for c := range row {
			row[c] *= factor
		}
	}
}

// run computes O of a head on the simulator.
func (in *halfInputs) run(t *testing.T, folder, stage string) []float64 {
	t.Helper()
	causal := map[bool]int{true: 1}[in.causal]
	j := newDeclaredJob(t, folder, stage, fmt.Sprintf(
		"batch=1,kv_heads=1,group=1,queries=%d,keys=%d,blocks=1,causal=%d,rows_first=0,lse=0,q_max=1,k_max=1,v_max=1", len(in.q), len(in.k), causal))
	fp16 := strings.HasSuffix(stage, "_fp16")
	for name, rows := range map[string][][]float64{"q": in.q, "k": in.k, "v": in.v} {
		var data []byte
		for _, x := range slices.Concat(rows...) {
			bits := uint16(half.BFloat16FromFloat32(float32(x)))
			if fp16 {
				bits = uint16(half.Float16FromFloat64(x))
			}
			data = binary.LittleEndian.AppendUint16(data, bits)
		}
		j.arg(name).Input = data
	}
	o := j.run(t)[0]
	if fp16 {
		return half.DecodeFloat16(o)
	}
	return half.DecodeBFloat16(o)
}

// compare reports an element of O that is wrong.
func (in *halfInputs) compare(t *testing.T, got []float64) {
	t.Helper()
	for i, q := range in.q {
		seen := in.k
		if in.causal {
			seen = in.k[:max(0, i+1+len(in.k)-len(in.q))]
		}
		p, sum := make([]float64, len(seen)), 0.0
		rowMax := math.Inf(-1)
		for j, k := range seen {
			for c := range q {
				p[j] += q[c] * k[c] * in.scale
			}
			rowMax = max(rowMax, p[j])
		}
		for j := range p {
			p[j] = math.Exp(p[j] - rowMax)
			sum += p[j]
		}
		for c := range q {
			want, most := 0.0, 0.0
			for j := range p {
				want += p[j] / sum * in.v[j][c]
				most = max(most, p[j]/sum*math.Abs(in.v[j][c]))
			}
			x := got[i*64+c]
			if math.IsNaN(x) != math.IsNaN(want) || math.Abs(x-want) > in.within+most*in.share {
				t.Fatalf("row %d, column %d: got %v, want %v", i, c, x, want)
			}
		}
	}
}
