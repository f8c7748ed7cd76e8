package mem

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"attune/internal/finding"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	alloc := func(name string, size int) uint64 {
		t.Helper()
		base, err := m.Alloc(finding.Variable{Name: name}, size)
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
	_, err := m.Alloc(finding.Variable{Name: "c"}, -1)
	fails("a negative size", err, "allocate -1 bytes of simulated memory for c")
	_, err = m.Alloc(finding.Variable{Name: "c"}, 1<<40)
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

// TestLimit tests that buffers, with their marks, never exceed the limit, and that freed ones count
// no more.
func TestLimit(t *testing.T) {
	const limit = 10_000
	m := NewLimited(limit)
	a, err := m.Alloc(finding.Variable{Name: "a"}, 2000)
	if err != nil || m.Used() != 2*2000+bufferOverhead || m.Limit() != limit {
		t.Fatalf("%v, %d of %d bytes in use", err, m.Used(), m.Limit())
	}
	mark := m.Next()
	b, err := m.Alloc(finding.Variable{Name: "b"}, 1000)
	if err != nil || b != mark {
		t.Fatalf("%v, at %#x, want %#x", err, b, mark)
	}
	for _, size := range []int{limit, 1245, 1 << 62, 1<<63 - 1} {
		_, err := m.Alloc(finding.Variable{Name: "c"}, size)
		want := fmt.Sprintf("allocate %d bytes of simulated memory for c: a byte takes two, 7024 are in use already, and the limit is 10000", size)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not contain %q", err, want)
		}
	}
	if _, err := m.Alloc(finding.Variable{Name: "c"}, 1232); err != nil {
		t.Error(err)
	}
	m.FreeFrom(mark, nil)
	if m.Len() != 1 || m.Used() != 2*2000+bufferOverhead {
		t.Errorf("%d buffers are left, with %d bytes", m.Len(), m.Used())
	}
	m.FreeFrom(m.Next(), nil)
	if err := m.Free(a); err != nil || m.Used() != 0 {
		t.Errorf("%v, %d bytes are in use", err, m.Used())
	}
}

func TestInitialise(t *testing.T) {
	m := NewMemory()
	a, err := m.Alloc(finding.Variable{Name: "a"}, 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Initialise(a, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if err := m.Read(got, a); err != nil || string(got) != "abc\x00\x00\x00\x00\x00" {
		t.Errorf("%q, %v", got, err)
	}
	if n, _ := m.Unwritten(a); n != 0 {
		t.Errorf("%d bytes are unwritten", n)
	}
	if err := m.Initialise(a, make([]byte, 9)); err == nil {
		t.Error("nine bytes fit into a buffer of eight")
	}
}

func TestFill(t *testing.T) {
	for _, size := range []int{0, 1, 63, 64, 65, 4095, 4096, 10_001} {
		data := make([]byte, size+1)
		Fill(data[:size], 0xAB)
		if n := bytes.Count(data, []byte{0xAB}); n != size || data[size] != 0 {
			t.Errorf("%d of %d bytes are set, and the byte after them is %#x", n, size, data[size])
		}
	}
}

// A use after a free names the buffer that was there, not the nearest one that is left.
func TestFreedNeighbour(t *testing.T) {
	t.Parallel()
	m := NewArena(0, &Arena{Base: ArenaBase, Data: make([]byte, 16<<20), Release: func([]byte) {}})
	var bases []uint64
	for _, name := range []string{"a", "b", "c"} {
		base, err := m.Alloc(finding.Variable{Name: name}, 4096)
		if err != nil {
			t.Fatal(err)
		}
		bases = append(bases, base)
	}
	if err := m.Free(bases[1]); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[uint64]string{
		8:    "byte 8 of b, which has been freed",
		4095: "byte 4095 of b, which has been freed",
	} {
		b := m.Find(bases[1] + offset)
		if b.Holds(bases[1]+offset, 1) {
			t.Errorf("byte %d of a freed buffer is held", offset)
		}
		if got := DescribeOutside(b, bases[1]+offset, 4); !strings.Contains(got, want) {
			t.Errorf("byte %d: %q, want %q", offset, got, want)
		}
	}
	if b := m.Find(bases[2] + 5); !b.Holds(bases[2]+5, 1) {
		t.Error("a live buffer is not held")
	}
	for range mostFreed + 1 { // the list is bounded
		m.keepFreed(&Buffer{Base: bases[2]})
	}
	if len(m.freed) > mostFreed {
		t.Errorf("%d freed buffers are kept", len(m.freed))
	}
}
