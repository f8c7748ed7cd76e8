package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestBranches(t *testing.T) {
	check := func(name, body string, want func(thread uint32) uint32) {
		t.Helper()
		schedules(t, name, setup{text: kernel(storing(body)), threads: 64}, each(64, want))
	}
	check("two sides", `
	setp.lt.u32 %p1, %r0, 20;
	@%p1 bra LOW;
	mov.u32 %r1, 1;
	bra JOIN;
LOW:
	mov.u32 %r1, 2;
JOIN:
	add.u32 %r1, %r1, 10;`, func(i uint32) uint32 {
		if i < 20 {
			return 12
		}
		return 11
	})
	check("nested branches", `
	mov.u32 %r1, 0;
	and.b32 %r2, %r0, 1;
	setp.eq.u32 %p1, %r2, 0;
	@%p1 bra END;
	and.b32 %r2, %r0, 2;
	setp.eq.u32 %p2, %r2, 0;
	@%p2 bra INNER;
	and.b32 %r2, %r0, 4;
	setp.eq.u32 %p3, %r2, 0;
	@%p3 bra DEEP;
	add.u32 %r1, %r1, 4;
DEEP:
	add.u32 %r1, %r1, 2;
INNER:
	add.u32 %r1, %r1, 1;
END:
	add.u32 %r1, %r1, 100;`, func(i uint32) uint32 {
		n := uint32(100)
		if i&1 != 0 {
			if i&2 != 0 {
				if i&4 != 0 {
					n += 4
				}
				n += 2
			}
			n++
		}
		return n
	})
	check("loops of different length with break and continue", `
	mov.u32 %r1, 0;
	mov.u32 %r2, 0;
LOOP:
	setp.ge.u32 %p1, %r2, %r0;
	@%p1 bra END;
	add.u32 %r2, %r2, 1;
	and.b32 %r3, %r2, 3;
	setp.eq.u32 %p2, %r3, 0;
	@%p2 bra LOOP;
	setp.gt.u32 %p3, %r1, 200;
	@%p3 bra END;
	add.u32 %r1, %r1, %r2;
	bra LOOP;
END:`, func(i uint32) uint32 {
		sum := uint32(0)
		for j := uint32(0); j < i; {
			j++
			if j&3 == 0 {
				continue
			}
			if sum > 200 {
				break
			}
			sum += j
		}
		return sum
	})
	check("nested loops", `
	mov.u32 %r1, 0;
	mov.u32 %r2, 0;
	and.b32 %r5, %r0, 7;
OUTER:
	setp.gt.u32 %p1, %r2, %r5;
	@%p1 bra END;
	mov.u32 %r3, 0;
INNER:
	setp.ge.u32 %p2, %r3, %r2;
	@%p2 bra NEXT;
	mad.lo.u32 %r1, %r1, 3, %r3;
	add.u32 %r3, %r3, 1;
	bra INNER;
NEXT:
	add.u32 %r2, %r2, 1;
	bra OUTER;
END:`, func(i uint32) uint32 {
		n := uint32(0)
		for a := uint32(0); a <= i&7; a++ {
			for b := range a {
				n = n*3 + b
			}
		}
		return n
	})
	check("a uniform branch", `
	mov.u32 %r2, 5;
	setp.gt.u32 %p1, %r2, 4;
	@!%p1 bra NEVER;
	add.u32 %r1, %r0, 7;
	bra END;
NEVER:
	trap;
END:`, func(i uint32) uint32 { return i + 7 })
	check("an indexed branch", `
	mov.u32 %r1, 1000;
	rem.u32 %r2, %r0, 5;
	setp.lt.u32 %p1, %r2, 4;
	TARGETS: .branchtargets A, B, C, A;
	@%p1 brx.idx %r2, TARGETS;
	add.u32 %r1, %r1, 1;
A:
	add.u32 %r1, %r1, 10;
B:
	add.u32 %r1, %r1, 100;
C:
	add.u32 %r1, %r1, 5000;`, func(i uint32) uint32 { return []uint32{6110, 6100, 6000, 6110, 6111}[i%5] })
	check("guards", `
	mov.u32 %r1, %r0;
	setp.gt.u32 %p1, %r0, 9;
	@%p1 add.u32 %r1, %r1, 1000;
	@!%p1 mul.lo.u32 %r1, %r1, 3;
	@!%p1 bra SMALL;
	add.u32 %r1, %r1, 1;
SMALL:`, func(i uint32) uint32 {
		if i > 9 {
			return i + 1001
		}
		return 3 * i
	})
}

