package mem

import (
	"bytes"
	"strings"
	"testing"

	"attune/internal/finding"
)

// The marks of a variable that outlives launches tell which launch has written a byte.
func TestOutlive(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	base, err := m.Alloc(finding.Variable{Name: "v"}, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Initialise(base, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if m.Keep(base) || m.Keep(base+1) || NewMemory().Keep(base) {
		t.Error("a launch has written an initialised buffer")
	}
	if err := m.Outlive(base); err != nil {
		t.Fatal(err)
	}
	b := m.Find(base)
	MarkWritten(b.Marks[1:2])
	if !m.Keep(base) || m.Keep(base) || !bytes.Equal(b.Marks, []byte{Initial, Kept, Initial, Initial}) {
		t.Errorf("the marks are %v", b.Marks)
	}
	MarkWritten(b.Marks[:2])
	if !bytes.Equal(b.Marks, []byte{Written, Written, Initial, Initial}) {
		t.Errorf("after a second launch the marks are %v", b.Marks)
	}
	if err := m.Forget(base); err != nil {
		t.Fatal(err)
	}
	if n, _ := m.Unwritten(base); n != 4 || b.Data[0] != 1 {
		t.Errorf("%d bytes are unwritten, the first is %d", n, b.Data[0])
	}
	for name, err := range map[string]error{"outlive": m.Outlive(5), "forget": m.Forget(5)} {
		if err == nil || !strings.Contains(err.Error(), "mark simulated memory: 0 bytes at 0x5 are not inside of a buffer") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A seed moves the first buffer and the distances between buffers, and repeats them.
func TestScatter(t *testing.T) {
	t.Parallel()
	place := func(seed, stream uint64) (first, distance uint64) {
		m := NewMemory()
		if seed > 0 {
			m.Scatter(seed, stream)
		}
		a, err := m.Alloc(finding.Variable{Name: "a"}, 100)
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.Alloc(finding.Variable{Name: "b"}, 100)
		if err != nil || a%bufferAlign != 0 || b%bufferAlign != 0 || BelowGlobal(a) || b-a < bufferGap+100 {
			t.Fatalf("%#x and %#x, %v", a, b, err)
		}
		return a, b - a
	}
	firsts, distances := map[uint64]bool{}, map[uint64]bool{}
	for _, p := range [][2]uint64{{0, 0}, {1, 0}, {1, 1}, {2, 0}} {
		first, distance := place(p[0], p[1])
		firsts[first], distances[distance] = true, true
		if again, _ := place(p[0], p[1]); again != first {
			t.Errorf("seed %v has the addresses %#x and %#x", p, first, again)
		}
	}
	if len(firsts) != 4 || len(distances) != 4 {
		t.Errorf("addresses %v, distances %v", firsts, distances)
	}
}
