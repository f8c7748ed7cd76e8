package sdpa

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"attune/internal/half"
)

func randomFloats(random *rand.Rand, n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
	return values
}

// A product computes its tiles, at any strides, and changes nothing behind them.
func TestProduct(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 1))
		for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 64, 129} {
			for _, tiles := range []int{0, 1, 3} {
				for _, strides := range [][3]int{{n + 1, 1, 4*n + 4}, {1, 13, 4}} {
					row, step, tile := strides[0], strides[1], strides[2]
					a := randomFloats(random, 3*tile+3*row+n*step+1)
					b, c := randomFloats(random, n*vectors.lanes), randomFloats(random, (tiles*tileRows+1)*vectors.lanes)
					for _, accumulate := range []bool{false, true} {
						want := widened(c)
						for i := range tiles * tileRows * vectors.lanes {
							if !accumulate {
								want[i] = 0
							}
							for k := range n {
								x := a[i/vectors.lanes/tileRows*tile+i/vectors.lanes%tileRows*row+k*step]
								want[i] += float64(x) * float64(b[k*vectors.lanes+i%vectors.lanes])
							}
						}
						vectors.product(c, a, row, step, tile, b, n, tiles, accumulate)
						near(t, "c", c, want, 1e-4)
					}
				}
			}
		}
	})
}

// A slice that is too short panics, before the assembly could read past it.
func TestVectorsCheckBounds(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		must := func(name string, f func()) {
			t.Helper()
			defer func() {
				if recover() == nil {
					t.Errorf("a short %s does not panic", name)
				}
			}()
			f()
		}
		of := func(n int) []float32 { return make([]float32, n) }
		lanes := vectors.lanes
		must("c", func() { vectors.product(of(4*lanes-1), of(8), 2, 1, 8, of(2*lanes), 2, 1, false) })
		must("a", func() { vectors.product(of(4*lanes), of(7), 2, 1, 8, of(2*lanes), 2, 1, false) })
		must("b", func() { vectors.product(of(4*lanes), of(8), 2, 1, 8, of(2*lanes-1), 2, 1, false) })
		must("row of scores", func() { vectors.softmax(of(2*lanes-1), 2, &state{}) })
		must("matrix", func() { vectors.transpose(of(64), 8, of(63), 8, 8, 8) })
		must("transpose", func() { vectors.transpose(of(63), 8, of(64), 8, 8, 8) })
		must("target", func() { vectors.narrow(make([]byte, 15), of(8), BF16) })
		must("source", func() { vectors.widen(of(9), make([]byte, 17), FP16) })
	})
}

// 2^x is accurate for all x that softmax has, 1 at 0, and 0 where it underflows.
func TestSoftmaxExponentials(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		for x := float32(-140); x <= 0; x += 0.0137 {
			scores := make([]float32, 2*vectors.lanes)
			for lane := range vectors.lanes {
				scores[vectors.lanes+lane] = x
			}
			s := state{}
			vectors.softmax(scores, 2, &s)
			want := math.Exp2(float64(x))
			for lane := range vectors.lanes {
				got := float64(scores[vectors.lanes+lane])
				if x < -127 && got == 0 {
					continue
				}
				if scores[lane] != 1 || x > -126 && math.Abs(got-want) > 2e-7*want || x <= -126 && got > 2*want {
					t.Fatalf("exp2(%v) is %v, want %v; exp2(0) is %v", x, got, want, scores[lane])
				}
				if sum := float32(1 + got); s.rowSum[lane] != sum || s.rowMax[lane] != 0 || s.rescale[lane] != 1 {
					t.Fatalf("the state is %+v", s)
				}
			}
		}
	})
}

// tanh is accurate for scores of any size, keeps signs and NaN, and is 1 for infinity.
func TestTanh(t *testing.T) {
	for x := float32(-12); x <= 12; x += 0.00137 {
		want := math.Tanh(float64(x))
		if got := float64(tanhGo(x)); math.Abs(got-want) > 4e-7*math.Abs(want) {
			t.Fatalf("tanh(%v) is %v, want %v", x, got, want)
		}
	}
	inf := float32(math.Inf(1))
	for x, want := range map[float32]float32{0: 0, 1e-30: 1e-30, -1e-30: -1e-30, 1e30: 1, -1e30: -1, inf: 1, -inf: -1} {
		if got := tanhGo(x); got != want {
			t.Errorf("tanh(%v) is %v, want %v", x, got, want)
		}
	}
	if got := tanhGo(float32(math.NaN())); got == got {
		t.Errorf("tanh(NaN) is %v", got)
	}
}

