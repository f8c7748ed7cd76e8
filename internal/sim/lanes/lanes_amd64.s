#include "textflag.h"

// Operations on 32 lanes with AVX2 and FMA. A 32-bit register takes four YMM registers of eight
// lanes, a 64-bit register eight YMM registers of four lanes. The destination may be one of the
// sources.
//
// runAssembly jumps to the code of the first operation, and each operation jumps to the next. They
// keep these registers:
//	R8	the current Op: its code and the offsets of d, a, b and c, 4 bytes each
//	CX	number of operations left
//	R9	the 32-bit register file
//	R10	the 64-bit register file
//	R11	the predicate registers
//	R12	the jump table at the end of this file

#define OPERATION(name) TEXT name<>(SB), NOSPLIT|NOFRAME, $0-0

#define D MOVL 4(R8), DI
#define A MOVL 8(R8), SI
#define B MOVL 12(R8), DX
#define C MOVL 16(R8), BX

#define NEXT \
	ADDQ $20, R8; \
	SUBQ $1, CX; \
	JEQ  last; \
	MOVL (R8), AX; \
	MOVQ (R12)(AX*8), AX; \
	JMP  AX; \
last: \
	VZEROUPPER; \
	RET

// func runAssembly(ops *Op, n int, r32 *V32, r64 *V64, preds *uint32)
TEXT ·runAssembly(SB), NOSPLIT, $0-40
	MOVQ ops+0(FP), R8
	MOVQ n+8(FP), CX
	MOVQ r32+16(FP), R9
	MOVQ r64+24(FP), R10
	MOVQ preds+32(FP), R11
	LEAQ table<>(SB), R12
	MOVL (R8), AX
	MOVQ (R12)(AX*8), AX
	JMP  AX

// Go's assembler takes the operands in the reverse of Intel's order: the destination is last.
#define LOAD(file, at, y0, y1, y2, y3) \
	VMOVDQU 0(file)(at*1), y0; VMOVDQU 32(file)(at*1), y1; VMOVDQU 64(file)(at*1), y2; VMOVDQU 96(file)(at*1), y3
#define STORE(file, at) \
	VMOVDQU Y0, 0(file)(at*1); VMOVDQU Y1, 32(file)(at*1); VMOVDQU Y2, 64(file)(at*1); VMOVDQU Y3, 96(file)(at*1)
#define LOADMORE(file, at, y0, y1, y2, y3) \
	VMOVDQU 128(file)(at*1), y0; VMOVDQU 160(file)(at*1), y1; VMOVDQU 192(file)(at*1), y2; VMOVDQU 224(file)(at*1), y3
#define STOREMORE(file, at) \
	VMOVDQU Y0, 128(file)(at*1); VMOVDQU Y1, 160(file)(at*1); VMOVDQU Y2, 192(file)(at*1); VMOVDQU Y3, 224(file)(at*1)

#define TWO(instruction) \
	D; A; B; \
	LOAD(R9, SI, Y0, Y1, Y2, Y3); \
	instruction 0(R9)(DX*1), Y0, Y0; instruction 32(R9)(DX*1), Y1, Y1; \
	instruction 64(R9)(DX*1), Y2, Y2; instruction 96(R9)(DX*1), Y3, Y3

#define INTEGERS(name, instruction) OPERATION(name); TWO(instruction); STORE(R9, DI); NEXT

INTEGERS(add32, VPADDD)
INTEGERS(sub32, VPSUBD)
INTEGERS(mul32, VPMULLD)
INTEGERS(and32, VPAND)
INTEGERS(or32, VPOR)
INTEGERS(xor32, VPXOR)
INTEGERS(shl32, VPSLLVD)
INTEGERS(shrU32, VPSRLVD)
INTEGERS(shrS32, VPSRAVD)
INTEGERS(minS32, VPMINSD)
INTEGERS(maxS32, VPMAXSD)
INTEGERS(minU32, VPMINUD)
INTEGERS(maxU32, VPMAXUD)

OPERATION(mov32)
	D; A
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	STORE(R9, DI)
	NEXT

OPERATION(mad32)
	TWO(VPMULLD)
	C
	VPADDD 0(R9)(BX*1), Y0, Y0
	VPADDD 32(R9)(BX*1), Y1, Y1
	VPADDD 64(R9)(BX*1), Y2, Y2
	VPADDD 96(R9)(BX*1), Y3, Y3
	STORE(R9, DI)
	NEXT

