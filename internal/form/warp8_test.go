package form

import (
	"errors"
	"strings"
	"testing"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/toolchain"
)

// warp8Table has the forms of warp8 for head dim 128, and the quantisers.
func warp8Table(facts device.Facts) *Table {
	t := &Table{arch: PortableArch, facts: facts}
	add := func(name, arch string, change func(f *Form)) {
		f := &Form{
			Kernel: Warp8, Target: toolchain.Target{Variant: name, Arch: arch}, HeadDim: 128, QueryRows: 128, SharedBytes: 65568,
			Threads: 128, BF16: true, BlocksPerMultiprocessor: 2, StepKeys: 64,
		}
		change(f)
		t.declared = append(t.declared, f)
	}
	add("i8f16", PortableArch, func(*Form) {})
	add("i8f16_fp16", PortableArch, func(f *Form) { f.BF16 = false })
	add("i8f8", e4m3Arch, func(f *Form) { f.E4M3V = true })
	add("f8", e4m3Arch, func(f *Form) { f.E4M3V, f.Cache = true, array.E4M3 })
	add("f8_fp16", e4m3Arch, func(f *Form) { f.E4M3V, f.Cache, f.BF16 = true, array.E4M3, false })
	for name, v := range map[string]bool{"quantize8": false, "quantize8_v": true} {
		add(name, PortableArch, func(f *Form) {
			*f = Form{Kernel: Quantize8, Target: f.Target, Threads: 256, MaxBlocks: 528, BlocksPerMultiprocessor: 4, E4M3V: v}
		})
	}
	return t
}

// E4M3 tensors are taken as they are. With the precision FP8 those in 16 bits are quantised, V where there
// are products of E4M3.
func TestWarp8(t *testing.T) {
	a100 := device.Facts{Name: "NVIDIA A100", Arch: "sm_80", Multiprocessors: 108, L2Bytes: 40 << 20}
	b200 := device.Facts{Name: "NVIDIA B200", Arch: "sm_100", Multiprocessors: 148, L2Bytes: 126 << 20}
	fp8 := func(p Problem) Problem {
		p.Precision = FP8
		return p
	}
	p := Problem{Batch: 2, Heads: 8, KVHeads: 2, Queries: 300, Keys: 500, HeadDim: 128}
	bf16, f16 := fp8(typed(p, array.BF16, array.BF16, array.BF16)), fp8(typed(p, array.F16, array.F16, array.F16))
	// The columns of 4 K/V heads in 4 tiles and of all; then Q, K, V, factors and means.
	const columns, q, k, factorsQ, factorsK, column = 65536 + 4*2*4*128*5, 2 * 8 * 300 * 128, 2 * 2 * 500 * 128, 4 * 16 * 80, 4 * 4 * 32, 4 * 4 * 128
	for _, test := range []struct {
		name            string
		facts           device.Facts
		p               Problem
		form, quantiser string
		bytes           int
	}{
		{"BF16", a100, bf16, "i8f16", "quantize8", columns + q + factorsQ + k + factorsK + column},
		{"FP16", a100, f16, "i8f16_fp16", "quantize8", columns + q + factorsQ + k + factorsK + column},
		{"BF16", b200, bf16, "i8f16", "quantize8", columns + q + factorsQ + k + factorsK + column},
		{"BF16", l4, bf16, "i8f8", "quantize8_v", columns + q + factorsQ + 2*k + factorsK + 2*column},
		{"FP16 to BF16", l4, fp8(typed(p, array.F16, array.F16, array.BF16)), "i8f8", "quantize8_v", columns + q + factorsQ + 2*k + factorsK + 2*column},
		{"E4M3", l4, typed(p, array.E4M3, array.E4M3, array.F16), "f8_fp16", "", 0},
		{"E4M3", b200, typed(p, array.E4M3, array.E4M3, array.BF16), "f8", "", 0},
	} {
		c, err := warp8Table(test.facts).Plan(test.p)
		if err != nil {
			t.Errorf("%s on %s: %v", test.name, test.facts.Name, err)
			continue
		}
		quantiser := ""
		if c.Quantiser != nil {
			quantiser = c.Quantiser.Variant()
		}
		if c.Form.Variant() != test.form || quantiser != test.quantiser || c.WorkspaceBytes != test.bytes {
			t.Errorf("%s on %s: %s behind %q with %d bytes, want %s behind %q with %d", test.name, test.facts.Name,
				c.Form.Variant(), quantiser, c.WorkspaceBytes, test.form, test.quantiser, test.bytes)
		}
	}
	with := func(p Problem, change func(p *Problem)) Problem {
		change(&p)
		return p
	}
	for want, p := range map[string]Problem{
		"no form of 8 bits for sm_80 has this option":         with(bf16, func(p *Problem) { p.KeyLengths = 1 }),
		"q is e4m3, which sm_80 does not multiply; q is F16 ": typed(p, array.E4M3, array.E4M3, array.F16),
		"v is bf16 and o f16; in 8 bits on sm_80 both are F1": fp8(typed(p, array.BF16, array.BF16, array.F16)),
		"the head dim 64 and that of v 64; no form of 8 bits": with(bf16, func(p *Problem) { p.HeadDim = 64 }),
		"more than 2^31 elements":                             with(bf16, func(p *Problem) { p.Batch, p.Keys = 1<<10, 1<<20 }),
		"more than 2^31 tiles":                                with(bf16, func(p *Problem) { p.Batch, p.Queries, p.Keys = 1<<10, 1<<31, 1 }),
	} {
		if _, err := warp8Table(a100).Plan(p); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", p, err, want)
		}
	}
}

// The driver gets the version of PTX that a form needs, without what is for debuggers.
func TestPortableText(t *testing.T) {
	const text = ".version 9.0\n.target sm_89\n\t// .globl f\n.entry f()\n{\n\t.loc\t1 20 0\n\tret; // back\n}\n\t.file\t1 \"f.cu\"\n\t.section\t.debug_str\n\t{\n$L__info_string0:\n.b8 95,0\n\n\t}\n"
	f := &Form{Kernel: Warp8, Target: toolchain.Target{Arch: e4m3Arch}, Image: &toolchain.Image{PTX: []byte(text)}}
	if got, want := string(f.PTX()), ".version 8.4\n.target sm_89\n.entry f()\n{\n\tret; // back\n}\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
