package form

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/spec"
	"attune/kernels"
)

var h200 = device.Facts{Name: "NVIDIA H200", Arch: "sm_90", Multiprocessors: 132, L2Bytes: 60 << 20}

func newTable(t *testing.T) *Table {
	t.Helper()
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	table, err := NewTable(kernel.Selection("stage7"), kernels.SDPA(), kernels.Forms(), kernels.Portable(), h200)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// typed is a problem on contiguous tensors of these formats.
func typed(p Problem, q, kv, o array.DType) Problem {
	p.Q.Type, p.K.Type, p.V.Type, p.O.Type = q, kv, kv, o
	p.WindowLeft, p.WindowRight = -1, -1
	return p
}

// What no form computes is refused with its reason. The C library refuses the same: package clib
// compares them.
func TestUnsupported(t *testing.T) {
	table := newTable(t)
	long := Problem{Batch: 2, Heads: 4, KVHeads: 4, Queries: 300, Keys: 300, HeadDim: 64}
	with := func(change func(p *Problem)) Problem {
		p := long
		change(&p)
		return p
	}
	for want, p := range map[string]Problem{
		"the head dim is 96; the kernels have 64 128 256, and those in 16 bits": typed(with(func(p *Problem) { p.HeadDim = 96 }), array.E4M3, array.E4M3, array.F16),
		"the head dim is 80; the kernels have 64 128 256, and those in 16 bits": typed(with(func(p *Problem) { p.HeadDim, p.Precision = 80, FP8 }), array.F16, array.F16, array.F16),
		"in 16 bits multiples of 8 up to 256":                                   typed(with(func(p *Problem) { p.HeadDim = 264 }), array.F16, array.F16, array.F16),
		"the head dim is 68; the kernels":                                       typed(with(func(p *Problem) { p.HeadDim = 68 }), array.F16, array.F16, array.F16),
		"the head dim is 72; no form in 16 bits has o of another type":          typed(with(func(p *Problem) { p.HeadDim = 72 }), array.F16, array.F16, array.BF16),
		"the head dim is 64, and that of v 128; the kernels in FP8 have one":    typed(with(func(p *Problem) { p.VHeadDim = 128 }), array.E4M3, array.E4M3, array.F16),
		"paged keys of many queries, and keys beside packed queries that are not packed, have the type of o or are E4M3": typed(with(func(p *Problem) {
			p.PageTable, p.PageSize, p.Pages, p.MaxPages = 1, 64, 9, 5
		}), array.F16, array.F16, array.BF16),
		"k and v are bf16 and o f16":             typed(with(func(p *Problem) { p.CuQueries, p.TotalQueries = 1, 600 }), array.BF16, array.BF16, array.F16),
		"with a softcap all are F16 or all BF16": typed(with(func(p *Problem) { p.Softcap = 30 }), array.BF16, array.E4M3, array.BF16),
		"with ALiBi slopes all are F16":          typed(with(func(p *Problem) { p.AlibiSlopes = 1 }), array.E4M3, array.E4M3, array.F16),
		"with a tree mask all are F16": typed(with(func(p *Problem) {
			p.TreeMask, p.Queries, p.Precision = 1, 9, FP8
		}), array.BF16, array.BF16, array.BF16),
		"the quantiser counts at most 8190 heads": typed(with(func(p *Problem) {
			p.Batch, p.Heads, p.KVHeads, p.Sinks = 3000, 1, 1, 1
		}), array.BF16, array.BF16, array.BF16),
		"a grid of grouped heads holds at most 65535": typed(with(func(p *Problem) {
			p.Batch, p.Heads, p.KVHeads, p.Queries, p.Keys = 1, 140000, 70000, 20, 1
		}), array.E4M3, array.E4M3, array.F16),
		"more than 2^31 elements": typed(with(func(p *Problem) { p.Heads, p.KVHeads, p.Keys = 64, 64, 1<<24 }), array.E4M3, array.E4M3, array.F16),
		"no form in 16 bits has o of another type": typed(with(func(p *Problem) {
			p.Precision, p.KeyLengths = Bits16, 1
		}), array.BF16, array.BF16, array.F16),
		"that are not packed, are E4M3 in FP8": typed(with(func(p *Problem) {
			p.Precision, p.Queries, p.PageTable, p.PageSize, p.Pages, p.MaxPages = FP8, 2, 1, 64, 9, 5
		}), array.F16, array.F16, array.F16),
	} {
		if _, err := table.Plan(p); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

// Tensors in 16 bits take prefill16 where no other form computes them: with options of the scores, and K and V
// of many queries that the quantiser cannot read. Other options are quantised.
func TestOptionsIn16Bits(t *testing.T) {
	table := newTable(t)
	for what, change := range map[string]func(p *Problem){
		"a softcap":           func(p *Problem) { p.Softcap = 30 },
		"a softcap, few rows": func(p *Problem) { p.Softcap, p.Queries = 30, 1 },
		"slopes":              func(p *Problem) { p.AlibiSlopes = 1 },
		"a tree of few rows":  func(p *Problem) { p.TreeMask, p.Queries = 1, 7 },
		"pages":               func(p *Problem) { p.PageTable, p.PageSize, p.Pages, p.MaxPages = 1, 48, 9, 7 },
		"packed queries only": func(p *Problem) { p.CuQueries, p.TotalQueries = 1, 600 },
		"sinks: quantised":    func(p *Problem) { p.Sinks = 1 },
		"a window: quantised": func(p *Problem) { p.WindowLeft = 9 },
		"lengths: quantised":  func(p *Problem) { p.KeyLengths = 1 },
		"sinks in 16 bits":    func(p *Problem) { p.Precision, p.Sinks = Bits16, 1 },
		"a window in 16 bits": func(p *Problem) { p.Precision, p.WindowRight = Bits16, 9 },
		"lengths in 16 bits":  func(p *Problem) { p.Precision, p.KeyLengths = Bits16, 1 },
		"packed: quantised":   func(p *Problem) { p.CuQueries, p.TotalQueries, p.CuKeys, p.TotalKeys = 1, 600, 1, 600 },
	} {
		for _, dtype := range []array.DType{array.F16, array.BF16} {
			for _, dim := range []int{64, 128, 256} {
				p := typed(Problem{Batch: 2, Heads: 4, KVHeads: 2, Queries: 300, Keys: 300, HeadDim: dim}, dtype, dtype, dtype)
				change(&p)
				c, err := table.Plan(p)
				if err != nil {
					t.Errorf("%s, %s, head dim %d: %v", what, dtype, dim, err)
					continue
				}
				want, f := Prefill16, c.Form
				if strings.HasSuffix(what, "quantised") {
					want = Prefill
				}
				if f.Kernel != want || f.HeadDim != dim || want == Prefill16 && (f.BF16 != (dtype == array.BF16) || c.Quantiser != nil || c.WorkspaceBytes != 0) {
					t.Errorf("%s, %s, head dim %d: the form is %s, quantiser %v, workspace %d", what, dtype, dim, f.Variant(), c.Quantiser, c.WorkspaceBytes)
				}
			}
		}
	}
}

// Other head dims in 16 bits take prefill16, in the form with the fewest columns that has them. Its maps
// have the extents of the tensors.
func TestOtherHeadDims(t *testing.T) {
	table := newTable(t)
	for _, test := range []struct{ dim, vDim, queries, columns int }{
		{8, 0, 300, 64},
		{72, 0, 300, 128},
		{72, 0, 1, 128},
		{96, 96, 300, 128},
		{136, 0, 300, 256},
		{248, 0, 300, 256},
		{192, 128, 300, 256},
		{64, 128, 300, 128},
		{128, 64, 1, 128},
	} {
		for _, dtype := range []array.DType{array.F16, array.BF16} {
			for _, precision := range []Precision{Auto, Bits16} {
				p := typed(Problem{Batch: 2, Heads: 4, KVHeads: 2, Queries: test.queries, Keys: 300, HeadDim: test.dim, VHeadDim: test.vDim, Precision: precision}, dtype, dtype, dtype)
				p.Q.Address, p.K.Address, p.V.Address, p.O.Address = 1<<40, 2<<40, 3<<40, 4<<40
				c, err := table.Plan(p)
				if err != nil {
					t.Errorf("%+v, %s: %v", test, dtype, err)
					continue
				}
				if f := c.Form; f.Kernel != Prefill16 || f.HeadDim != test.columns || f.BF16 != (dtype == array.BF16) || c.Quantiser != nil || c.WorkspaceBytes != 0 {
					t.Errorf("%+v, %s: %+v", test, dtype, c)
				}
				vDim := cmp.Or(test.vDim, test.dim)
				want := map[string]int{"q_map": test.dim, "k_map": test.dim, "v_map": vDim, "o_columns": vDim}
				for _, a := range c.Launches(0, device.Facts{Multiprocessors: 132})[0].Job.Args {
					if n, known := want[a.Name]; known && (a.TensorMap != nil && a.TensorMap.Dims[0] != n || a.TensorMap == nil && int(a.Scalar[0])|int(a.Scalar[1])<<8 != n) {
						t.Errorf("%+v, %s: %s is %+v", test, dtype, a.Name, a)
					}
				}
			}
		}
	}
}

// Few query rows over K and V of any type take one launch of a decode form of that type, in pages of any
// size; many over pages take prefill or prefill16.
func TestDecodeOfCaches(t *testing.T) {
	table := newTable(t)
	for _, cache := range []array.DType{array.E4M3, array.F16, array.BF16} {
		for _, dim := range []int{64, 128, 256} {
			q := cache
			if cache == array.E4M3 {
				q = array.BF16
			}
			p := typed(Problem{Batch: 3, Heads: 32, KVHeads: 8, Queries: 2, Keys: 5000, HeadDim: dim}, q, cache, q)
			p.Q.Address, p.K.Address, p.V.Address, p.O.Address = 1<<40, 2<<40, 3<<40, 4<<40
			p.Q.Strides = [3]int{2 * 32 * dim, dim, 32 * dim} // rows before heads
			p.PageTable, p.PageSize, p.Pages, p.MaxPages = 5<<40, 48, 400, 105
			c, err := table.Plan(p)
			if err != nil {
				t.Errorf("%s, head dim %d: %v", cache, dim, err)
				continue
			}
			if c.Form.Kernel != Decode || c.Form.Cache != cache || c.Form.HeadDim != dim || c.Quantiser != nil {
				t.Errorf("%s, head dim %d: %+v, quantiser %v", cache, dim, c.Form, c.Quantiser)
			}
			for _, a := range c.Launches(1<<50, device.Facts{Multiprocessors: 132})[0].Job.Args {
				if a.TensorMap == nil {
					continue
				}
				if box := a.TensorMap.Map.Box; box[0]*cache.Bytes() != min(dim*cache.Bytes(), 128) || box[1] != 16 {
					t.Errorf("%s, head dim %d: the box of %s is %v", cache, dim, a.Name, box)
				}
			}
			p.Queries, p.Q.Strides = 17, [3]int{}
			many := Prefill16
			if cache == array.E4M3 {
				many = Prefill
			}
			if c, err := table.Plan(p); err != nil || c.Form.Kernel != many {
				t.Errorf("%s, head dim %d, 17 queries: %+v, %v", cache, dim, c, err)
			}
		}
	}
}

// Every form has a folder whose image it is, and a value for each of its arguments.
func TestArguments(t *testing.T) {
	table := newTable(t)
	p := typed(Problem{Batch: 1, Heads: 2, KVHeads: 1, Queries: 4, Keys: 4, HeadDim: 64}, array.BF16, array.E4M3, array.BF16)
	p.simplify()
	for _, f := range table.declared {
		kernel, err := spec.Load(f.Folder)
		if err != nil || kernel.Name != string(f.Kernel) {
			t.Errorf("the folder of %s has the kernel %v, error %v", f.Variant(), kernel, err)
		}
		if f.Kernel == Cast || f.Kernel == Quantize || f.Kernel == Append {
			continue
		}
		v := p.values(f)
		for _, name := range []string{"even_blocks", "parts", "arrived"} { // of decode, from the call
			v.int32s(map[string]int{name: 0})
		}
		if l := f.launch([3]int{1, 1, 1}, v, p.tensorMap); len(l.Job.Args) != len(f.Arguments) || len(l.Addresses) != len(f.Arguments) {
			t.Errorf("%s has %d arguments, and the launch %d", f.Variant(), len(f.Arguments), len(l.Job.Args))
		}
	}
	dense, err := table.Plan(typed(Problem{Batch: 1, Heads: 1, KVHeads: 1, Queries: 100, Keys: 100, HeadDim: 64}, array.E4M3, array.E4M3, array.F16))
	if err != nil {
		t.Fatal(err)
	}
	if kernel, err := spec.Load(dense.Form.Folder); err != nil || kernel.Name != "sdpa" {
		t.Errorf("the folder of a dense form has the kernel %v, error %v", kernel, err)
	}
	defer func() {
		if problem, _ := recover().(string); !strings.Contains(problem, "for which there is no value") {
			t.Errorf("a missing value is %q", problem)
		}
	}()
	(&Form{Arguments: []Argument{{Name: "other"}}}).launch([3]int{1, 1, 1}, values{}, nil)
}

// A shape is chosen once, until many others are known.
func TestChosen(t *testing.T) {
	table := newTable(t)
	p := typed(Problem{Batch: 1, Heads: 1, KVHeads: 1, Queries: 100, Keys: 100, HeadDim: 64}, array.E4M3, array.E4M3, array.F16)
	for i := range maxChosen + 3 {
		p.Keys = 100 + i
		for range 2 {
			if _, err := table.Plan(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(table.chosen) != 3 {
		t.Errorf("%d shapes are known", len(table.chosen))
	}
}

// Units of as many tiles have blocks of their own, or blocks whole units, unless that makes the longest
// block much longer than the mean.
func TestEvenBlocks(t *testing.T) {
	for _, c := range []struct {
		what                        string
		units, tiles, keys, headDim int
		want                        int
	}{
		{"18 blocks for each unit", 7, 1000, 64, 128, 126},
		{"more blocks than tiles", 1, 3, 64, 128, 132},
		{"2 units for each block", 195, 13, 64, 128, 98},
		{"2 units for each block of head dim 64, whose bytes take longer", 195, 13, 128, 64, 0},
		{"2 units for each block, which would take twice as long", 133, 100, 64, 128, 0},
		{"one more unit than half of the blocks", 67, 200, 64, 128, 0},
	} {
		if got := evenBlocks(c.units, c.tiles, 2*c.keys*c.headDim, c.headDim, 132); got != c.want {
			t.Errorf("%s: %d blocks, want %d", c.what, got, c.want)
		}
	}
	if got := evenBlocks(3, 5, 2*64*128, 128, 1); got != 1 {
		t.Errorf("a single multiprocessor: %d blocks", got)
	}
}
