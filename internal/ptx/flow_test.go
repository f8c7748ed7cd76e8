package ptx

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReconvergence(t *testing.T) {
	check := func(body string, want ...int) {
		t.Helper()
		f := kernel(t, body)
		if diff := cmp.Diff(want, f.Reconvergence()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	check("ret;", -1)
	check("bra L; L: ret;", -1, -1)
	check("@p bra L; L: ret;", 1, -1)
	check("@p bra L; add.u32 %r1, %r1, 1; L: ret;", 2, -1, -1)
	check("@p bra E; mov.u32 %r1, 1; bra J; E: mov.u32 %r1, 2; J: ret;", 4, -1, -1, -1, -1)
	// A loop reconverges after itself.
	check("L: add.u32 %r1, %r1, 1; @p bra L; ret;", -1, 2, -1)
	check("L: add.u32 %r1, %r1, 1; @p bra L;", -1, 2)
	// Guarded ends remove threads and do not branch; unguarded ends terminate the path.
	check("@p bra L; @q ret; L: exit;", 2, -1, -1)
	check("@p bra L; ret; L: ret;", 3, -1, -1)
	check("@p bra L; trap; L: mov.u32 %r1, 1; ret;", 4, -1, -1, -1)
	check("@p bra L; exit; L:", 2, -1)
	// Indexed branches.
	check("T: .branchtargets A, B; brx.idx %r1, T; A: bra J; B: mov.u32 %r1, 1; J: ret;", 3, -1, -1, -1)
	check("T: .branchtargets A; brx.idx %r1, T; ret; A: ret;", 2, -1, -1)
	check("T: .branchtargets A, A; @p brx.idx %r1, T; mov.u32 %r1, 1; A: ret;", 2, -1, -1)
	// An irreducible loop: it can be entered at A and at B.
	check("@p bra B; A: mov.u32 %r1, 1; B: mov.u32 %r1, 2; @q bra A; ret;", 2, -1, -1, 4, -1)
	// Unreachable code is analysed as well.
	check("bra L; @p bra M; mov.u32 %r1, 1; M: mov.u32 %r1, 2; L: ret;", -1, 3, -1, -1, -1)
	// Endless loops reconverge before the next iteration.
	check("L: @p bra A; mov.u32 %r1, 1; A: mov.u32 %r1, 2; bra L;", 2, -1, -1, -1)
	check("L: @p bra L; bra L;", 1, -1)
	check("@p bra B; A: bra A; B: bra B;", 3, -1, -1)
	check("@p bra B; mov.u32 %r1, 1; bra B; B: bra B;", 3, -1, -1, -1)
	check("@p bra L; ret; L: bra L;", 3, -1, -1)
	check("B: bra B; @p bra C; bra B; C: mov.u32 %r1, 1; bra B;", -1, 0, -1, -1, -1)
	if got := kernel(t, "").Reconvergence(); len(got) != 0 {
		t.Errorf("got %v for a function without instructions", got)
	}
}

// TestPostDominators compares with the definition: a block post-dominates another if the other
// cannot reach the end without passing it.
func TestPostDominators(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		f := randomFlow(random, 1+random.IntN(12))
		got := f.Reconvergence()
		g := f.flowGraph()
		g.addLoopExits()
		for i := range f.Code {
			want := -1
			if f.Code[i].diverges() {
				want = g.first[bruteForce(g, g.blockOf[i])]
			}
			if got[i] != want {
				t.Fatalf("instruction %d reconverges at %d, want %d, in\n%s", i, got[i], want, listing(f))
			}
		}
	}
}

// randomFlow returns a function of random branches, ends and other instructions.
func randomFlow(random *rand.Rand, size int) *Function {
	f := &Function{Code: make([]Instruction, size)}
	for i := range f.Code {
		in := &f.Code[i]
		in.Guard = random.IntN(2) - 1
		in.Opcode = []string{"add", "add", "bra", "bra", "bra", "brx", "ret", "exit"}[random.IntN(8)]
		targets := map[string]int{"bra": 1, "brx": 1 + random.IntN(3)}[in.Opcode]
		for range targets {
			in.Targets = append(in.Targets, random.IntN(size+1))
		}
	}
	return f
}

func listing(f *Function) string {
	var lines strings.Builder
	for i, in := range f.Code {
		fmt.Fprintln(&lines, i, in.Guard, in.Opcode, in.Targets)
	}
	return lines.String()
}

// bruteForce finds the immediate post-dominator: the post-dominator of the block that all its other
// post-dominators post-dominate.
func bruteForce(g *flowGraph, block int) int {
	// reachesWithout reports whether a path leads from start to the end without the removed block.
	reachesWithout := func(start, removed int) bool {
		seen := make([]bool, len(g.first))
		seen[removed] = true
		postorder(g.successors, start, seen, nil)
		return seen[g.end()] && removed != g.end()
	}
	dominates := func(a, b int) bool { return a == b || !reachesWithout(b, a) }
	for candidate := range g.first {
		nearest := candidate != block && dominates(candidate, block)
		for other := range g.first {
			if other != block && dominates(other, block) {
				nearest = nearest && dominates(other, candidate)
			}
		}
		if nearest {
			return candidate
		}
	}
	return -1
}

// TestLoopExits checks that every block reaches the end afterwards, and that blocks that reached it
// before get no edge.
func TestLoopExits(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		f := randomFlow(random, 1+random.IntN(20))
		before, after := f.flowGraph(), f.flowGraph()
		after.addLoopExits()
		reached := func(g *flowGraph) []bool {
			seen := make([]bool, len(g.first))
			postorder(g.predecessors, g.end(), seen, nil)
			return seen
		}
		were, are := reached(before), reached(after)
		for block := range after.first {
			added := len(after.successors[block]) - len(before.successors[block])
			if !are[block] || added > 0 && were[block] || added > 1 {
				t.Fatalf("block %d: reaches the end before %v, after %v, with %d new edges, in\n%s", block, were[block], are[block], added, listing(f))
			}
		}
	}
}

func BenchmarkReconvergence(b *testing.B) {
	random := rand.New(rand.NewPCG(5, 6))
	f := &Function{Code: make([]Instruction, 20000)}
	for i := range f.Code {
		in := &f.Code[i]
		in.Guard, in.Opcode = -1, "add"
		if random.IntN(6) == 0 {
			in.Guard, in.Opcode = 0, "bra"
			in.Targets = []int{min(max(i+random.IntN(300)-100, 0), len(f.Code))}
		}
	}
	for b.Loop() {
		f.Reconvergence()
	}
}