// TestReconvergence checks the active mask: after a branch all lanes that diverged there have
// reconverged.
func TestReconvergence(t *testing.T) {
	check := func(name, body string, want func(thread uint32) uint32) {
		t.Helper()
		schedules(t, name, setup{text: kernel(storing(body))}, each(32, want))
	}
	all := func(uint32) uint32 { return everyLane }
	check("after two sides", `
	setp.lt.u32 %p1, %r0, 20;
	@%p1 bra LOW;
	mov.u32 %r2, 1;
	bra JOIN;
LOW:
	mov.u32 %r2, 2;
JOIN:
	activemask.b32 %r1;`, all)
	check("after a loop", `
	mov.u32 %r2, 0;
LOOP:
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, %r0;
	@%p1 bra LOOP;
	activemask.b32 %r1;`, all)
	check("after a loop with two exits", `
	mov.u32 %r2, 0;
LOOP:
	setp.gt.u32 %p2, %r2, 11;
	@%p2 bra END;
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, %r0;
	@%p1 bra LOOP;
	mov.u32 %r3, 1;
END:
	activemask.b32 %r1;`, all)
	check("inside one side", `
	setp.lt.u32 %p1, %r0, 20;
	@!%p1 bra END;
	and.b32 %r2, %r0, 1;
	setp.eq.u32 %p2, %r2, 0;
	@%p2 bra INNER;
	add.u32 %r2, %r2, 1;
INNER:
	activemask.b32 %r1;
	bra OUT;
END:
	activemask.b32 %r1;
OUT:`, func(i uint32) uint32 {
		if i < 20 {
			return 1<<20 - 1
		}
		return ^uint32(1<<20 - 1)
	})
	check("after lanes have ended", `
	setp.eq.u32 %p1, %r0, 3;
	mov.u32 %r1, 77;
	@%p1 st.global.u32 [%rd31], %r1;
	@%p1 exit;
	setp.lt.u32 %p2, %r0, 9;
	@%p2 bra JOIN;
	add.u32 %r2, %r0, 1;
JOIN:
	activemask.b32 %r1;`, func(i uint32) uint32 {
		if i == 3 {
			return 77
		}
		return everyLane &^ (1 << 3)
	})
	check("after an indexed branch", `
	and.b32 %r2, %r0, 1;
	TARGETS: .branchtargets A, B;
	brx.idx %r2, TARGETS;
A:
	add.u32 %r3, %r0, 1;
B:
	activemask.b32 %r1;`, all)
	// Lanes diverge in each iteration and reconverge at its end, so each iteration begins with all
	// lanes that are left.
	check("in each iteration of a loop", `
	mov.u32 %r1, 0;
	mov.u32 %r2, 0;
LOOP:
	activemask.b32 %r3;
	popc.b32 %r4, %r3;
	add.u32 %r1, %r1, %r4;
	and.b32 %r3, %r0, 1;
	setp.eq.u32 %p2, %r3, 0;
	@%p2 bra EVEN;
	add.u32 %r5, %r5, 1;
EVEN:
	add.u32 %r2, %r2, 1;
	setp.le.u32 %p1, %r2, %r0;
	@%p1 bra LOOP;`, func(i uint32) uint32 {
		sum := uint32(0)
		for round := range i + 1 {
			sum += 32 - round
		}
		return sum
	})
}

