package sim

import (
	"fmt"
	"testing"

	"attune/internal/finding"
)

// TestReservedShared reads the registers that describe shared memory. The values are those of an
// H200.
func TestReservedShared(t *testing.T) {
	t.Parallel()
	read := func(name string, shared int, declarations, body string, want uint32) {
		t.Helper()
		text := kernelWith(declarations, storing(fmt.Sprintf("mov.u32 %%r1, %%%s;\n", name)+body))
		schedules(t, name, setup{text: text, shared: shared}, each(32, func(uint32) uint32 { return want }))
	}
	for name, want := range map[string]uint32{
		"reserved_smem_offset_begin": 0, "reserved_smem_offset_end": 288, "reserved_smem_offset_cap": 1024,
		"reserved_smem_offset_0": 0, "reserved_smem_offset_1": 0,
	} {
		read(name, 0, "", "", want)
	}
	const variable, use = ".shared .align 4 .b8 s[100];", "mov.u32 %r2, s;\n"
	for _, c := range []struct {
		dynamic           int
		declarations, use string
		total, aggregate  uint32
	}{
		{0, "", "", 0, 1024},
		{1, "", "", 128, 1025},
		{129, "", "", 256, 1153},
		{0, variable, use, 128, 1124},
	} {
		read("total_smem_size", c.dynamic, c.declarations, c.use, c.total)
		read("aggr_smem_size", c.dynamic, c.declarations, c.use, c.aggregate)
		read("dynamic_smem_size", c.dynamic, c.declarations, c.use, uint32(c.dynamic))
	}
}

// TestReservedAccess accesses reserved shared memory. It is zero at the start of each block, it
// belongs to kernels that read its address, and races in it are races.
func TestReservedAccess(t *testing.T) {
	t.Parallel()
	const at = "mov.u32 %r2, %reserved_smem_offset_1;\n cvt.u64.u32 %rd2, %r2;\n cvta.shared.u64 %rd3, %rd2;\n"
	// The threads count themselves, as the barriers of cooperative groups do.
	count := at + "atom.shared.add.u32 %r3, [%r2+16], 1;\n bar.sync 0;\n ld.u32 %r1, [%rd3+16];\n"
	schedules(t, "count", setup{text: kernel(storing(count)), blocks: 3, threads: 64}, each(192, func(uint32) uint32 { return 64 }))
	schedules(t, "count without checks", setup{text: kernel(storing(count)), blocks: 3, threads: 64, unchecked: true}, each(192, func(uint32) uint32 { return 64 }))
	const store = "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.shared.u32 [%r2+8], 7;\n"
	defect{
		name: "a race", kind: finding.Race, setup: setup{threads: 64},
		wrong: at + store + "ld.shared.u32 %r1, [%r2+8];\n", right: at + store + "bar.sync 0;\n ld.shared.u32 %r1, [%r2+8];\n", at: "*", with: "*",
	}.check(t)
	defect{
		name: "past the end", kind: finding.OutOfBounds, setup: setup{threads: 32},
		wrong: at + "ld.shared.u32 %r1, [%r2+286];\n ld.shared.u32 %r1, [%r2+288];\n", right: at + "ld.shared.u32 %r1, [%r2+284];\n", at: "*",
	}.check(t)
	defect{
		name: "an address that was not read", kind: finding.OutOfBounds, setup: setup{threads: 32},
		wrong: "mov.u32 %r2, 0;\n ld.shared.u32 %r1, [%r2];\n", right: at, at: "ld.shared.u32 %r1, [%r2]",
	}.check(t)
}
