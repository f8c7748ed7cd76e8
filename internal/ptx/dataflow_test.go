package ptx

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// marked returns the names of the marked registers that occur in the code, sorted.
func marked(f *Function, marks []bool) []string {
	names := map[string]bool{}
	for i := range f.Code {
		for j := range f.Code[i].Operands {
			f.Code[i].Operands[j].EachRegister(func(r int) {
				if marks[r] {
					names[f.Registers[r].Name] = true
				}
			})
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func TestCopiedRegisters(t *testing.T) {
	check := func(body string, copied, unused []string) {
		t.Helper()
		f := kernel(t, body)
		got, gotUnused := f.CopiedRegisters()
		if diff := cmp.Diff([][]string{copied, unused}, [][]string{marked(f, got), marked(f, gotUnused)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	// A value that only goes to the stack is copied, through any bitwise operation.
	check("ld.u32 %r1, [%rd1]; and.b32 %r2, %r1, 255; st.local.u32 [%rd2], %r2;", []string{"%r1", "%r2"}, nil)
	check("ld.u32 %r1, [%rd1]; st.u32 [%rd2], %r1;", []string{"%r1"}, nil)
	// A store to memory that others see is a use, and so are arithmetic and addresses.
	check("ld.u32 %r1, [%rd1]; st.global.u32 [%rd2], %r1;", nil, nil)
	check("ld.u32 %r1, [%rd1]; mov.u32 %r2, %r1; add.u32 %r3, %r2, 1; st.u32 [%rd2], %r3;", []string{"%r3"}, nil)
	check("ld.u64 %rd1, [%rd2]; st.u32 [%rd1], 1;", nil, nil)
	// A value that nothing reads is unused.
	check("ld.u32 %r1, [%rd1];", []string{"%r1"}, []string{"%r1"})
}

func TestReadRegisters(t *testing.T) {
	f := kernel(t, "add.u32 %r1, %r2, %r3; ld.v2.u32 {%r4, %r5}, [%rd1]; st.u32 [%rd2], %r1;")
	if diff := cmp.Diff([]string{"%r1", "%r2", "%r3", "%rd1", "%rd2"}, marked(f, f.ReadRegisters())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHasResult(t *testing.T) {
	for body, want := range map[string]bool{
		"add.u32 %r1, %r2, 1;": true, "setp.eq.u32 p|p, %r1, 2;": true, "ld.v2.u32 {%r1, %r2}, [%rd1];": true, "bar.red.popc.u32 %r1, 0, p;": true,
		"st.u32 [%rd1], %r1;": false, "bar.sync %r1;": false, "barrier.sync %r1;": false, "nanosleep.u32 %r1;": false, "bar.warp.sync -1;": false,
		"membar.gl;": false,
	} {
		if f := kernel(t, body); f.Code[0].HasResult() != want {
			t.Errorf("%s: %v, want %v", body, !want, want)
		}
	}
}

func TestExpectedRegisters(t *testing.T) {
	f := kernel(t, "mov.u32 %r2, %r1; ld.u32 %r3, [%rd1]; atom.global.cas.b32 %r4, [%rd1], %r2, %r3; mov.u32 %r5, %r4;")
	if diff := cmp.Diff([]string{"%r1", "%r2"}, marked(f, f.ExpectedRegisters())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConstantRegisters(t *testing.T) {
	check := func(body string, moves []bool, registers ...string) {
		t.Helper()
		f := kernel(t, body)
		if diff := cmp.Diff(moves, f.ConstantMoves()); diff != "" {
			t.Errorf("moves of %s (-want +got):\n%s", body, diff)
		}
		if diff := cmp.Diff(registers, marked(f, f.ConstantRegisters())); diff != "" {
			t.Errorf("registers of %s (-want +got):\n%s", body, diff)
		}
	}
	check("mov.u32 %r1, 0; mov.u32 %r2, %r1;", []bool{true, true}, "%r1")
	check("mov.u32 %r1, 0; add.u32 %r1, %r1, 1; mov.u32 %r2, %r1;", []bool{true, false, false})
	// A branch target may be reached with other values, and a guarded mov may not happen.
	check("mov.u32 %r1, 0; L: mov.u32 %r2, %r1; @p bra L;", []bool{true, false, false}, "%r1")
	check("@p mov.u32 %r1, 0; mov.u32 %r2, %r1;", []bool{false, false}, "%r1")
}

func TestReachable(t *testing.T) {
	m, err := Parse([]byte(`.version 8.0
.target sm_90a
.address_size 64
.shared .u32 a;
.shared .u32 b;
.shared .u32 c;
.func g() { .reg .u32 %r; ld.shared.u32 %r, [b]; ret; }
.func h() { .reg .u32 %r; ld.shared.u32 %r, [c]; ret; }
.entry direct() { .reg .u32 %r; ld.shared.u32 %r, [a]; call g; ret; }
.entry indirect() { .reg .u64 %f; mov.u64 %f, h; P: .callprototype _ (); call %f, P; ret; }
`))
	if err != nil {
		t.Fatal(err)
	}
	check := func(entry int, wantFunctions, wantShared []string) {
		t.Helper()
		functions, shared := m.Reachable(m.Functions[entry])
		var names, variables []string
		for f := range functions {
			names = append(names, f.Name)
		}
		for v := range shared {
			variables = append(variables, v.Name)
		}
		slices.Sort(names)
		slices.Sort(variables)
		if diff := cmp.Diff([][]string{wantFunctions, wantShared}, [][]string{names, variables}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", m.Functions[entry].Name, diff)
		}
	}
	check(2, []string{"direct", "g"}, []string{"a", "b"})
	check(3, []string{"g", "h", "indirect"}, []string{"b", "c"})
}

func TestLoopsUntil(t *testing.T) {
	const poll = "setp.eq.u32 p, %r1, 1; "
	for body, want := range map[string]bool{
		"L: " + poll + "@!p bra L; ret;":                          true,
		"L: add.u32 %r1, %r1, 1; " + poll + "@!p bra L; ret;":     true,
		"L: " + poll + "mov.u32 %r2, 1; @p bra D; bra L; D: ret;": true,
		poll + "ret;":                     false,
		poll + "@!p bra D; D: ret;":       false,
		poll:                              false,
		poll + "@p bra D; D: ret;":        false,
		"D: " + poll + "@p bra D;":        false,
		"L: " + poll + "@p bra L; bra L;": false,
		"L: " + poll + "setp.eq.u32 p, %r2, 1; @!p bra L; ret;":            false,
		"L: " + poll + "@q bra D; @!p bra L; D: ret;":                      false,
		"L: add.u32 %r2, %r2, 1; @q bra D; " + poll + "@!p bra L; D: ret;": false,
		"L: add.u32 %r2, %r2, 1; @q exit; " + poll + "@!p bra L; ret;":     false,
		"L: mov.u32 %r2, 1; @q " + poll + "@!p bra L; ret;":                false,
	} {
		f := kernel(t, body)
		at := slices.IndexFunc(f.Code, func(in Instruction) bool { return in.Opcode == "setp" })
		if got := f.LoopsUntil(at, f.Code[at].Operands[0].Register); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}

func TestTestedRegisters(t *testing.T) {
	f := kernel(t, "setp.eq.u32 p, %r1, 1; setp.eq.u32 q, %r2, 1; @q mov.u32 %r3, 1;")
	if diff := cmp.Diff([]string{"%r1", "%r2", "q"}, marked(f, f.TestedRegisters())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnsetRegisters(t *testing.T) {
	for body, want := range map[string][]string{
		"mov.u32 %r1, 1; st.u32 [%rd1], %r1;":                                                    {"%rd1"},
		"@p mov.u32 %r1, 1; mov.u32 %r2, %r1;":                                                   {"%r1", "p"},
		"mov.u32 %r1, 1; L: add.u32 %r1, %r1, 1; @p bra L;":                                      {"p"},
		"L: add.u32 %r1, %r1, 1; setp.eq.u32 p, %r1, 3; @p bra L;":                               {"%r1"},
		"bra M; L: mov.u32 %r2, %r1; ret; M: mov.u32 %r1, 1; bra L;":                             nil,
		"setp.eq.u32 p, 1, 2; @p bra M; mov.u32 %r1, 1; M: mov.u32 %r2, %r1;":                    {"%r1"},
		"ld.v2.u32 {%r1, %r2}, [%rd1+4]; add.u32 %r3, %r1, %r2;":                                 {"%rd1"},
		"setp.eq.u32 p, 1, 2; @p bra M; mov.u32 %r1, 1; mov.u32 %r2, %r1; M: exit;":              nil,
		"setp.eq.u32 p, 1, 2; @!p ret; mov.u32 %r1, 1; @p bra M; ret; M: add.u32 %r2, %r1, %r1;": nil,
	} {
		f := kernel(t, body)
		var got []string
		l := f.Liveness()
		for _, r := range l.UnsetRegisters(f) {
			got = append(got, f.Registers[r].Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	f := kernel(t, "mov.u32 %r1, 1; setp.eq.u32 p, 1, 2; @p bra M; mov.u32 %r2, %r1; M: exit;")
	l := f.Liveness()
	r := f.Code[0].Operands[0].Register
	if !l.Start(3) || l.Start(1) || !l.Live(r, 3) || l.Live(r, 4) || l.Live(r, 0) {
		t.Errorf("%%r1 is live at %v, %v, %v", l.Live(r, 3), l.Live(r, 4), l.Live(r, 0))
	}
}
