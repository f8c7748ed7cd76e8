package sim

import (
	"errors"
	"strings"
	"testing"

	"attune/internal/crash"
	"attune/internal/sim/mem"
)

// TestPanic checks that a panic in an operation becomes an error that names the kernel and the
// instruction, whether blocks run in parallel or interleaved. Other blocks, which may wait for pages
// that the block has locked, end too.
func TestPanic(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"parallel":    kernel("st.global.u32 [%rd0], %r0;\n ret;"),
		"interleaved": kernel("st.volatile.global.u32 [%rd0], %r0;\n ret;"),
	} {
		p, err := Load(mustParse(t, text), "")
		if err != nil {
			t.Fatal(err)
		}
		f, err := p.Entry("k")
		if err != nil {
			t.Fatal(err)
		}
		store := &p.codes[f].ops[7]
		run := store.run
		store.run = func(w *warp, o *op, mask uint32) {
			run(w, o, mask)
			if w.block.index == 3 {
				panic("a defect\nof the test")
			}
		}
		m := mem.NewMemory()
		params := append(littleEndian(buffer(t, m, "out", 4), 8), littleEndian(buffer(t, m, "in", 4), 8)...)
		for _, checks := range []bool{false, true} {
			_, err = p.Run(t.Context(), m, Launch{Grid: [3]int{40, 1, 1}, Block: [3]int{64, 1, 1}, Params: params}, Options{Checks: checks, Workers: 4})
			var crashed *crash.Panic
			if !errors.As(err, &crashed) || !strings.Contains(string(crashed.Stack), "TestPanic") {
				t.Fatalf("%s: error %v", name, err)
			}
			for _, want := range []string{"the simulation of k, block [3 0 0], warp 0, at ptx:20: st.", "a defect of the test"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: error %q does not contain %q", name, err, want)
				}
			}
		}
	}
}

// TestPanicBeforeTheRun checks that a panic outside of the blocks becomes an error too.
func TestPanicBeforeTheRun(t *testing.T) {
	t.Parallel()
	p, err := Load(mustParse(t, kernel("ret;")), "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Run(t.Context(), nil, Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Params: make([]byte, 16)}, Options{})
	var crashed *crash.Panic
	if !errors.As(err, &crashed) || !strings.Contains(err.Error(), "the simulation of the kernel: ") {
		t.Errorf("error %v", err)
	}
}
