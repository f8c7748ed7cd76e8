package sim

import (
	"testing"

	"attune/internal/finding"
)

// TestVariables checks that a finding about memory names the variable, the element, and what would
// order two accesses.
func TestVariables(t *testing.T) {
	t.Parallel()
	const tile = ".shared .align 4 .b8 _ZZ1kE4tile[64];\n.shared .align 4 .b8 other[16];"
	shared := func(name string, size, offset int) finding.Variable {
		return finding.Variable{Name: name, Space: finding.Shared, Bytes: size, Offset: offset, ElementBytes: 4}
	}
	for _, c := range []struct {
		name, declarations, body string
		shared, threads          int
		want                     finding.Variable
		missing                  finding.Sync
	}{
		{"a race of warps", tile, "st.shared.u32 [_ZZ1kE4tile+8], %r0;", 0, 64, shared("tile", 64, 8), finding.BlockSync},
		{"a race of lanes", tile, "st.shared.u32 [other+4], %r0;", 0, 32, shared("other", 16, 4), finding.WarpSync},
		{"past the end", tile, "ld.shared.u32 %r1, [_ZZ1kE4tile+64];", 0, 32, shared("tile", 64, 64), ""},
		{"past all", "", "ld.shared.u32 %r1, [4096];", 0, 32, finding.Variable{}, ""},
		{"dynamic", ".extern .shared .align 16 .b8 smem[];", "st.shared.u32 [smem+4], %r0;", 64, 64, shared("smem", 64, 4), finding.BlockSync},
		{
			"two names of dynamic memory", ".extern .shared .align 16 .b8 one[];\n.extern .shared .align 16 .b8 two[];",
			"st.shared.u32 [one], %r0;\n ld.shared.u32 %r1, [two];", 64, 64, shared("dynamic shared memory", 64, 0), finding.BlockSync,
		},
		{"never written", tile, "ld.shared.u32 %r1, [other+12];\n st.global.u32 [%rd31], %r1;", 0, 32, shared("other", 16, 12), ""},
		{
			"a variable of the module", ".global .align 8 .u64 total[2];", "cvt.u64.u32 %rd2, %r0;\n st.global.u64 [total+8], %rd2;", 0, 64,
			finding.Variable{Name: "total", Space: finding.Global, Bytes: 16, Offset: 8, ElementBytes: 8},
			finding.BlockSync,
		},
		{
			"before a buffer", "", "ld.global.u32 %r1, [%rd0+-8];", 0, 32,
			finding.Variable{Name: "out", Bytes: 128, Offset: -8, ElementBytes: 4},
			"",
		},
		{"null", "", "mov.u64 %rd2, 16;\n ld.global.u32 %r1, [%rd2];", 0, 32, finding.Variable{}, ""},
		{"local memory", "", ".local .align 4 .b8 l[8];\n ld.local.u32 %r1, [l];\n st.global.u32 [%rd31], %r1;", 0, 32, finding.Variable{}, ""},
	} {
		got := simulate(t, setup{text: kernelWith(c.declarations, c.body+"\n ret;"), shared: c.shared, threads: c.threads})
		if len(got.findings) == 0 || got.findings[0].Variable != c.want || got.findings[0].Missing != c.missing {
			t.Errorf("%s: %+v; want %+v, %q missing", c.name, got.findings, c.want, c.missing)
		}
	}
}
