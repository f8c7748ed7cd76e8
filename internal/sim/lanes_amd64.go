package sim

import "golang.org/x/sys/cpu"

// assemblyLoops are loops in assembly for the operations that kernels consist of, where the processor has AVX2 and FMA. They give the same bits as
// the loops in Go, which they stand in for.
func assemblyLoops() map[string]vectorLoop {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		return nil
	}
	two := func(lanes func(d, a, b *v32)) vectorLoop {
		return func(w *warp, o *op) { lanes(&w.r32[o.d], &w.r32[o.a], &w.r32[o.b]) }
	}
	compare := func(lanes func(a, b *v32) uint32) vectorLoop {
		return func(w *warp, o *op) { w.preds[o.d] = lanes(&w.r32[o.a], &w.r32[o.b]) }
	}
	fma := func(w *warp, o *op) { fmaLanes(&w.r32[o.d], &w.r32[o.a], &w.r32[o.b], &w.r32[o.c]) }
	add, sub, equal, less, atLeast := two(addLanes), two(subLanes), compare(equalLanes), compare(lessLanes), compare(atLeastLanes)
	addFloat, subFloat, mulFloat := two(addFloatLanes), two(subFloatLanes), two(mulFloatLanes)
	return map[string]vectorLoop{
		"add.s32": add, "add.u32": add, "sub.s32": sub, "sub.u32": sub,
		"and.b32": two(andLanes), "or.b32": two(orLanes), "xor.b32": two(xorLanes),
		"add.f32": addFloat, "add.rn.f32": addFloat, "sub.f32": subFloat, "sub.rn.f32": subFloat, "mul.f32": mulFloat, "mul.rn.f32": mulFloat,
		"fma.rn.f32": fma, "mad.rn.f32": fma,
		"setp.eq.s32": equal, "setp.eq.u32": equal, "setp.eq.b32": equal,
		"setp.ne.s32": negated(equal), "setp.ne.u32": negated(equal), "setp.ne.b32": negated(equal),
		"setp.lt.s32": less, "setp.gt.s32": swapped(less), "setp.ge.s32": negated(less), "setp.le.s32": negated(swapped(less)),
		"setp.ge.u32": atLeast, "setp.le.u32": swapped(atLeast), "setp.lt.u32": negated(atLeast), "setp.gt.u32": negated(swapped(atLeast)),
	}
}

//go:noescape
func addLanes(d, a, b *v32)

//go:noescape
func subLanes(d, a, b *v32)

//go:noescape
func andLanes(d, a, b *v32)

//go:noescape
func orLanes(d, a, b *v32)

//go:noescape
func xorLanes(d, a, b *v32)

//go:noescape
func addFloatLanes(d, a, b *v32)

//go:noescape
func subFloatLanes(d, a, b *v32)

//go:noescape
func mulFloatLanes(d, a, b *v32)

//go:noescape
func fmaLanes(d, a, b, c *v32)

//go:noescape
func equalLanes(a, b *v32) uint32

//go:noescape
func lessLanes(a, b *v32) uint32

//go:noescape
func atLeastLanes(a, b *v32) uint32
