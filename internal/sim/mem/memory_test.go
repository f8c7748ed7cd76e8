package mem

import (
	"bytes"
	"strings"
	"testing"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	alloc := func(name string, size int) uint64 {
		t.Helper()
		base, err := m.Alloc(name, size)
		if err != nil {
			t.Fatal(err)
		}
		return base
	}
	a, b := alloc("a", 100), alloc("b", 0)
	if a%256 != 0 || b%256 != 0 || b < a+100+1<<20 {
		t.Errorf("buffers at %#x and %#x", a, b)
	}
	data := make([]byte, 100)
	if err := m.Read(data, a); err != nil || !bytes.Equal(data, bytes.Repeat([]byte{0xff}, 100)) {
		t.Errorf("a new buffer holds %x, %v", data, err)
	}
	if n, first := m.Unwritten(a); n != 100 || first != 0 {
		t.Errorf("%d bytes of a new buffer are unwritten, the first is %d", n, first)
	}
	check := func(at uint64, value string, left, first int) {
		t.Helper()
		if err := m.Write(at, []byte(value)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(value))
		if err := m.Read(got, at); err != nil || string(got) != value {
			t.Errorf("read %q, %v; want %q", got, err, value)
		}
		if n, f := m.Unwritten(a); n != left || f != first {
			t.Errorf("%d bytes are unwritten, the first is %d; want %d, %d", n, f, left, first)
		}
	}
	check(a, "head", 96, 4)
	check(a+97, "end", 93, 4)
	check(a, strings.Repeat("x", 100), 0, 0)

	fails := func(name string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not contain %q", name, err, want)
		}
	}
	fails("a write past the end", m.Write(a+97, make([]byte, 4)), "write simulated memory: 4 bytes at ")
	fails("a write to an empty buffer", m.Write(b, make([]byte, 1)), "not inside of a buffer")
	fails("a read before the start", m.Read(make([]byte, 1), a-1), "read simulated memory")
	fails("a read of an empty memory", NewMemory().Read(make([]byte, 1), 5), "not inside of a buffer")
	_, err := m.Alloc("c", -1)
	fails("a negative size", err, "allocate -1 bytes of simulated memory for c")
	_, err = m.Alloc("c", 1<<40)
	fails("a size over the limit", err, "for c")
	if n, _ := NewMemory().Unwritten(7); n != 0 {
		t.Errorf("%d bytes are unwritten in a memory without buffers", n)
	}
	if err := m.Free(a); err != nil {
		t.Error(err)
	}
	fails("freed", m.Write(a, make([]byte, 1)), "not inside of a buffer")
	fails("freed twice", m.Free(a), "no buffer at")
}
