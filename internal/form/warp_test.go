package form

import (
	"errors"
	"math"
	"strings"
	"testing"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/rotate"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

var l4 = device.Facts{Name: "NVIDIA L4", Arch: "sm_89", Multiprocessors: 58, L2Bytes: 48 << 20}

// warpTable has forms with every trait that the choice sees.
func warpTable(facts device.Facts) *Table {
	add := func(name string, change func(f *Form)) *Form {
		f := &Form{
			Kernel: Warp, Target: toolchain.Target{Variant: name, Arch: PortableArch}, HeadDim: 128, QueryRows: 128, SharedBytes: 98304,
			Threads: 128, BF16: true, BlocksPerMultiprocessor: 2, StepKeys: 128,
		}
		change(f)
		return f
	}
	return &Table{arch: PortableArch, facts: facts, declared: []*Form{
		add("dense", func(*Form) {}),
		add("m64", func(f *Form) { f.QueryRows, f.SharedBytes = 64, 81920 }),
		add("split", func(f *Form) { f.Splits = true }),
		add("options", func(f *Form) { f.HasOptions, f.Splits = true, true }),
		add("options96", func(f *Form) { f.HasOptions, f.HeadDim = true, 96 }),
		add("decode", func(f *Form) {
			f.HasOptions, f.Splits, f.PacksHeads, f.QueryRows, f.SharedBytes = true, true, true, 16, 40960
		}),
		add("cache", func(f *Form) {
			f.HasOptions, f.Splits, f.PacksHeads, f.QueryRows, f.SharedBytes, f.Cache = true, true, true, 16, 40960, array.E4M3
		}),
		add("large", func(f *Form) { f.HeadDim, f.SharedBytes = 256, 160<<10 }),
	}}
}

func TestWarp(t *testing.T) {
	a100 := device.Facts{Name: "NVIDIA A100", Arch: "sm_80", Multiprocessors: 108, L2Bytes: 40 << 20}
	half := func(p Problem) Problem { return typed(p, array.BF16, array.BF16, array.BF16) }
	long := Problem{Batch: 4, Heads: 32, KVHeads: 8, Queries: 4096, Keys: 4096, HeadDim: 128}
	with := func(p Problem, change func(p *Problem)) Problem {
		change(&p)
		return p
	}
	decode := with(long, func(p *Problem) { p.Queries = 1 })
	for _, test := range []struct {
		name   string
		facts  device.Facts
		p      Problem
		form   string
		splits int
		bytes  int
	}{
		{"many tiles", l4, half(long), "dense", 1, 0},
		{"window", l4, with(half(long), func(p *Problem) { p.WindowLeft = 9 }), "options", 1, 0},
		{"head dim 72", l4, with(half(long), func(p *Problem) { p.HeadDim = 72 }), "options96", 1, 0},
		{"head dim of V", l4, with(half(long), func(p *Problem) { p.VHeadDim = 64 }), "options", 1, 0},
		// 8 tiles on 58 multiprocessors, each of which holds one block: 7 parts.
		{"few tiles", l4, half(Problem{Batch: 1, Heads: 4, KVHeads: 4, Queries: 256, Keys: 9000, HeadDim: 128}), "split", 7, 65536 + 8*7*128*130*4},
		// 32 K/V heads; two blocks on a multiprocessor.
		{"decode", l4, half(decode), "decode", 3, 65536 + 32*3*16*130*4},
		{"decode", a100, half(decode), "decode", 6, 65536 + 32*6*16*130*4},
		{"a cache", l4, typed(decode, array.BF16, array.E4M3, array.BF16), "cache", 3, 65536 + 32*3*16*130*4},
		{"few keys", l4, half(Problem{Batch: 1, Heads: 4, KVHeads: 4, Queries: 256, Keys: 300, HeadDim: 128}), "m64", 1, 0},
		{"256 KB", a100, half(with(long, func(p *Problem) { p.HeadDim = 256 })), "large", 1, 0},
	} {
		c, err := warpTable(test.facts).Plan(test.p)
		if err != nil {
			t.Errorf("%s on %s: %v", test.name, test.facts.Name, err)
			continue
		}
		if c.Form.Variant() != test.form || c.problem.splits != test.splits || c.WorkspaceBytes != test.bytes {
			t.Errorf("%s on %s: %s in %d parts with %d bytes, want %s in %d with %d", test.name, test.facts.Name,
				c.Form.Variant(), c.problem.splits, c.WorkspaceBytes, test.form, test.splits, test.bytes)
		}
	}
	for want, p := range map[string]Problem{
		"q is bf16 and o f16; on sm_89 both are F16 or both BF16": typed(long, array.BF16, array.BF16, array.F16),
		"k is f16, the head dim 128":                              typed(long, array.F16, array.F16, array.F16),
		"k is bf16, the head dim 256 and that of":                 half(with(long, func(p *Problem) { p.HeadDim = 256 })), // 160 KB
		"k is bf16, the head dim 68 and that of v":                half(with(long, func(p *Problem) { p.HeadDim = 68 })),
		"more than 2^31 tiles":                                    half(with(long, func(p *Problem) { p.Batch, p.Queries = 1<<24, 1<<24 })),
	} {
		if _, err := warpTable(l4).Plan(p); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", p, err, want)
		}
	}
	dense := warpTable(l4)
	dense.declared = dense.declared[:1]
	if _, err := dense.Plan(with(half(long), func(p *Problem) { p.WindowLeft = 9 })); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "no form for sm_89 has this option") {
		t.Errorf("a window without a form: %v", err)
	}
}