// TestIndependentLanes tests code in which lanes of one warp wait for each other. Every lane must
// make progress, whichever is scheduled first.
func TestIndependentLanes(t *testing.T) {
	check := func(name string, g setup, want func(thread uint32) uint32) {
		t.Helper()
		g.threads = max(g.threads, 32)
		schedules(t, name, g, each(g.threads, want))
	}
	// The owner of the lock updates a word with plain accesses.
	lock := func(threads int) setup {
		const words = ".shared .align 4 .u32 lock;\n.shared .align 4 .u32 held;"
		return setup{threads: threads, schedules: 4, text: kernelWith(words, storing(`
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra BEGIN;
	st.shared.u32 [lock], 0;
	st.shared.u32 [held], 0;
BEGIN:
	bar.sync 0;
LOOP:
	atom.shared.acquire.cta.cas.b32 %r2, [lock], 0, 1;
	setp.ne.u32 %p2, %r2, 0;
	@%p2 bra LOOP;
	ld.shared.u32 %r3, [held];
	add.u32 %r3, %r3, %r0;
	st.shared.u32 [held], %r3;
	fence.acq_rel.cta;
	atom.shared.release.cta.exch.b32 %r4, [lock], 0;
	bar.sync 0;
	ld.shared.u32 %r1, [held];`))}
	}
	check("a lock in one warp", lock(32), func(uint32) uint32 { return 31 * 32 / 2 })
	check("a lock in two warps", lock(40), func(uint32) uint32 { return 39 * 40 / 2 })
	// The lanes of one side wait for a store of the other side, whichever runs first.
	for _, waits := range []string{"@%p1", "@!%p1"} {
		check("a flag between two sides of a branch, "+waits, setup{text: kernelWith(".shared .align 4 .u32 flag;\n.shared .align 4 .u32 data;", storing(`
	setp.eq.u32 %p3, %r0, 0;
	@%p3 st.shared.u32 [flag], 0;
	bar.warp.sync -1;
	setp.lt.u32 %p1, %r0, 7;
	`+waits+` bra WAIT;
	setp.eq.u32 %p4, %r0, 12;
	setp.eq.or.u32 %p4, %r0, 2, %p4;
	@!%p4 bra JOIN;
	st.shared.u32 [data], 41;
	st.release.cta.shared.u32 [flag], 1;
	bra JOIN;
WAIT:
	ld.acquire.cta.shared.u32 %r2, [flag];
	setp.eq.u32 %p2, %r2, 0;
	@%p2 bra WAIT;
	ld.shared.u32 %r3, [data];
	add.u32 %r3, %r3, 1;
JOIN:
	bar.warp.sync -1;
	ld.shared.u32 %r1, [data];`))}, func(uint32) uint32 { return 41 })
	}
	// Each lane waits for the lane before it.
	check("a chain of lanes", setup{text: kernelWith(".shared .align 4 .u32 turn;", storing(`
	setp.eq.u32 %p1, %r0, 0;
	@%p1 st.shared.u32 [turn], 0;
	bar.warp.sync -1;
WAIT:
	ld.volatile.shared.u32 %r2, [turn];
	setp.ne.u32 %p2, %r2, %r0;
	@%p2 bra WAIT;
	add.u32 %r3, %r2, 1;
	st.volatile.shared.u32 [turn], %r3;
	mov.u32 %r1, %r3;`))}, func(i uint32) uint32 { return i + 1 })
}

// TestBlockCommunication has blocks wait for each other through global memory.
func TestBlockCommunication(t *testing.T) {
	const blocks = 9
	text := kernelWith(".global .align 4 .u32 flag;\n.global .align 4 .u32 data;", `
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra END;
	setp.eq.u32 %p2, %r61, 5;
	@%p2 bra WRITER;
WAIT:
	ld.acquire.gpu.global.u32 %r2, [flag];
	setp.eq.u32 %p3, %r2, 0;
	@%p3 bra WAIT;
	bra READ;
WRITER:
	st.global.u32 [data], 99;
	st.release.gpu.global.u32 [flag], 1;
READ:
	ld.global.u32 %r1, [data];
	mad.wide.u32 %rd5, %r61, 4, %rd0;
	st.global.u32 [%rd5], %r1;
END:
	ret;`)
	schedules(t, "a flag between blocks", setup{text: text, blocks: blocks, out: blocks, cooperative: true}, each(blocks, func(uint32) uint32 { return 99 }))

	// Only the last block to arrive sees that all have arrived.
	text = kernelWith(".global .align 4 .u32 count;\n.global .align 4 .u32 sums[9];", `
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra END;
	mov.u64 %rd2, sums;
	mad.wide.u32 %rd3, %r61, 4, %rd2;
	st.global.u32 [%rd3], %r61;
	fence.acq_rel.gpu;
	atom.global.add.u32 %r2, [count], 1;
	fence.acq_rel.gpu;
	setp.ne.u32 %p2, %r2, 8;
	@%p2 bra END;
	mov.u32 %r1, 0;
	mov.u32 %r3, 0;
SUM:
	ld.global.u32 %r4, [%rd2];
	add.u32 %r1, %r1, %r4;
	add.s64 %rd2, %rd2, 4;
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p3, %r3, 9;
	@%p3 bra SUM;
	st.global.u32 [%rd0], %r1;
END:
	ret;`)
	schedules(t, "the last block", setup{text: text, blocks: blocks, out: 1}, []uint32{36})
}

