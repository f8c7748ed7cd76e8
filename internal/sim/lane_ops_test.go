package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"attune/internal/ptx"
	"attune/internal/sim/arith"
	"attune/internal/sim/count"
	"attune/internal/sim/lanes"
)

// TestLaneOps compares the operations in compact form with package arith, with all lanes active and
// with some of them inactive.
func TestLaneOps(t *testing.T) {
	t.Parallel()
	for _, name := range lanes.Names() {
		checkLaneOp(t, name, mustLookupArith(name))
	}
}

func mustLookupArith(name string) arith.Op {
	words := strings.Split(name, ".")
	op, err := arith.Lookup(words[0], words[1:])
	if err != nil {
		panic(fmt.Sprintf("BUG: %s has a compact form but arith does not support it: %v", name, err))
	}
	return op
}

// laneOpKernel returns a kernel that executes an instruction three times: with all lanes, with the
// lanes of a mask, and with the first operand as the destination where the types allow it.
func laneOpKernel(name string, op arith.Op) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "\t"+format+";\n", args...) }
	line("mad.wide.u32 %%rd2, %%r63, 32, %%rd1")
	line("mad.wide.u32 %%rd3, %%r63, 24, %%rd0")
	var args []string
	for i, a := range op.Args {
		switch fileOf(a) {
		case file64:
			line("ld.global.u64 %%rd%d, [%%rd2+%d]", 10+i, 8*i)
			args = append(args, fmt.Sprintf("%%rd%d", 10+i))
		case filePred:
			line("ld.global.u32 %%r%d, [%%rd2+%d]", 10+i, 8*i)
			line("and.b32 %%r%d, %%r%d, 1", 10+i, 10+i)
			line("setp.ne.u32 %%p%d, %%r%d, 0", 10+i, 10+i)
			args = append(args, fmt.Sprintf("%%p%d", 10+i))
		default:
			register := fmt.Sprintf("%%r%d", 10+i)
			line("ld.global.u32 %s, [%%rd2+%d]", register, 8*i)
			if a.Bits() == 16 {
				line("cvt.u16.u32 %%h%d, %s", 1+i, register)
				register = fmt.Sprintf("%%h%d", 1+i)
			}
			args = append(args, register)
		}
	}
	line("ld.global.u32 %%r5, [%%rd2+24]")
	line("and.b32 %%r5, %%r5, 1")
	line("setp.ne.u32 %%p1, %%r5, 0")
	for i, guard := range []string{"", "@%p1 ", ""} {
		result := [...]string{file32: "%r20", file64: "%rd20", filePred: "%p5"}[fileOf(op.Result)]
		if i == 2 && op.Args[0] == op.Result {
			result = args[0]
		}
		sources := strings.Join(args, ", ")
		line("mov.u32 %%r20, 7")
		line("mov.u64 %%rd20, 7")
		line("setp.eq.u32 %%p5, %%r20, 7")
		line("%s%s %s, %s", guard, name, result, sources)
		switch fileOf(op.Result) {
		case filePred:
			line("selp.u32 %%r6, 1, 0, %s", result)
			line("cvt.u64.u32 %%rd20, %%r6")
			result = "%rd20"
		case file32:
			line("cvt.u64.u32 %%rd21, %s", result)
			result = "%rd21"
		}
		line("st.global.u64 [%%rd3+%d], %s", 8*i, result)
	}
	line("ret")
	return kernel(b.String())
}

