package sim

import (
	"testing"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/mem"
)

// An instance keeps the variables of a module between launches. Without one they are fresh, and no
// buffer is left behind.
func TestInstance(t *testing.T) {
	t.Parallel()
	module, err := ptx.Parse([]byte(`.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 launches = 5;
.global .align 8 .u64 pointer = launches;
.visible .entry k(.param .u64 out)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [out];
	ld.global.u64 %rd2, [pointer];
	mov.b32 %r2, %envreg1;
	ld.global.u32 %r1, [%rd2];
	add.u32 %r1, %r1, 1;
	st.global.u32 [launches], %r1;
	st.global.u32 [%rd1], %r1;
	ret;
}
`))
	if err != nil {
		t.Fatal(err)
	}
	program, err := Load(module, "")
	if err != nil {
		t.Fatal(err)
	}
	memory := mem.NewMemory()
	out, err := memory.Alloc(finding.Variable{Name: "out"}, 4)
	if err != nil {
		t.Fatal(err)
	}
	params, err := program.Params("k", [][]byte{littleEndian(out, 8)})
	if err != nil {
		t.Fatal(err)
	}
	run := func(o Options) byte {
		t.Helper()
		o.Checks = true
		result, err := program.Run(t.Context(), memory, Launch{Entry: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Params: params, Cooperative: true}, o)
		if err != nil || len(result.Findings) > 0 {
			t.Fatalf("%+v, %v", result, err)
		}
		var got [4]byte
		if err := memory.Read(got[:], out); err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	var one, other Instance
	for i, want := range []struct {
		instance *Instance
		value    byte
	}{{&one, 6}, {&one, 7}, {nil, 6}, {&other, 6}, {nil, 6}, {&one, 8}} {
		if got := run(Options{Instance: want.instance}); got != want.value {
			t.Errorf("launch %d: got %d, want %d", i, got, want.value)
		}
	}
	if n := memory.Len(); n != 5 { // the output and the variables of two instances
		t.Errorf("%d buffers are left", n)
	}
}
