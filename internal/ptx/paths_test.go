package ptx

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	const add = "add.u32 %r1, %r1, 1; "
	for body, want := range map[string][]int{ // what may precede the last add
		add + add:                             {0},
		"@p bra L; " + add + "L: " + add:      {0, 1},
		"@p bra L; " + add + "ret; L: " + add: {0},
		"bra L; " + add + "L: " + add:         {0},
		// A loop that the last add is not in may repeat; one around it does not.
		"L: " + add + "@p bra L; " + add:                                   {0, 1},
		"bra M; L: bra E; M: " + add + "@p bra L; bra M; E: " + add:        {0, 1, 2, 3, 4},
		"bra M; L: mov.u32 %r2, 1; M: " + add + "@p bra L;":                {0},
		"L: bra M; N: mov.u32 %r2, 1; @p bra L; ret; M: " + add + "bra N;": {0},
		// The inner loop is left out too, if the add is in both.
		"K: mov.u32 %r2, 1; L: " + add + "@p bra L; mov.u32 %r2, 2; @q bra K;": {0},
		"K: L: mov.u32 %r2, 1; @p bra L; " + add + "@q bra K;":                 {0, 1},
		// A loop with two entries: the way from one to the other counts as a repetition.
		"@p bra B; A: mov.u32 %r1, 1; B: " + add + "@q bra A;": {0},
		// Nothing precedes an instruction that no path leads to.
		"mov.u32 %r2, 1; ret; L: " + add + "@p bra L;": nil,
	} {
		f := kernel(t, body)
		last := 0
		for i := range f.Code {
			if f.Code[i].Opcode == "add" {
				last = i
			}
		}
		paths := f.Paths()
		var got []int
		for i := range f.Code {
			if paths.MayPrecede(i, last) {
				got = append(got, i)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
		if paths.Reaches(last) != (want != nil) {
			t.Errorf("%s: a path leads to the add: %t", body, paths.Reaches(last))
		}
	}
}

// Some path leads to every instruction that is reachable, whatever loops are around it, and nothing
// precedes itself.
func TestPathsOfRandomFlow(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		f := randomFlow(random, 1+random.IntN(12))
		paths := f.Paths()
		for i := range f.Code {
			if paths.MayPrecede(i, i) {
				t.Fatalf("instruction %d precedes itself in\n%s", i, listing(f))
			}
			if i > 0 && paths.Reaches(i) && !paths.MayPrecede(0, i) {
				t.Fatalf("the start does not precede instruction %d in\n%s", i, listing(f))
			}
		}
	}
}