// The online softmax of blocks is that of all scores, with rows that see nothing and NaN.
func TestSoftmaxState(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(5, 5))
		const keys = 40
		scores := randomFloats(random, keys*vectors.lanes)
		nan, none := 3, 7
		for key := range keys {
			scores[key*vectors.lanes+none] = float32(math.Inf(-1))
		}
		scores[5*vectors.lanes+nan] = float32(math.NaN())
		var s state
		for lane := range vectors.lanes {
			s.rowMax[lane] = -math.MaxFloat32
		}
		all := append([]float32(nil), scores...)
		for _, part := range [][2]int{{0, 0}, {0, 1}, {1, 4}, {4, 40}} {
			vectors.softmax(scores[part[0]*vectors.lanes:], part[1]-part[0], &s)
		}
		for lane := range vectors.lanes {
			rowMax, sum := math.Inf(-1), 0.0
			for key := range keys {
				if x := float64(all[key*vectors.lanes+lane]); x > rowMax {
					rowMax = x
				}
			}
			for key := range keys {
				sum += math.Exp2(float64(all[key*vectors.lanes+lane]) - rowMax)
			}
			switch got := float64(s.rowSum[lane]); {
			case lane == none:
				if got != 0 || s.rowMax[lane] != -math.MaxFloat32 {
					t.Errorf("a row without keys has the sum %v, the max %v", got, s.rowMax[lane])
				}
			case lane == nan:
				if got == got {
					t.Errorf("a row with NaN has the sum %v", got)
				}
			case math.Abs(got-sum) > 1e-5*sum || float64(s.rowMax[lane]) != rowMax:
				t.Errorf("row %d: sum %v, max %v; want %v, %v", lane, got, s.rowMax[lane], sum, rowMax)
			}
		}
	})
}

func TestRescale(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		var factors [maxLanes]float32
		for lane := range factors {
			factors[lane] = float32(lane)
		}
		sums := make([]float32, 3*vectors.lanes)
		for i := range sums {
			sums[i] = float32(i)
		}
		vectors.rescale(sums, &factors)
		vectors.rescale(sums[:0], &factors)
		for i, x := range sums {
			if x != float32(i*(i%vectors.lanes)) {
				t.Fatalf("element %d is %v", i, x)
			}
		}
	})
}

// All codes of all formats are widened exactly, at any length.
func TestWiden(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		for _, dtype := range []DType{E4M3, FP16, BF16, FP32} {
			var codes []byte
			for i := range 1 << 16 {
				switch dtype {
				case E4M3:
					codes = append(codes, byte(i))
				case FP32:
					codes = binary.LittleEndian.AppendUint32(codes, uint32(i)*0x10001)
				default:
					codes = binary.LittleEndian.AppendUint16(codes, uint16(i))
				}
			}
			n := len(codes) / dtype.Bytes()
			for _, length := range []int{n, n - 1, 0, 1, 7, 8, 9, 300} {
				got, want := make([]float32, length+1), make([]float32, length)
				got[length] = 42
				vectors.widen(got[:length], codes, dtype)
				widenGo(want, codes, dtype)
				for i, x := range want {
					if math.Float32bits(got[i]) != math.Float32bits(x) && !(x != x && got[i] != got[i]) {
						t.Fatalf("%s: element %d of %d is %v, want %v", dtype, i, length, got[i], x)
					}
				}
				if got[length] != 42 {
					t.Fatalf("%s: wrote behind %d elements", dtype, length)
				}
			}
		}
	})
}

// A matrix of any size is transposed, and nothing beside it changes.
func TestTranspose(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(6, 6))
		for _, size := range [][2]int{{24, 64}, {64, 24}, {24, 7}, {1, 24}, {9, 17}, {8, 8}, {0, 8}, {8, 0}} {
			rows, cols := size[0], size[1]
			from, to := randomFloats(random, rows*(cols+3)+1), randomFloats(random, cols*(rows+2)+1)
			want := append([]float32(nil), to...)
			for row := range rows {
				for col := range cols {
					want[col*(rows+2)+row] = from[row*(cols+3)+col]
				}
			}
			vectors.transpose(to, rows+2, from, cols+3, rows, cols)
			same(t, "transpose", to, want)
		}
	})
}

// Rounding is that of packages fp8 and half: ties, subnormals, overflow, NaN.
func TestNarrow(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		var values []float32
		step := 1
		if testing.Short() {
			step = 7
		}
		for code := 0; code < 1<<16; code += step { // every FP16 and BF16 value, the ties between them, and beside those
			for _, bits := range []uint32{0, 1, 0x7FFF, 0x8000, 0x8001} {
				values = append(values, math.Float32frombits(uint32(code)<<16+bits))
			}
			tie := (half.Float16(code).Float32() + half.Float16(code+1).Float32()) / 2
			values = append(values, tie, math.Nextafter32(tie, 0), math.Nextafter32(tie, 1e9))
		}
		for _, dtype := range []DType{E4M3, FP16, BF16, FP32} {
			for _, length := range []int{len(values), len(values) - 3, 0, 1, 8, 9} {
				got, want := make([]byte, (length+1)*dtype.Bytes()), make([]byte, (length+1)*dtype.Bytes())
				got[length*dtype.Bytes()], want[length*dtype.Bytes()] = 42, 42
				vectors.narrow(got, values[:length], dtype)
				narrowGo(want, values[:length], dtype)
				a, b := make([]float32, length+1), make([]float32, length+1)
				widenGo(a, got, dtype)
				widenGo(b, want, dtype)
				same(t, dtype.String(), a, b) // the payload of a NaN may differ
			}
		}
	})
}
