package mutate

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// A mutant is the original where the compiler says so of either form of both. Here it makes of each line, blanks aside, a line.
func TestOriginal(t *testing.T) {
	text := ranged("\tmov.u32 %r3, %tid.x;\n\tshr.s32 %r4, %r3, 31;\n\tshr.u32 %r5, %r4, 27;\n\tadd.s32 %r6, %r3, 1;")
	refused := errors.New("refused")
	var assembled int
	assemble := func(_ context.Context, ptx []byte) (string, error) {
		assembled++
		if strings.Contains(string(ptx), "bogus") {
			return "", refused
		}
		return strings.Join(strings.Fields(string(ptx)), " "), nil
	}
	o, err := NewOriginal(t.Context(), assemble, text, "k", bounds)
	if err != nil {
		t.Fatal(err)
	}
	check := func(before, after string, want bool, asked int) {
		t.Helper()
		mutant := strings.Replace(string(text), before, after, 1)
		assembled = 0
		if got := o.Is(t.Context(), []byte(mutant)); got != want || assembled != asked || mutant == string(text) {
			t.Errorf("%s -> %s: %t after %d, want %t after %d", before, after, got, assembled, want, asked)
		}
	}
	check("%r4, 27;", " %r4,  27;", true, 1)        // the same as it is
	check("%r4, 27;", "%r4, 28;", true, 2)          // a thread has no sign
	check("%r3, 31;", "%r3, 4;", false, 2)          // but a number
	check("%r3, 1;", "%r3, 2;", false, 2)           // which counts
	check("shr.u32 %r5", "bogus.u32 %r5", false, 1) // no program
	if _, err := NewOriginal(t.Context(), assemble, []byte(strings.Replace(string(text), "shr", "bogus", 1)), "k", nil); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	if (*Original)(nil).Is(t.Context(), text) {
		t.Error("with no compiler something is shown")
	}
}
