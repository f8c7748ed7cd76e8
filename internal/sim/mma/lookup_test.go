package mma

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLookup(t *testing.T) {
	product := func(op Op, m, n, k int, d, a, b, c Type, more ...func(*Instruction)) Instruction {
		in := Instruction{Op: op, Shape: Shape{m, n, k}, A: a, B: b, C: c, D: d, LayoutB: Col}
		for _, set := range more {
			set(&in)
		}
		return in
	}
	saturate := func(in *Instruction) { in.Saturate = true }
	for text, want := range map[string]Instruction{
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": product(MMASync, 16, 8, 16, F32, F16, F16, F32),
		// Modifiers in any order; types and layouts keep their relative order.
		"mma.f16.aligned.e4m3.row.e5m2.col.sync.f16.m16n8k32":       product(MMASync, 16, 8, 32, F16, E4M3, E5M2, F16),
		"mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32": product(MMASync, 16, 8, 32, S32, U8, S8, S32, saturate),
		"mma.xor.popc.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32": product(MMASync, 8, 8, 128, S32, B1, B1, S32,
			func(in *Instruction) { in.BitOp = Xor }),
		"wmma.mma.sync.aligned.col.row.m32n8k16.f16.f32": product(WMMA, 32, 8, 16, F16, F16, F16, F32,
			func(in *Instruction) { in.LayoutA, in.LayoutB = Col, Row }),
		"wmma.mma.sync.aligned.row.col.m8n8k4.rz.f64.f64.f64.f64": product(WMMA, 8, 8, 4, F64, F64, F64, F64,
			func(in *Instruction) { in.Rounding = TowardZero }),
		"wgmma.mma_async.sync.aligned.m64n256k32.f32.e5m2.e4m3":      product(WGMMA, 64, 256, 32, F32, E5M2, E4M3, F32),
		"wgmma.mma_async.sync.aligned.m64n24k32.s32.u8.s8.satfinite": product(WGMMA, 64, 24, 32, S32, U8, S8, S32, saturate),
		"wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc": product(WGMMA, 64, 16, 256, S32, B1, B1, S32,
			func(in *Instruction) { in.BitOp = And }),
		"wmma.load.b.sync.aligned.col.m8n32k16.shared::cta.bf16": {
			Op: WMMALoad, Shape: Shape{8, 32, 16}, Matrix: B, Layout: Col, Type: BF16, Space: "shared",
		},
		"wmma.load.c.sync.aligned.row.m16n16k16.s32": {Op: WMMALoad, Shape: Shape{16, 16, 16}, Matrix: C, Type: S32},
		"wmma.store.d.sync.aligned.col.m8n8k32.global.s32": {
			Op: WMMAStore, Shape: Shape{8, 8, 32}, Matrix: D, Layout: Col, Type: S32, Space: "global",
		},
		"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16": {
			Op: LoadMatrix, Shape: Shape{M: 8, N: 8}, Count: 4, Transposed: true, Space: "shared",
		},
		"stmatrix.sync.aligned.m8n8.x1.shared::cta.b16": {Op: StoreMatrix, Shape: Shape{M: 8, N: 8}, Count: 1, Space: "shared"},
		"movmatrix.sync.aligned.m8n8.trans.b16":         {Op: MoveMatrix, Shape: Shape{M: 8, N: 8}, Count: 1, Transposed: true},
	} {
		want.Text = text
		if diff := cmp.Diff(want, *mustLookup(t, text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestLookupErrors(t *testing.T) {
	for text, want := range map[string]string{
		"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32":                   "sparse",
		"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32": "sparse",
		"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16":                   "sparse",
		"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32":       "block scaling",
		"mma.sync.aligned.m16n8k64.row.col.block_scale.f32.e2m1.e2m1.f32.ue8m0":  "block scaling",
		"mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32":                        "sm_70",
		"mma.sync.m16n8k16.row.col.f32.f16.f16.f32":                              ".aligned",
		"mma.aligned.m16n8k16.row.col.f32.f16.f16.f32":                           ".sync",
		"mma.sync.aligned.row.col.f32.f16.f16.f32":                               "shape",
		"mma.sync.aligned.m16n8k16.m16n8k8.row.col.f32.f16.f16.f32":              "shape",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16":                          "types",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16":                      "no such shape",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32":                     "no such shape",
		"mma.sync.aligned.m16n8k64.row.col.f32.f16.f16.f32":                      "no such shape",
		"mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32":                      ".row.col",
		"mma.sync.aligned.m16n8k16.row.f32.f16.f16.f32":                          ".row and .col",
		"mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32":            ".satfinite",
		"mma.sync.aligned.m16n8k16.row.col.rz.f64.f64.f64.f64":                   ".rz",
		"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32":                       ".popc",
		"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and":                   ".popc",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32.wide":                 ".wide",
		"wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.xor.popc":              ".popc",
		"wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8":                       "no such shape",
		"wgmma.mma_async.sync.aligned.m64n264k16.f32.f16.f16":                    "no such shape",
		"wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16":                    "no such shape",
		"wgmma.mma_async.sync.aligned.m64n8k16.row.col.f32.f16.f16":              ".row and .col",
		"wgmma.fence.sync.aligned":                                               "not a supported matrix instruction",
		"wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32":                  "no such shape",
		"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16.f16.f32":                "types",
		"wmma.mma.sync.aligned.col.col.m8n8k32.s32.s4.s4.s32":                    ".row.col",
		"wmma.load.d.sync.aligned.row.m16n16k16.f32":                             "want the matrix",
		"wmma.load.a.sync.aligned.row.m16n16k16.f32":                             "no such shape",
		"wmma.load.a.sync.aligned.col.m8n8k32.s4":                                ".row for a",
		"wmma.load.a.sync.aligned.m16n16k16.f16":                                 ".row and .col",
		"wmma.load.a.sync.aligned.row.f16":                                       "shape",
		"wmma.load.a.sync.aligned.row.m16n16k16":                                 "one type",
		"wmma.load.a.sync.aligned.row.m16n16k16.local.f16":                       ".local",
		"ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8":                        ".m8n8",
		"ldmatrix.sync.aligned.m8n8.shared.b16":                                  ".x1",
		"ldmatrix.sync.aligned.x1.shared.b16":                                    "shape",
		"movmatrix.sync.aligned.m8n8.b16":                                        ".trans",
		"add.f32":                                                                "not a supported matrix instruction",
	} {
		words := strings.Split(text, ".")
		_, err := Lookup(words[0], words[1:])
		if err == nil {
			t.Errorf("%s: accepted", text)
		} else if !strings.HasPrefix(err.Error(), text+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want one with the instruction and %q", err, want)
		}
	}
}

func FuzzLookup(f *testing.F) {
	for _, in := range allProducts(f) {
		f.Add(in.Text)
	}
	for _, text := range []string{
		"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", "wmma.store.d.sync.aligned.row.m8n8k4.f64",
		"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
		"movmatrix.sync.aligned.m8n8.trans.b16", "mma.m0n0k0", "mma.m99999999999999999999n8k8", "wgmma..mma_async", "mma.m+1n8k8", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words := strings.Split(text, ".")
		in, err := Lookup(words[0], words[1:])
		if err != nil {
			return
		}
		if in.Text != text {
			t.Errorf("text %q, want %q", in.Text, text)
		}
		// Every accepted instruction has fragments and, if it is a product, can be computed.
		for m := A; m <= D; m++ {
			if f := in.Fragment(m, 1); f != nil && f.Registers < 1 {
				t.Errorf("%s: %s has no registers", text, m)
			}
		}
		if in.Op > WGMMA {
			return
		}
		p, err := in.Product(Hopper, Exact)
		if err != nil {
			t.Fatal(err)
		}
		zeros := make([]uint32, 2*64*256)
		p.Multiply(new(Scratch), make([]uint32, len(zeros)), zeros, zeros, nil)
	})
}

func TestChipOf(t *testing.T) {
	for arch, want := range map[string]Chip{
		"sm_80": Ampere, "sm_86": Ampere, "sm_87": Ampere, "sm_89": Ada, "sm_90": Hopper, "sm_90a": Hopper, "compute_90a": Hopper,
		"sm_100": Blackwell, "sm_100a": Blackwell, "sm_103f": Blackwell, "sm_120": Workstation, "sm_121a": Workstation,
	} {
		if got, err := ChipOf(arch); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", arch, got, err, want)
		}
	}
	for _, arch := range []string{"", "90", "sm_", "sm_x", "sm_75", "gfx90a"} {
		if got, err := ChipOf(arch); err == nil {
			t.Errorf("%q is %s, want an error", arch, got)
		}
	}
}