// program is a random program without input, as PTX and as a function of the thread index.
type program struct {
	random *rand.Rand
	ptx    strings.Builder
	labels int
}

// variables is the number of variables of a program, %r2 to %r6.
const variables = 5

// state has the variables of one thread.
type state [variables]uint32

// step runs a part of a program, and returns whether it ended with break, continue or neither.
type step func(*state) leave

type leave int

const (
	onward leave = iota
	breaking
	continuing
)

func (p *program) label() string {
	p.labels++
	return fmt.Sprintf("L%d", p.labels)
}

func (p *program) emit(format string, args ...any) { fmt.Fprintf(&p.ptx, format+"\n", args...) }

// block emits a sequence of statements. In a loop, out and again are the targets of break and
// continue.
func (p *program) block(depth int, out, again string) step {
	var steps []step
	for range 1 + p.random.IntN(4) {
		steps = append(steps, p.statement(depth, out, again))
	}
	return func(s *state) leave {
		for _, f := range steps {
			if l := f(s); l != onward {
				return l
			}
		}
		return onward
	}
}

func (p *program) statement(depth int, out, again string) step {
	choice := p.random.IntN(10)
	switch {
	case depth > 0 && choice < 3:
		return p.branch(depth, out, again)
	case depth > 0 && choice < 5:
		return p.loop(depth)
	case out != "" && choice < 7:
		return p.jump(out, again)
	}
	a, b, k := p.random.IntN(variables), p.random.IntN(variables), p.random.Uint32N(1000)
	p.emit("\tmad.lo.u32 %%r%d, %%r%d, %d, %d;", a+2, b+2, k|1, k)
	return func(s *state) leave {
		s[a] = s[b]*(k|1) + k
		return onward
	}
}

// condition emits a condition that differs between threads, and returns its predicate.
func (p *program) condition() (string, func(*state) bool) {
	v, bit := p.random.IntN(variables), p.random.IntN(7)
	name := fmt.Sprintf("%%p%d", 1+p.random.IntN(15))
	p.emit("\tand.b32 %%r10, %%r%d, %d;\n\tsetp.ne.u32 %s, %%r10, 0;", v+2, 1<<bit, name)
	return name, func(s *state) bool { return s[v]>>bit&1 != 0 }
}

func (p *program) branch(depth int, out, again string) step {
	pred, holds := p.condition()
	other, join := p.label(), p.label()
	p.emit("\t@!%s bra %s;", pred, other)
	then := p.block(depth-1, out, again)
	p.emit("\tbra %s;\n%s:", join, other)
	otherwise := p.block(depth-1, out, again)
	p.emit("%s:", join)
	return func(s *state) leave {
		if holds(s) {
			return then(s)
		}
		return otherwise(s)
	}
}

// loop emits a loop whose number of iterations differs between threads, with its own counter
// register.
func (p *program) loop(depth int) step {
	v, most := p.random.IntN(variables), uint32(1+p.random.IntN(6))
	counter := fmt.Sprintf("%%r%d", 20+depth)
	head, out := p.label(), p.label()
	p.emit("\trem.u32 %s, %%r%d, %d;\n%s:", counter, v+2, most+1, head)
	p.emit("\tsetp.eq.u32 %%p0, %s, 0;\n\t@%%p0 bra %s;\n\tsub.u32 %s, %s, 1;", counter, out, counter, counter)
	body := p.block(depth-1, out, head)
	p.emit("\tbra %s;\n%s:", head, out)
	return func(s *state) leave {
		for n := s[v] % (most + 1); n > 0; n-- {
			if body(s) == breaking {
				break
			}
		}
		return onward
	}
}

func (p *program) jump(out, again string) step {
	pred, holds := p.condition()
	target, how := out, breaking
	if p.random.IntN(2) == 0 {
		target, how = again, continuing
	}
	p.emit("\t@%s bra %s;", pred, target)
	return func(s *state) leave {
		if holds(s) {
			return how
		}
		return onward
	}
}

