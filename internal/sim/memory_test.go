package sim

import (
	"bytes"
	"strings"
	"testing"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	a, b := buffer(t, m, "a", 100), buffer(t, m, "b", 0)
	if a%256 != 0 || b%256 != 0 || b < a+100+1<<20 {
		t.Errorf("buffers at %#x and %#x", a, b)
	}
	data := make([]byte, 100)
	if err := m.Read(data, a); err != nil || !bytes.Equal(data, bytes.Repeat([]byte{0xff}, 100)) {
		t.Errorf("a new buffer holds %x, %v", data, err)
	}
	if n, first := m.Unwritten(a); n != 100 || first != 0 {
		t.Errorf("of a new buffer %d bytes are unwritten, from %d on", n, first)
	}
	check := func(at uint64, value string, left, first int) {
		t.Helper()
		if err := m.Write(at, []byte(value)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(value))
		if err := m.Read(got, at); err != nil || string(got) != value {
			t.Errorf("it reads %q, %v; want %q", got, err, value)
		}
		if n, f := m.Unwritten(a); n != left || f != first {
			t.Errorf("%d bytes are unwritten, from %d on; want %d, %d", n, f, left, first)
		}
	}
	check(a, "head", 96, 4)
	check(a+97, "end", 93, 4)
	check(a, strings.Repeat("x", 100), 0, 0)

	fails := func(name string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want %q in it", name, err, want)
		}
	}
	fails("a write past the end", m.Write(a+97, make([]byte, 4)), "write simulated memory: 4 bytes at ")
	fails("a write to an empty buffer", m.Write(b, make([]byte, 1)), "not inside of a buffer")
	fails("a read before the start", m.Read(make([]byte, 1), a-1), "read simulated memory")
	fails("a read of nothing", NewMemory().Read(make([]byte, 1), 5), "not inside of a buffer")
	_, err := m.Alloc("c", -1)
	fails("less than nothing", err, "take -1 bytes of simulated memory for c")
	_, err = m.Alloc("c", 1<<40)
	fails("more than there is", err, "for c")
	if n, _ := NewMemory().Unwritten(7); n != 0 {
		t.Errorf("where there is nothing, %d bytes are unwritten", n)
	}
	if err := m.Free(a); err != nil {
		t.Error(err)
	}
	fails("freed", m.Write(a, make([]byte, 1)), "not inside of a buffer")
	fails("freed twice", m.Free(a), "no buffer at")
}

// TestLaunches: the variables of a module are made for a launch and are gone behind it, and what one launch did is no race with the next.
func TestLaunches(t *testing.T) {
	t.Parallel()
	text := kernelWith(".global .align 4 .u32 g = 3;", "ld.global.u32 %r1, [g];\n cvt.u32.u64 %r2, %rd1;\n add.u32 %r1, %r1, %r2;\n "+
		"setp.eq.u32 %p1, %r0, %r2;\n @%p1 st.global.u32 [%rd0], %r1;\n ret;")
	p, err := Load(mustParse(t, text), "")
	if err != nil {
		t.Fatal(err)
	}
	m := NewMemory()
	out := buffer(t, m, "out", 4)
	for thread := range uint64(3) {
		l := Launch{Entry: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Params: append(littleEndian(out, 8), littleEndian(thread, 8)...)}
		result, err := p.Run(t.Context(), m, l, Options{Checks: true})
		if err != nil || len(result.Findings) > 0 || len(m.sorted) != 1 || take(t, m, out, 1)[0] != 3+uint32(thread) {
			t.Errorf("%v, %v, %d buffers, %v", err, result, len(m.sorted), take(t, m, out, 1))
		}
	}
}