// Sections are equally large, and their K and V fit the L2 cache.
func TestWarpSections(t *testing.T) {
	for _, test := range []struct {
		batch, kvHeads, group, keys int
		causal, packs               bool
		want                        int
	}{
		{3, 16, 1, 1792, false, false, 1},
		{3, 16, 1, 1792, true, false, 48},    // 42 MB of 45
		{1, 96, 1, 2325, true, false, 32},    // 109 MB
		{6, 8, 4, 3351, true, false, 4 * 24}, // 78 MB
		{58, 16, 1, 320, true, false, 1},     // 145 MB of short heads
		{58, 16, 1, 321, true, false, 232},
		{1, 2, 8, 1 << 24, true, true, 1}, // one head is larger than the cache
		{1, 2, 8, 1 << 24, true, false, 8},
	} {
		p := typed(Problem{Batch: test.batch, Heads: test.kvHeads * test.group, KVHeads: test.kvHeads, Queries: test.keys, Keys: test.keys, HeadDim: 128, VHeadDim: 128, Causal: test.causal}, array.BF16, array.BF16, array.BF16)
		if got := (&Form{PacksHeads: test.packs}).section(&p, h200); got != test.want {
			t.Errorf("%+v: sections of %d heads, want %d", test, got, test.want)
		}
	}
}

// What the choice was fitted to: the fastest stage and splits of some problems on an H200 that runs code
// for sm_80, and what one block on a multiprocessor changes.
func TestWarpTimes(t *testing.T) {
	asAmpere, a100 := h200, device.Facts{Name: "NVIDIA A100", Arch: "sm_80", Multiprocessors: 108, L2Bytes: 40 << 20}
	asAmpere.Arch = "sm_80"
	d64 := []*Form{
		{HeadDim: 64, QueryRows: 128, SharedBytes: 65536, BlocksPerMultiprocessor: 2, StepKeys: 64},
		{HeadDim: 64, QueryRows: 64, SharedBytes: 40960, BlocksPerMultiprocessor: 3, StepKeys: 64, Splits: true},
	}
	d128 := []*Form{
		{HeadDim: 128, QueryRows: 128, SharedBytes: 98304, BlocksPerMultiprocessor: 2, StepKeys: 64},
		{HeadDim: 128, QueryRows: 64, SharedBytes: 81920, BlocksPerMultiprocessor: 2, StepKeys: 64, Splits: true},
	}
	for _, test := range []struct {
		facts        device.Facts
		forms        []*Form
		batch, heads int
		length       int
		causal       bool
		rows, splits int
	}{
		{asAmpere, d64, 2, 2, 4992, true, 64, 2},
		{asAmpere, d64, 10, 1, 2112, true, 64, 2},
		{asAmpere, d128, 2, 4, 1600, true, 64, 2},
		{asAmpere, d64, 2, 8, 444, false, 64, 1},
		{asAmpere, d128, 4, 12, 393, true, 64, 1},
		{asAmpere, d128, 2, 1, 874, false, 64, 4},
		{asAmpere, d128, 1, 1, 8576, true, 64, 3},
		{asAmpere, d128, 3, 16, 1792, true, 128, 1},
		{asAmpere, d128, 8, 16, 4096, false, 128, 1},
		{a100, d128, 8, 16, 4096, false, 64, 1}, // two blocks of 64 rows, one of 128
	} {
		p := typed(Problem{Batch: test.batch, Heads: test.heads, KVHeads: test.heads, Queries: test.length, Keys: test.length, Causal: test.causal}, array.BF16, array.BF16, array.BF16)
		least, rows, splits := math.MaxInt, 0, 0
		for _, f := range test.forms {
			if n, cost := f.splits(&p, test.facts); cost < least {
				least, rows, splits = cost, f.QueryRows, n
			}
		}
		if rows != test.rows || splits != test.splits {
			t.Errorf("%+v: %d rows in %d parts", test, rows, splits)
		}
	}
}