func checkLaneOp(t *testing.T, name string, op arith.Op) {
	t.Helper()
	warps := 150
	if testing.Short() {
		warps = 40
	}
	text := laneOpKernel(name, op)
	checkCompact(t, name, text)
	random := rand.New(rand.NewPCG(1, uint64(len(name))))
	in := make([]uint32, 32*warps*8)
	for thread := range 32 * warps {
		for i := range op.Args {
			value := drawOperand(random, op.Args[i])
			in[8*thread+2*i], in[8*thread+2*i+1] = uint32(value), uint32(value>>32)
		}
		in[8*thread+6] = random.Uint32()
	}
	got := simulate(t, setup{text: text, blocks: warps, in: in, out: 32 * warps * 6})
	unset := uint64(7)
	if op.Result == ptx.Pred {
		unset = 1
	}
	for thread := range 32 * warps {
		var x [4]uint64
		for i, a := range op.Args {
			x[i] = (uint64(in[8*thread+2*i]) | uint64(in[8*thread+2*i+1])<<32) & typeMask(a)
		}
		whole := op.Func(x[0], x[1], x[2], x[3])
		want := [3]uint64{whole, unset, whole}
		if in[8*thread+6]&1 != 0 {
			want[1] = whole
		}
		for i, w := range want {
			word := 6*thread + 2*i
			if g := uint64(got.out[word]) | uint64(got.out[word+1])<<32; g != w {
				t.Errorf("%s of %#x: execution %d has %#x, arith has %#x", name, x[:len(op.Args)], i, g, w)
				return
			}
		}
	}
}

// checkCompact checks that the instruction under test has its compact form.
func checkCompact(t *testing.T, name, text string) {
	t.Helper()
	module, err := ptx.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, numbered(text))
	}
	p, err := Load(module, "")
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, numbered(text))
	}
	c := p.codes[module.Functions[0]]
	slow := reflect.ValueOf(runALU).Pointer()
	for i := range c.ops {
		if i < len(c.fn.Code) && strings.HasPrefix(c.fn.Text(i), name+" ") && reflect.ValueOf(c.ops[i].run).Pointer() == slow {
			t.Errorf("%s has no compact form: %s", name, c.fn.Text(i))
		}
	}
}

// drawOperand draws an operand. Half of them are near the ends of the type's range.
func drawOperand(random *rand.Rand, t ptx.Type) uint64 {
	edges := []uint64{0, 1, 2, 31, 32, 33, 63, 64, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0xfffffffe, 1 << 32, 1 << 63, 1<<63 - 1, ^uint64(0)}
	switch t {
	case ptx.F32:
		edges = []uint64{
			0, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 1, 0x80000001, 0x007fffff, 0x00800000,
			0x80800000, 0x7f7fffff, 0xff7fffff, 0x3f800001, 0x33800000, 0x34000000, 0x4b800000, 0x4b000001, 0x00800001, 0x3effffff,
		}
		// Factors whose product is half way between two floats, tiny addends, and values of similar
		// size.
		switch random.IntN(6) {
		case 0, 1:
			return uint64(math.Float32bits(1 + float32(2*random.IntN(1<<10)+1)/(1<<12)))
		case 2:
			return uint64(math.Float32bits(float32(math.Ldexp(1, -40-random.IntN(60))))) | uint64(random.IntN(2))<<31
		case 3:
			return uint64(math.Float32bits(float32(random.IntN(1<<12)-1<<11) * float32(math.Exp2(float64(random.IntN(5)*12-24)))))
		}
	case ptx.F16:
		return uint64(random.Uint32N(1 << 16))
	}
	if random.IntN(2) == 0 {
		return edges[random.IntN(len(edges))]
	}
	return random.Uint64() >> random.IntN(64)
}

// The compact form has no checker: a checked operation is in no run, in whatever order it gets both.
func TestCheckedOperationsAreInNoRun(t *testing.T) {
	t.Parallel()
	add, _ := lanes.Lookup("add.s32")
	r := slot{file: file32}
	compact := func(o *op) { o.compact(add.Code, r, r, r) }
	check := func(o *op) { o.check(func(*warp, *op, uint32) {}) }
	for name, steps := range map[string][]func(*op){"first": {check, compact}, "last": {compact, check}} {
		o := op{run: runALU, guard: -1, class: count.Integer}
		for _, step := range steps {
			step(&o)
		}
		c := &code{ops: []op{o}}
		if c.findRuns(); c.ops[0].runLength != 0 {
			t.Errorf("checked %s: the operation is in a run of %d", name, c.ops[0].runLength)
		}
		if compacted := o.lane.Code != lanes.None; compacted != (name == "last") { // else runLane replaces the checker
			t.Errorf("checked %s: compact form is %v", name, compacted)
		}
	}
}
