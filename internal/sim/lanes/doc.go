// Package lanes executes the most common register operations of PTX on all 32 lanes of a warp.
//
// An operation has a compact form (Op): a code and the offsets of its registers. The simulator
// executes consecutive operations of a basic block with one call of Registers.Run, so that no
// dispatch happens between them. The work is done in assembly where the processor has AVX2 and
// FMA, and otherwise by the loops of loops.go. Both produce the same bits as package arith.
//
// The package works on registers only. It does not know of memory, of masks of active lanes or of
// the simulator's instructions.
package lanes