// The parts of a tile and the counters of its blocks are in the workspace.
func TestWarpLaunch(t *testing.T) {
	table := warpTable(l4)
	names := []string{"splits", "section", "parts", "arrived", "total_keys", "columns"}
	for _, f := range table.declared {
		for _, name := range names {
			f.Arguments = append(f.Arguments, Argument{Name: name})
		}
		f.Image = &toolchain.Image{PTX: []byte(".version 9.0\n.target sm_80\n"), Cubin: []byte("ELF")}
	}
	p := typed(Problem{
		Batch: 2, Heads: 8, KVHeads: 2, Queries: 1, Keys: 4096, HeadDim: 128, Causal: true, PageTable: 1, Pages: 99, PageSize: 16, MaxPages: 256, KeyLengths: 1,
	}, array.BF16, array.BF16, array.BF16)
	c, err := table.Plan(p)
	if err != nil {
		t.Fatal(err)
	}
	l := c.Launches(0x1000, l4)[0]
	numbers := func(i int) int { return int(l.Job.Args[i].Scalar[0]) | int(l.Job.Args[i].Scalar[1])<<8 }
	if c.Form.Variant() != "decode" || l.Job.Grid != [3]int{4 * c.problem.splits, 1, 1} || numbers(0) != c.problem.splits || c.problem.splits != 16 {
		t.Errorf("%s in %d parts, grid %v", c.Form.Variant(), c.problem.splits, l.Job.Grid)
	}
	// Of K and V of a head 2 MB: 12 fill half of the L2 cache, and there are 4.
	if numbers(1) != 4 || numbers(4) != 99*16 || numbers(5) != 128 {
		t.Errorf("section %d, keys %d, columns %d", numbers(1), numbers(4), numbers(5))
	}
	if l.Addresses[2] != 0x1000+65536 || l.Addresses[3] != 0x1000 || l.Job.Args[2].BufferBytes() != c.WorkspaceBytes-65536 {
		t.Errorf("addresses %x", l.Addresses)
	}
	if kind, code := c.Form.Code(); kind != PTX || string(code) != ".version 7.8\n.target sm_80\n" {
		t.Errorf("%s %q", kind, code)
	}
	if got := (&Form{Kernel: Decode, Image: c.Form.Image}).PTX(); string(got) != ".version 9.0\n.target sm_80\n" {
		t.Errorf("the PTX of another form is %q", got)
	}
}

// The compiler takes the PTX of portable forms as of the version that they state. One form of eight is
// assembled in each turn.
func TestPortablePTX(t *testing.T) {
	if testing.Short() {
		t.Skip("assembles every portable form")
	}
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := toolchain.Installed(t.Context(), cacheDir)
	if err != nil {
		t.Skipf("no compiler: %v", err)
	}
	for _, folder := range kernels.Portable() {
		forms, err := Declared(folder, PortableArch)
		if err != nil || len(forms) == 0 {
			t.Fatalf("%d forms, %v", len(forms), err)
		}
		for i, f := range forms {
			if due, err := rotate.Due(i, 8); err != nil {
				t.Fatal(err)
			} else if !due {
				continue
			}
			image, _, err := toolchain.NewBuilder(folder, nil, "").Build(t.Context(), f.Target)
			if err != nil {
				t.Fatal(err)
			}
			f.Image = image
			arch := []string{"sm_80", "sm_89", "sm_120"}[i%3]
			if _, err := toolchain.Assemble(t.Context(), compiler, f.PTX(), arch); err != nil {
				t.Errorf("%s for %s: %v", f.Variant(), arch, err)
			}
		}
	}
}

// A device gets the kernels for Hopper, the portable ones, or none.
func TestTableOfDevice(t *testing.T) {
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	for device, want := range map[device.Facts]string{h200: "sm_90a", l4: "sm_80", {Name: "T4", Arch: "sm_75"}: ""} {
		table, err := NewTable(kernel.Selection("stage7"), kernels.SDPA(), kernels.Forms(), kernels.Portable(), device)
		if want == "" {
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "T4 is sm_75 and the kernels are for sm_80 and later") {
				t.Errorf("%s: %v", device.Name, err)
			}
			continue
		}
		if err != nil || table.arch != want {
			t.Errorf("%s: %v", device.Name, err)
		}
	}
}
