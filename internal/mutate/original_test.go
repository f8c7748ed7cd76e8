package mutate

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestOriginal uses an assembler that only normalises white space, so mutants are equivalent if
// their text, or their simplified text, is the same.
func TestOriginal(t *testing.T) {
	text := boundedKernel("\tmov.u32 %r3, %tid.x;\n\tshr.s32 %r4, %r3, 31;\n\tshr.u32 %r5, %r4, 27;\n\tadd.s32 %r6, %r3, 1;")
	errAssemble := errors.New("assembly failed")
	var assembled int
	assemble := func(_ context.Context, ptx []byte) (string, error) {
		assembled++
		if strings.Contains(string(ptx), "bogus") {
			return "", errAssemble
		}
		return strings.Join(strings.Fields(string(ptx)), " "), nil
	}
	o, err := NewOriginal(t.Context(), assemble, text, "k", parameterBounds)
	if err != nil {
		t.Fatal(err)
	}
	check := func(before, after string, want bool, wantAssembled int) {
		t.Helper()
		mutant := strings.Replace(string(text), before, after, 1)
		assembled = 0
		if got := o.IsEquivalent(t.Context(), []byte(mutant)); got != want || assembled != wantAssembled || mutant == string(text) {
			t.Errorf("%s -> %s: %t after %d assemblies, want %t after %d", before, after, got, assembled, want, wantAssembled)
		}
	}
	check("%r4, 27;", " %r4,  27;", true, 1)        // the same code
	check("%r4, 27;", "%r4, 28;", true, 2)          // tid is never negative, so its sign is 0
	check("%r3, 31;", "%r3, 4;", false, 2)          // a shift by 4 keeps value bits
	check("%r3, 1;", "%r3, 2;", false, 2)           // another sum
	check("shr.u32 %r5", "bogus.u32 %r5", false, 1) // does not assemble
	if _, err := NewOriginal(t.Context(), assemble, []byte(strings.Replace(string(text), "shr", "bogus", 1)), "k", nil); !errors.Is(err, errAssemble) {
		t.Errorf("%v", err)
	}
	if (*Original)(nil).IsEquivalent(t.Context(), text) {
		t.Error("a nil Original reports equivalence")
	}
}