// TestRandomPrograms compares structured programs of nested branches and loops with the same
// programs run one thread at a time. At the end all lanes must have reconverged.
func TestRandomPrograms(t *testing.T) {
	programs := 150
	if testing.Short() {
		programs = 20
	}
	for n := range programs {
		p := &program{random: rand.New(rand.NewPCG(uint64(n), 1))}
		p.emit("\tmov.u32 %%r20, 0;")
		for v := range variables {
			p.emit("\tmad.lo.u32 %%r%d, %%r0, %d, %d;", v+2, 2*v+3, 17*v)
		}
		body := p.block(4, "", "")
		p.emit("\tactivemask.b32 %%r1;")
		for v := range variables {
			p.emit("\tmad.lo.u32 %%r1, %%r1, 31, %%r%d;", v+2)
		}
		const threads = 64
		want := each(threads, func(thread uint32) uint32 {
			var s state
			for v := range s {
				s[v] = thread*uint32(2*v+3) + uint32(17*v)
			}
			body(&s)
			sum := everyLane
			for _, v := range s {
				sum = sum*31 + v
			}
			return sum
		})
		schedules(t, fmt.Sprintf("program %d", n), setup{text: kernel(storing(p.ptx.String())), threads: threads}, want)
	}
}

// TestGridBarrier synchronises all blocks of a grid at the barrier that the driver provides.
func TestGridBarrier(t *testing.T) {
	t.Parallel()
	body := `
	mov.u32 %r2, %envreg1;
	mov.u32 %r3, %envreg2;
	mov.b64 %rd2, {%r3, %r2};
	ld.global.u32 %r4, [%rd2];
	st.global.u32 [%rd31], %r63;
	bar.sync 0;
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra SYNCED;
	membar.gl;
	atom.global.add.u32 %r5, [%rd2+4], 1;
WAIT:
	ld.volatile.global.u32 %r5, [%rd2+4];
	setp.lt.u32 %p2, %r5, 5;
	@%p2 bra WAIT;
	membar.gl;
SYNCED:
	bar.sync 0;
	add.u32 %r6, %r63, 48;
	rem.u32 %r6, %r6, 240;
	mad.wide.u32 %rd3, %r6, 4, %rd0;
	ld.global.u32 %r1, [%rd3];
	add.u32 %r1, %r1, %r4;
	st.global.u32 [%rd31+960], %r1;
	ret;`
	text := kernel(body)
	want := append(each(240, func(i uint32) uint32 { return i }), each(240, func(i uint32) uint32 { return (i+48)%240 + 8 })...)
	schedules(t, "five blocks", setup{text: text, blocks: 5, threads: 48, out: 480, cooperative: true}, want)
	early := strings.Replace(text, "%r5, 5;", "%r5, 4;", 1)
	if got := simulate(t, setup{text: early, blocks: 5, threads: 48, out: 480, writtenBefore: true, cooperative: true}); got.kinds() != "race" {
		t.Errorf("findings of a barrier for four of five blocks: %v", got.findings)
	}
}

// Outside of a cooperative launch the address of the grid's barrier is null, as on a GPU. Cooperative
// groups then trap; other kernels access the null page.
func TestGridBarrierWithoutCooperativeLaunch(t *testing.T) {
	t.Parallel()
	const (
		address = "mov.u32 %r2, %envreg1;\n mov.u32 %r3, %envreg2;\n mov.b64 %rd2, {%r3, %r2};\n"
		hint    = "a grid barrier needs a cooperative launch, and this one is not: set cooperative = true in [launch]"
	)
	_, err := try(t, setup{text: kernel(storing(address + "setp.eq.u64 %p1, %rd2, 0;\n @%p1 trap;\n mov.u32 %r1, 1;"))})
	if err == nil || !strings.Contains(err.Error(), hint) {
		t.Errorf("a trap: %v", err)
	}
	got := simulate(t, setup{text: kernel(storing(address + "atom.global.add.u32 %r1, [%rd2+4], 1;"))})
	if got.kinds() != "out-of-bounds" || !strings.Contains(got.findings[0].Detail, hint) {
		t.Errorf("an access: %v", got.findings)
	}
	got = simulate(t, setup{text: kernel(storing(address + "mov.u64 %rd2, 8;\n ld.global.u32 %r1, [%rd2];")), cooperative: true})
	if got.kinds() != "out-of-bounds" || strings.Contains(got.findings[0].Detail, hint) {
		t.Errorf("an access in a cooperative launch: %v", got.findings)
	}
}