// The chip's NaN in eight lanes.
DATA nan8<>+0(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+8(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+16(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+24(SB)/8, $0x7FFFFFFF7FFFFFFF
GLOBL nan8<>(SB), RODATA|NOPTR, $32

// Replaces every NaN in Y0 to Y3 by the chip's NaN. The branch skips the common case of no NaN.
#define CHIPNAN \
	VCMPPS $3, Y1, Y0, Y4; VCMPPS $3, Y3, Y2, Y5; VORPS Y5, Y4, Y4; \
	VMOVMSKPS Y4, AX; TESTL AX, AX; JEQ numbers; \
	VMOVUPS nan8<>(SB), Y8; \
	VCMPPS $3, Y0, Y0, Y4; VCMPPS $3, Y1, Y1, Y5; VCMPPS $3, Y2, Y2, Y6; VCMPPS $3, Y3, Y3, Y7; \
	VBLENDVPS Y4, Y8, Y0, Y0; VBLENDVPS Y5, Y8, Y1, Y1; VBLENDVPS Y6, Y8, Y2, Y2; VBLENDVPS Y7, Y8, Y3, Y3; \
numbers:

#define FLOATS(name, instruction) OPERATION(name); TWO(instruction); CHIPNAN; STORE(R9, DI); NEXT

FLOATS(addF32, VADDPS)
FLOATS(subF32, VSUBPS)
FLOATS(mulF32, VMULPS)

OPERATION(fmaF32)
	D; A; B; C
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	LOAD(R9, DX, Y4, Y5, Y6, Y7)
	VFMADD213PS 0(R9)(BX*1), Y4, Y0 // Y0 = Y0*Y4 + c
	VFMADD213PS 32(R9)(BX*1), Y5, Y1
	VFMADD213PS 64(R9)(BX*1), Y6, Y2
	VFMADD213PS 96(R9)(BX*1), Y7, Y3
	CHIPNAN
	STORE(R9, DI)
	NEXT

// Minimum or maximum of a in y and b in z, into y. compare selects a over b. For equal operands the
// result is "both" of the two, which differs from them only for zeros of different sign: OR gives
// -0 for the minimum, AND gives +0 for the maximum. If one operand is NaN the result is the other.
#define CHOOSE(compare, both, y, z) \
	VCMPPS compare, z, y, Y8; \
	VCMPPS $0, z, y, Y9; \
	VCMPPS $3, z, z, Y10; \
	both z, y, Y11; \
	VBLENDVPS Y8, y, z, z; \
	VBLENDVPS Y9, Y11, z, z; \
	VBLENDVPS Y10, y, z, y

#define MINMAX(name, compare, both) \
	OPERATION(name); \
	D; A; B; \
	LOAD(R9, SI, Y0, Y1, Y2, Y3); \
	LOAD(R9, DX, Y4, Y5, Y6, Y7); \
	CHOOSE(compare, both, Y0, Y4); CHOOSE(compare, both, Y1, Y5); CHOOSE(compare, both, Y2, Y6); CHOOSE(compare, both, Y3, Y7); \
	CHIPNAN; \
	STORE(R9, DI); \
	NEXT

MINMAX(minF32, $17, VORPS)
MINMAX(maxF32, $30, VANDPS)

// The maximum, or NaN if one operand is NaN.
#define CHOOSENAN(y, z) \
	VCMPPS $3, z, y, Y12; \
	CHOOSE($30, VANDPS, y, z); \
	VORPS Y12, y, y

OPERATION(maxNaNF32)
	D; A; B
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	LOAD(R9, DX, Y4, Y5, Y6, Y7)
	CHOOSENAN(Y0, Y4)
	CHOOSENAN(Y1, Y5)
	CHOOSENAN(Y2, Y6)
	CHOOSENAN(Y3, Y7)
	CHIPNAN
	STORE(R9, DI)
	NEXT

// fma clamped to [0, 1]. VMAXPS returns the zero for NaN, and for -0.
#define SATURATE(y) VMAXPS Y8, y, y; VMINPS Y9, y, y

OPERATION(fmaSatF32)
	D; A; B; C
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	LOAD(R9, DX, Y4, Y5, Y6, Y7)
	VFMADD213PS 0(R9)(BX*1), Y4, Y0 // Y0 = Y0*Y4 + c
	VFMADD213PS 32(R9)(BX*1), Y5, Y1
	VFMADD213PS 64(R9)(BX*1), Y6, Y2
	VFMADD213PS 96(R9)(BX*1), Y7, Y3
	VXORPS Y8, Y8, Y8
	MOVL $0x3F800000, AX // 1
	VMOVD AX, X9
	VPBROADCASTD X9, Y9
	SATURATE(Y0)
	SATURATE(Y1)
	SATURATE(Y2)
	SATURATE(Y3)
	STORE(R9, DI)
	NEXT

// Converts f16 to f32. The fields of an f16, shifted to their places in an f32, represent 2^-112
// times the value. Infinities and NaN get the all-ones exponent of f32 instead.
#define WIDENHALF(y) \
	VPSLLD $13, y, Y4; VPAND Y4, Y12, Y4; \
	VMULPS Y13, Y4, Y4; \
	VPAND y, Y14, Y5; VPCMPEQD Y5, Y14, Y5; \
	VPSRLD $1, Y15, Y6; VPAND Y5, Y6, Y5; \
	VPOR Y5, Y4, Y4; \
	VPSLLD $16, y, y; VPAND y, Y11, y; \
	VPOR Y4, y, y

#define BROADCAST(value, x, y) MOVL value, AX; VMOVD AX, x; VPBROADCASTD x, y

OPERATION(cvtF32F16)
	D; A
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	BROADCAST($0x80000000, X11, Y11)
	BROADCAST($0x0FFFE000, X12, Y12) // exponent and fraction fields
	BROADCAST($0x77800000, X13, Y13) // 2^112
	BROADCAST($0x00007C00, X14, Y14) // exponent field of an f16 infinity
	BROADCAST($0xFF000000, X15, Y15) // exponent field of an f32 infinity, shifted left by one
	WIDENHALF(Y0)
	WIDENHALF(Y1)
	WIDENHALF(Y2)
	WIDENHALF(Y3)
	CHIPNAN
	STORE(R9, DI)
	NEXT

// Flushing of subnormals (.ftz): inputs and results that are subnormal become zeros of the same sign. Like
// the chip, the processor flushes a result that is tiny after rounding with unbounded exponent.
DATA ftz<>+0(SB)/4, $0x9FC0 // MXCSR with FTZ and DAZ
GLOBL ftz<>(SB), RODATA|NOPTR, $4
DATA plain<>+0(SB)/4, $0x1F80 // that of Go
GLOBL plain<>(SB), RODATA|NOPTR, $4

#define FTZ LDMXCSR ftz<>(SB)
#define PLAIN LDMXCSR plain<>(SB)

OPERATION(addFtzF32)
	FTZ; TWO(VADDPS); PLAIN
	CHIPNAN
	STORE(R9, DI)
	NEXT

OPERATION(subFtzF32)
	FTZ; TWO(VSUBPS); PLAIN
	CHIPNAN
	STORE(R9, DI)
	NEXT

OPERATION(mulFtzF32)
	FTZ; TWO(VMULPS); PLAIN
	CHIPNAN
	STORE(R9, DI)
	NEXT

OPERATION(fmaFtzF32)
	D; A; B; C
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	LOAD(R9, DX, Y4, Y5, Y6, Y7)
	FTZ
	VFMADD213PS 0(R9)(BX*1), Y4, Y0 // Y0 = Y0*Y4 + c
	VFMADD213PS 32(R9)(BX*1), Y5, Y1
	VFMADD213PS 64(R9)(BX*1), Y6, Y2
	VFMADD213PS 96(R9)(BX*1), Y7, Y3
	PLAIN
	CHIPNAN
	STORE(R9, DI)
	NEXT

// Flushes a register by a product with 1, which Y15 has.
#define ONES BROADCAST($0x3F800000, X15, Y15)
#define FLUSH(y0, y1, y2, y3) VMULPS Y15, y0, y0; VMULPS Y15, y1, y1; VMULPS Y15, y2, y2; VMULPS Y15, y3, y3

#define MINMAXFTZ(name, compare, both) \
	OPERATION(name); \
	D; A; B; \
	LOAD(R9, SI, Y0, Y1, Y2, Y3); \
	LOAD(R9, DX, Y4, Y5, Y6, Y7); \
	ONES; \
	FTZ; FLUSH(Y0, Y1, Y2, Y3); FLUSH(Y4, Y5, Y6, Y7); PLAIN; \
	CHOOSE(compare, both, Y0, Y4); CHOOSE(compare, both, Y1, Y5); CHOOSE(compare, both, Y2, Y6); CHOOSE(compare, both, Y3, Y7); \
	CHIPNAN; \
	STORE(R9, DI); \
	NEXT

MINMAXFTZ(minFtzF32, $17, VORPS)
MINMAXFTZ(maxFtzF32, $30, VANDPS)

// Changes the sign bits by the constant.
#define SIGN(instruction, constant) \
	BROADCAST(constant, X8, Y8); \
	instruction Y8, Y0, Y0; instruction Y8, Y1, Y1; instruction Y8, Y2, Y2; instruction Y8, Y3, Y3; \
	CHIPNAN; \
	STORE(R9, DI)

OPERATION(absF32)
	D; A
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	SIGN(VPAND, $0x7FFFFFFF)
	NEXT

OPERATION(negF32)
	D; A
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	SIGN(VPXOR, $0x80000000)
	NEXT

OPERATION(absFtzF32)
	D; A
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	ONES
	FTZ; FLUSH(Y0, Y1, Y2, Y3); PLAIN
	SIGN(VPAND, $0x7FFFFFFF)
	NEXT

OPERATION(negFtzF32)
	D; A
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	ONES
	FTZ; FLUSH(Y0, Y1, Y2, Y3); PLAIN
	SIGN(VPXOR, $0x80000000)
	NEXT

OPERATION(cvtF32S32)
	D; A
	VCVTDQ2PS 0(R9)(SI*1), Y0
	VCVTDQ2PS 32(R9)(SI*1), Y1
	VCVTDQ2PS 64(R9)(SI*1), Y2
	VCVTDQ2PS 96(R9)(SI*1), Y3
	STORE(R9, DI)
	NEXT

// Sets bit i of AX to the sign bit of lane i of Y0 to Y3.
#define SIGNS \
	VMOVMSKPS Y0, AX; VMOVMSKPS Y1, BX; VMOVMSKPS Y2, DX; VMOVMSKPS Y3, SI; \
	SHLL $8, BX; SHLL $16, DX; SHLL $24, SI; \
	ORL BX, AX; ORL SI, DX; ORL DX, AX

#define COMPARE(name, comparison, finish) OPERATION(name); comparison; SIGNS; finish; MOVL AX, (R11)(DI*1); NEXT
#define UNCHANGED
#define NEGATED NOTL AX

#define LESS \
	D; A; B; \
	LOAD(R9, DX, Y0, Y1, Y2, Y3); \
	VPCMPGTD 0(R9)(SI*1), Y0, Y0; VPCMPGTD 32(R9)(SI*1), Y1, Y1; VPCMPGTD 64(R9)(SI*1), Y2, Y2; VPCMPGTD 96(R9)(SI*1), Y3, Y3

// Unsigned a >= b: the maximum of a and b equals a.
#define GREATER_EQUAL \
	D; A; B; \
	LOAD(R9, SI, Y4, Y5, Y6, Y7); \
	VPMAXUD 0(R9)(DX*1), Y4, Y0; VPMAXUD 32(R9)(DX*1), Y5, Y1; VPMAXUD 64(R9)(DX*1), Y6, Y2; VPMAXUD 96(R9)(DX*1), Y7, Y3; \
	VPCMPEQD Y4, Y0, Y0; VPCMPEQD Y5, Y1, Y1; VPCMPEQD Y6, Y2, Y2; VPCMPEQD Y7, Y3, Y3

#define COMPARE_FLOATS(how) \
	D; A; B; \
	LOAD(R9, SI, Y0, Y1, Y2, Y3); \
	VCMPPS how, 0(R9)(DX*1), Y0, Y0; VCMPPS how, 32(R9)(DX*1), Y1, Y1; \
	VCMPPS how, 64(R9)(DX*1), Y2, Y2; VCMPPS how, 96(R9)(DX*1), Y3, Y3

COMPARE(eq32, TWO(VPCMPEQD), UNCHANGED)
COMPARE(ne32, TWO(VPCMPEQD), NEGATED)
COMPARE(ltS32, LESS, UNCHANGED)
COMPARE(geS32, LESS, NEGATED)
COMPARE(ltU32, GREATER_EQUAL, NEGATED)
COMPARE(geU32, GREATER_EQUAL, UNCHANGED)
COMPARE(eqF32, COMPARE_FLOATS($0), UNCHANGED)
COMPARE(neuF32, COMPARE_FLOATS($4), UNCHANGED)
COMPARE(ltF32, COMPARE_FLOATS($17), UNCHANGED)
COMPARE(leF32, COMPARE_FLOATS($18), UNCHANGED)

COMPARE(ltuF32, COMPARE_FLOATS($25), UNCHANGED)
COMPARE(leuF32, COMPARE_FLOATS($26), UNCHANGED)

// A comparison sees subnormals as zeros.
#define COMPARE_FLUSHED(how) FTZ; COMPARE_FLOATS(how); PLAIN

COMPARE(eqFtzF32, COMPARE_FLUSHED($0), UNCHANGED)
COMPARE(neuFtzF32, COMPARE_FLUSHED($4), UNCHANGED)
COMPARE(ltFtzF32, COMPARE_FLUSHED($17), UNCHANGED)
COMPARE(leFtzF32, COMPARE_FLUSHED($18), UNCHANGED)
COMPARE(ltuFtzF32, COMPARE_FLUSHED($25), UNCHANGED)
COMPARE(leuFtzF32, COMPARE_FLUSHED($26), UNCHANGED)

// Sets bit i of AX to the sign bit of lane i, of the low lanes in Y0 to Y3 and the high lanes in Y4 to Y7.
#define SIGNS64 \
	VMOVMSKPD Y0, AX; VMOVMSKPD Y1, BX; SHLL $4, BX; ORL BX, AX; \
	VMOVMSKPD Y2, BX; SHLL $8, BX; ORL BX, AX; VMOVMSKPD Y3, BX; SHLL $12, BX; ORL BX, AX; \
	VMOVMSKPD Y4, BX; SHLL $16, BX; ORL BX, AX; VMOVMSKPD Y5, BX; SHLL $20, BX; ORL BX, AX; \
	VMOVMSKPD Y6, BX; SHLL $24, BX; ORL BX, AX; VMOVMSKPD Y7, BX; SHLL $28, BX; ORL BX, AX

#define COMPARE64(name, instruction, first, second, finish) \
	OPERATION(name); \
	D; A; B; \
	LOAD(R10, first, Y0, Y1, Y2, Y3); \
	LOADMORE(R10, first, Y4, Y5, Y6, Y7); \
	instruction 0(R10)(second*1), Y0, Y0; instruction 32(R10)(second*1), Y1, Y1; \
	instruction 64(R10)(second*1), Y2, Y2; instruction 96(R10)(second*1), Y3, Y3; \
	instruction 128(R10)(second*1), Y4, Y4; instruction 160(R10)(second*1), Y5, Y5; \
	instruction 192(R10)(second*1), Y6, Y6; instruction 224(R10)(second*1), Y7, Y7; \
	SIGNS64; \
	finish; \
	MOVL AX, (R11)(DI*1); \
	NEXT

COMPARE64(eq64, VPCMPEQQ, SI, DX, UNCHANGED)
COMPARE64(ne64, VPCMPEQQ, SI, DX, NEGATED)
COMPARE64(ltS64, VPCMPGTQ, DX, SI, UNCHANGED) // b > a
COMPARE64(geS64, VPCMPGTQ, DX, SI, NEGATED)

#define PREDICATES(name, instruction) \
	OPERATION(name); \
	D; A; B; \
	MOVL (R11)(SI*1), AX; \
	instruction (R11)(DX*1), AX; \
	MOVL AX, (R11)(DI*1); \
	NEXT

PREDICATES(andPred, ANDL)
PREDICATES(orPred, ORL)
PREDICATES(xorPred, XORL)

OPERATION(not32)
	D; A
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	VPCMPEQD Y8, Y8, Y8
	VPXOR Y8, Y0, Y0
	VPXOR Y8, Y1, Y1
	VPXOR Y8, Y2, Y2
	VPXOR Y8, Y3, Y3
	STORE(R9, DI)
	NEXT

OPERATION(cvtU32U16)
	D; A
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	BROADCAST($0x0000FFFF, X8, Y8)
	VPAND Y8, Y0, Y0
	VPAND Y8, Y1, Y1
	VPAND Y8, Y2, Y2
	VPAND Y8, Y3, Y3
	STORE(R9, DI)
	NEXT

// The high halves of the products of eight lanes at an offset. Products of even lanes have theirs in odd
// lanes.
#define HIGHPRODUCT(at, y) \
	VMOVDQU at(R9)(SI*1), Y4; VMOVDQU at(R9)(DX*1), Y5; \
	VPSRLQ $32, Y4, Y6; VPSRLQ $32, Y5, Y7; \
	VPMULUDQ Y5, Y4, Y4; VPMULUDQ Y7, Y6, Y6; \
	VPSRLQ $32, Y4, Y4; \
	VPBLENDD $0xAA, Y6, Y4, y

OPERATION(mulHiU32)
	D; A; B
	HIGHPRODUCT(0, Y0)
	HIGHPRODUCT(32, Y1)
	HIGHPRODUCT(64, Y2)
	HIGHPRODUCT(96, Y3)
	STORE(R9, DI)
	NEXT

// The low 64 bits of the products of four lanes: that of the low halves, and the sum of the mixed ones above.
#define PRODUCT64(at, y) \
	VMOVDQU at(R10)(SI*1), Y8; VMOVDQU at(R10)(DX*1), Y9; \
	VPSRLQ $32, Y8, Y10; VPSRLQ $32, Y9, Y11; \
	VPMULUDQ Y9, Y10, Y10; VPMULUDQ Y8, Y11, Y11; \
	VPADDQ Y11, Y10, Y10; VPSLLQ $32, Y10, Y10; \
	VPMULUDQ Y9, Y8, Y8; VPADDQ Y10, Y8, y

OPERATION(mul64)
	D; A; B
	PRODUCT64(0, Y0)
	PRODUCT64(32, Y1)
	PRODUCT64(64, Y2)
	PRODUCT64(96, Y3)
	PRODUCT64(128, Y4)
	PRODUCT64(160, Y5)
	PRODUCT64(192, Y6)
	PRODUCT64(224, Y7)
	STORE(R10, DI)
	VMOVDQU Y4, 128(R10)(DI*1)
	VMOVDQU Y5, 160(R10)(DI*1)
	VMOVDQU Y6, 192(R10)(DI*1)
	VMOVDQU Y7, 224(R10)(DI*1)
	NEXT

// The predicate bits of eight lanes.
DATA bits8<>+0(SB)/8, $0x0000000200000001
DATA bits8<>+8(SB)/8, $0x0000000800000004
DATA bits8<>+16(SB)/8, $0x0000002000000010
DATA bits8<>+24(SB)/8, $0x0000008000000040
GLOBL bits8<>(SB), RODATA|NOPTR, $32

// Sets Y4 to Y7 to the masks of the lanes whose bit is set in the predicate at BX.
#define MASKS \
	VPBROADCASTD (R11)(BX*1), Y4; \
	VMOVDQU bits8<>(SB), Y8; \
	VPSRLD $8, Y4, Y5; VPSRLD $16, Y4, Y6; VPSRLD $24, Y4, Y7; \
	VPAND Y8, Y4, Y4; VPAND Y8, Y5, Y5; VPAND Y8, Y6, Y6; VPAND Y8, Y7, Y7; \
	VPCMPEQD Y8, Y4, Y4; VPCMPEQD Y8, Y5, Y5; VPCMPEQD Y8, Y6, Y6; VPCMPEQD Y8, Y7, Y7

OPERATION(selp32)
	D; A; B; C
	MASKS
	LOAD(R9, DX, Y0, Y1, Y2, Y3)
	VBLENDVPS Y4, 0(R9)(SI*1), Y0, Y0
	VBLENDVPS Y5, 32(R9)(SI*1), Y1, Y1
	VBLENDVPS Y6, 64(R9)(SI*1), Y2, Y2
	VBLENDVPS Y7, 96(R9)(SI*1), Y3, Y3
	STORE(R9, DI)
	NEXT

// Selects eight 64-bit lanes at an offset by the eight 32-bit masks in y, whose low half is x.
#define SELECT64(at, x, y) \
	VPMOVSXDQ x, Y9; VEXTRACTI128 $1, y, X10; VPMOVSXDQ X10, Y10; \
	VMOVDQU at+0(R10)(DX*1), Y0; VMOVDQU at+32(R10)(DX*1), Y1; \
	VBLENDVPD Y9, at+0(R10)(SI*1), Y0, Y0; VBLENDVPD Y10, at+32(R10)(SI*1), Y1, Y1; \
	VMOVDQU Y0, at+0(R10)(DI*1); VMOVDQU Y1, at+32(R10)(DI*1)

OPERATION(selp64)
	D; A; B; C
	MASKS
	SELECT64(0, X4, Y4)
	SELECT64(64, X5, Y5)
	SELECT64(128, X6, Y6)
	SELECT64(192, X7, Y7)
	NEXT

OPERATION(mov64)
	D; A
	LOAD(R10, SI, Y0, Y1, Y2, Y3)
	LOADMORE(R10, SI, Y4, Y5, Y6, Y7)
	STORE(R10, DI)
	VMOVDQU Y4, 128(R10)(DI*1)
	VMOVDQU Y5, 160(R10)(DI*1)
	VMOVDQU Y6, 192(R10)(DI*1)
	VMOVDQU Y7, 224(R10)(DI*1)
	NEXT

#define TWO64(name, instruction) \
	OPERATION(name); \
	D; A; B; \
	LOAD(R10, SI, Y0, Y1, Y2, Y3); \
	instruction 0(R10)(DX*1), Y0, Y0; instruction 32(R10)(DX*1), Y1, Y1; \
	instruction 64(R10)(DX*1), Y2, Y2; instruction 96(R10)(DX*1), Y3, Y3; \
	STORE(R10, DI); \
	LOADMORE(R10, SI, Y0, Y1, Y2, Y3); \
	instruction 128(R10)(DX*1), Y0, Y0; instruction 160(R10)(DX*1), Y1, Y1; \
	instruction 192(R10)(DX*1), Y2, Y2; instruction 224(R10)(DX*1), Y3, Y3; \
	STOREMORE(R10, DI); \
	NEXT

TWO64(add64, VPADDQ)
TWO64(sub64, VPSUBQ)
TWO64(and64, VPAND)
TWO64(or64, VPOR)

// Loads sixteen 32-bit lanes and widens them to 64 bits.
#define WIDENED(how, at, y0, y1, y2, y3) \
	how 0(R9)(at*1), y0; how 16(R9)(at*1), y1; how 32(R9)(at*1), y2; how 48(R9)(at*1), y3
#define WIDENEDMORE(how, at, y0, y1, y2, y3) \
	how 64(R9)(at*1), y0; how 80(R9)(at*1), y1; how 96(R9)(at*1), y2; how 112(R9)(at*1), y3

#define SHIFT64(name, instruction) \
	OPERATION(name); \
	D; A; B; \
	LOAD(R10, SI, Y0, Y1, Y2, Y3); \
	WIDENED(VPMOVZXDQ, DX, Y4, Y5, Y6, Y7); \
	instruction Y4, Y0, Y0; instruction Y5, Y1, Y1; instruction Y6, Y2, Y2; instruction Y7, Y3, Y3; \
	STORE(R10, DI); \
	LOADMORE(R10, SI, Y0, Y1, Y2, Y3); \
	WIDENEDMORE(VPMOVZXDQ, DX, Y4, Y5, Y6, Y7); \
	instruction Y4, Y0, Y0; instruction Y5, Y1, Y1; instruction Y6, Y2, Y2; instruction Y7, Y3, Y3; \
	STOREMORE(R10, DI); \
	NEXT

SHIFT64(shl64, VPSLLVQ)
SHIFT64(shrU64, VPSRLVQ)

#define MULTIPLY(instruction) \
	instruction Y4, Y0, Y0; instruction Y5, Y1, Y1; instruction Y6, Y2, Y2; instruction Y7, Y3, Y3
#define MULWIDE(name, instruction) \
	OPERATION(name); \
	D; A; B; \
	WIDENED(VPMOVZXDQ, SI, Y0, Y1, Y2, Y3); \
	WIDENED(VPMOVZXDQ, DX, Y4, Y5, Y6, Y7); \
	MULTIPLY(instruction); \
	STORE(R10, DI); \
	WIDENEDMORE(VPMOVZXDQ, SI, Y0, Y1, Y2, Y3); \
	WIDENEDMORE(VPMOVZXDQ, DX, Y4, Y5, Y6, Y7); \
	MULTIPLY(instruction); \
	STOREMORE(R10, DI); \
	NEXT

MULWIDE(mulWideU32, VPMULUDQ)
MULWIDE(mulWideS32, VPMULDQ)

#define MADWIDE(name, instruction) \
	OPERATION(name); \
	D; A; B; C; \
	WIDENED(VPMOVZXDQ, SI, Y0, Y1, Y2, Y3); \
	WIDENED(VPMOVZXDQ, DX, Y4, Y5, Y6, Y7); \
	MULTIPLY(instruction); \
	VPADDQ 0(R10)(BX*1), Y0, Y0; VPADDQ 32(R10)(BX*1), Y1, Y1; VPADDQ 64(R10)(BX*1), Y2, Y2; VPADDQ 96(R10)(BX*1), Y3, Y3; \
	STORE(R10, DI); \
	WIDENEDMORE(VPMOVZXDQ, SI, Y0, Y1, Y2, Y3); \
	WIDENEDMORE(VPMOVZXDQ, DX, Y4, Y5, Y6, Y7); \
	MULTIPLY(instruction); \
	VPADDQ 128(R10)(BX*1), Y0, Y0; VPADDQ 160(R10)(BX*1), Y1, Y1; VPADDQ 192(R10)(BX*1), Y2, Y2; VPADDQ 224(R10)(BX*1), Y3, Y3; \
	STOREMORE(R10, DI); \
	NEXT

MADWIDE(madWideU32, VPMULUDQ)
MADWIDE(madWideS32, VPMULDQ)

#define WIDEN(name, how) \
	OPERATION(name); \
	D; A; \
	WIDENED(how, SI, Y0, Y1, Y2, Y3); \
	STORE(R10, DI); \
	WIDENEDMORE(how, SI, Y0, Y1, Y2, Y3); \
	STOREMORE(R10, DI); \
	NEXT

WIDEN(cvtU64U32, VPMOVZXDQ)
WIDEN(cvtS64S32, VPMOVSXDQ)

// The low or the high halves of eight 64-bit lanes in two registers.
#define LOWHALVES(y0, y1, y) VSHUFPS $0x88, y1, y0, y; VPERMQ $0xD8, y, y
#define HIGHHALVES(y0, y1, y) VSHUFPS $0xDD, y1, y0, y; VPERMQ $0xD8, y, y

OPERATION(cvtU32U64)
	D; A
	LOAD(R10, SI, Y0, Y1, Y2, Y3)
	LOADMORE(R10, SI, Y4, Y5, Y6, Y7)
	LOWHALVES(Y0, Y1, Y0)
	LOWHALVES(Y2, Y3, Y1)
	LOWHALVES(Y4, Y5, Y2)
	LOWHALVES(Y6, Y7, Y3)
	STORE(R9, DI)
	NEXT

OPERATION(pack32)
	D; A; B
	LOAD(R9, DX, Y0, Y1, Y2, Y3)
	VPSLLD $16, Y0, Y0
	VPSLLD $16, Y1, Y1
	VPSLLD $16, Y2, Y2
	VPSLLD $16, Y3, Y3
	VPBLENDW $0x55, 0(R9)(SI*1), Y0, Y0
	VPBLENDW $0x55, 32(R9)(SI*1), Y1, Y1
	VPBLENDW $0x55, 64(R9)(SI*1), Y2, Y2
	VPBLENDW $0x55, 96(R9)(SI*1), Y3, Y3
	STORE(R9, DI)
	NEXT

OPERATION(unpack32)
	D; A; B
	LOAD(R9, SI, Y4, Y5, Y6, Y7)
	VPXOR Y8, Y8, Y8
	VPBLENDW $0x55, Y4, Y8, Y0
	VPBLENDW $0x55, Y5, Y8, Y1
	VPBLENDW $0x55, Y6, Y8, Y2
	VPBLENDW $0x55, Y7, Y8, Y3
	STORE(R9, DI)
	VPSRLD $16, Y4, Y0
	VPSRLD $16, Y5, Y1
	VPSRLD $16, Y6, Y2
	VPSRLD $16, Y7, Y3
	STORE(R9, DX)
	NEXT

#define HALVES \
	VPSLLQ $32, Y4, Y4; VPSLLQ $32, Y5, Y5; VPSLLQ $32, Y6, Y6; VPSLLQ $32, Y7, Y7; \
	VPOR Y4, Y0, Y0; VPOR Y5, Y1, Y1; VPOR Y6, Y2, Y2; VPOR Y7, Y3, Y3

OPERATION(pack64)
	D; A; B
	WIDENED(VPMOVZXDQ, SI, Y0, Y1, Y2, Y3)
	WIDENED(VPMOVZXDQ, DX, Y4, Y5, Y6, Y7)
	HALVES
	STORE(R10, DI)
	WIDENEDMORE(VPMOVZXDQ, SI, Y0, Y1, Y2, Y3)
	WIDENEDMORE(VPMOVZXDQ, DX, Y4, Y5, Y6, Y7)
	HALVES
	STOREMORE(R10, DI)
	NEXT

OPERATION(unpack64)
	D; A; B
	LOAD(R10, SI, Y4, Y5, Y6, Y7)
	LOADMORE(R10, SI, Y8, Y9, Y10, Y11)
	LOWHALVES(Y4, Y5, Y0)
	LOWHALVES(Y6, Y7, Y1)
	LOWHALVES(Y8, Y9, Y2)
	LOWHALVES(Y10, Y11, Y3)
	STORE(R9, DI)
	HIGHHALVES(Y4, Y5, Y0)
	HIGHHALVES(Y6, Y7, Y1)
	HIGHHALVES(Y8, Y9, Y2)
	HIGHHALVES(Y10, Y11, Y3)
	STORE(R9, DX)
	NEXT

// The jump table, in the order of Code.
DATA table<>+0(SB)/8, $·runAssembly(SB) // None: never executed
DATA table<>+8(SB)/8, $mov32<>(SB)
DATA table<>+16(SB)/8, $add32<>(SB)
DATA table<>+24(SB)/8, $sub32<>(SB)
DATA table<>+32(SB)/8, $mul32<>(SB)
DATA table<>+40(SB)/8, $mad32<>(SB)
DATA table<>+48(SB)/8, $and32<>(SB)
DATA table<>+56(SB)/8, $or32<>(SB)
DATA table<>+64(SB)/8, $xor32<>(SB)
DATA table<>+72(SB)/8, $shl32<>(SB)
DATA table<>+80(SB)/8, $shrU32<>(SB)
DATA table<>+88(SB)/8, $shrS32<>(SB)
DATA table<>+96(SB)/8, $minS32<>(SB)
DATA table<>+104(SB)/8, $maxS32<>(SB)
DATA table<>+112(SB)/8, $minU32<>(SB)
DATA table<>+120(SB)/8, $maxU32<>(SB)
DATA table<>+128(SB)/8, $selp32<>(SB)
DATA table<>+136(SB)/8, $addF32<>(SB)
DATA table<>+144(SB)/8, $subF32<>(SB)
DATA table<>+152(SB)/8, $mulF32<>(SB)
DATA table<>+160(SB)/8, $fmaF32<>(SB)
DATA table<>+168(SB)/8, $minF32<>(SB)
DATA table<>+176(SB)/8, $maxF32<>(SB)
DATA table<>+184(SB)/8, $cvtF32F16<>(SB)
DATA table<>+192(SB)/8, $cvtF32S32<>(SB)
DATA table<>+200(SB)/8, $eq32<>(SB)
DATA table<>+208(SB)/8, $ne32<>(SB)
DATA table<>+216(SB)/8, $ltS32<>(SB)
DATA table<>+224(SB)/8, $geS32<>(SB)
DATA table<>+232(SB)/8, $ltU32<>(SB)
DATA table<>+240(SB)/8, $geU32<>(SB)
DATA table<>+248(SB)/8, $eqF32<>(SB)
DATA table<>+256(SB)/8, $neuF32<>(SB)
DATA table<>+264(SB)/8, $ltF32<>(SB)
DATA table<>+272(SB)/8, $leF32<>(SB)
DATA table<>+280(SB)/8, $mov64<>(SB)
DATA table<>+288(SB)/8, $add64<>(SB)
DATA table<>+296(SB)/8, $sub64<>(SB)
DATA table<>+304(SB)/8, $and64<>(SB)
DATA table<>+312(SB)/8, $or64<>(SB)
DATA table<>+320(SB)/8, $shl64<>(SB)
DATA table<>+328(SB)/8, $shrU64<>(SB)
DATA table<>+336(SB)/8, $selp64<>(SB)
DATA table<>+344(SB)/8, $mulWideU32<>(SB)
DATA table<>+352(SB)/8, $mulWideS32<>(SB)
DATA table<>+360(SB)/8, $madWideU32<>(SB)
DATA table<>+368(SB)/8, $madWideS32<>(SB)
DATA table<>+376(SB)/8, $cvtU64U32<>(SB)
DATA table<>+384(SB)/8, $cvtS64S32<>(SB)
DATA table<>+392(SB)/8, $cvtU32U64<>(SB)
DATA table<>+400(SB)/8, $pack32<>(SB)
DATA table<>+408(SB)/8, $unpack32<>(SB)
DATA table<>+416(SB)/8, $pack64<>(SB)
DATA table<>+424(SB)/8, $unpack64<>(SB)
DATA table<>+432(SB)/8, $fmaSatF32<>(SB)
DATA table<>+440(SB)/8, $maxNaNF32<>(SB)
DATA table<>+448(SB)/8, $addFtzF32<>(SB)
DATA table<>+456(SB)/8, $subFtzF32<>(SB)
DATA table<>+464(SB)/8, $mulFtzF32<>(SB)
DATA table<>+472(SB)/8, $fmaFtzF32<>(SB)
DATA table<>+480(SB)/8, $minFtzF32<>(SB)
DATA table<>+488(SB)/8, $maxFtzF32<>(SB)
DATA table<>+496(SB)/8, $eqFtzF32<>(SB)
DATA table<>+504(SB)/8, $neuFtzF32<>(SB)
DATA table<>+512(SB)/8, $ltFtzF32<>(SB)
DATA table<>+520(SB)/8, $leFtzF32<>(SB)
DATA table<>+528(SB)/8, $ltuFtzF32<>(SB)
DATA table<>+536(SB)/8, $leuFtzF32<>(SB)
DATA table<>+544(SB)/8, $ltuF32<>(SB)
DATA table<>+552(SB)/8, $leuF32<>(SB)
DATA table<>+560(SB)/8, $absF32<>(SB)
DATA table<>+568(SB)/8, $negF32<>(SB)
DATA table<>+576(SB)/8, $absFtzF32<>(SB)
DATA table<>+584(SB)/8, $negFtzF32<>(SB)
DATA table<>+592(SB)/8, $mulHiU32<>(SB)
DATA table<>+600(SB)/8, $mul64<>(SB)
DATA table<>+608(SB)/8, $not32<>(SB)
DATA table<>+616(SB)/8, $eq64<>(SB)
DATA table<>+624(SB)/8, $ne64<>(SB)
DATA table<>+632(SB)/8, $ltS64<>(SB)
DATA table<>+640(SB)/8, $geS64<>(SB)
DATA table<>+648(SB)/8, $cvtU32U16<>(SB)
DATA table<>+656(SB)/8, $andPred<>(SB)
DATA table<>+664(SB)/8, $orPred<>(SB)
DATA table<>+672(SB)/8, $xorPred<>(SB)
GLOBL table<>(SB), RODATA|NOPTR, $680
