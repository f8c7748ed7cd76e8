#include "textflag.h"

// Operations on 32 lanes, with AVX2 and FMA: four registers of eight lanes of 32 bits, or eight of four of 64. A result may be one of the operands.
//
// lanesAssembly goes to the code of the first operation, and each goes to that of the next. They keep:
//	R8	the operation: its number, and the places of d, a, b and c in their files, of four bytes each
//	CX	operations that are left
//	R9	the registers of 32 bits
//	R10	the registers of 64 bits
//	R11	the predicates
//	R12	the table below

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

// func lanesAssembly(ops *laneOp, n int, r32 *v32, r64 *v64, preds *uint32)
TEXT ·lanesAssembly(SB), NOSPLIT, $0-40
	MOVQ ops+0(FP), R8
	MOVQ n+8(FP), CX
	MOVQ r32+16(FP), R9
	MOVQ r64+24(FP), R10
	MOVQ preds+32(FP), R11
	LEAQ lanes<>(SB), R12
	MOVL (R8), AX
	MOVQ (R12)(AX*8), AX
	JMP  AX

// Go writes the operands of an instruction in Intel's order turned round: the last is the result.
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

INTEGERS(add, VPADDD)
INTEGERS(sub, VPSUBD)
INTEGERS(mul, VPMULLD)
INTEGERS(and, VPAND)
INTEGERS(or, VPOR)
INTEGERS(xor, VPXOR)
INTEGERS(shl, VPSLLVD)
INTEGERS(shr, VPSRLVD)
INTEGERS(sar, VPSRAVD)
INTEGERS(minSigned, VPMINSD)
INTEGERS(maxSigned, VPMAXSD)
INTEGERS(min, VPMINUD)
INTEGERS(max, VPMAXUD)

OPERATION(mov)
	D; A
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	STORE(R9, DI)
	NEXT

OPERATION(mad)
	TWO(VPMULLD)
	C
	VPADDD 0(R9)(BX*1), Y0, Y0
	VPADDD 32(R9)(BX*1), Y1, Y1
	VPADDD 64(R9)(BX*1), Y2, Y2
	VPADDD 96(R9)(BX*1), Y3, Y3
	STORE(R9, DI)
	NEXT

// The chip's NaN, in eight lanes.
DATA nan8<>+0(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+8(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+16(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+24(SB)/8, $0x7FFFFFFF7FFFFFFF
GLOBL nan8<>(SB), RODATA|NOPTR, $32

// Lanes of Y0 to Y3 that are not a number become the chip's; mostly there are none.
#define ONENAN \
	VCMPPS $3, Y1, Y0, Y4; VCMPPS $3, Y3, Y2, Y5; VORPS Y5, Y4, Y4; \
	VMOVMSKPS Y4, AX; TESTL AX, AX; JEQ numbers; \
	VMOVUPS nan8<>(SB), Y8; \
	VCMPPS $3, Y0, Y0, Y4; VCMPPS $3, Y1, Y1, Y5; VCMPPS $3, Y2, Y2, Y6; VCMPPS $3, Y3, Y3, Y7; \
	VBLENDVPS Y4, Y8, Y0, Y0; VBLENDVPS Y5, Y8, Y1, Y1; VBLENDVPS Y6, Y8, Y2, Y2; VBLENDVPS Y7, Y8, Y3, Y3; \
numbers:

#define FLOATS(name, instruction) OPERATION(name); TWO(instruction); ONENAN; STORE(R9, DI); NEXT

FLOATS(addFloat, VADDPS)
FLOATS(subFloat, VSUBPS)
FLOATS(mulFloat, VMULPS)

OPERATION(fma)
	D; A; B; C
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	LOAD(R9, DX, Y4, Y5, Y6, Y7)
	VFMADD213PS 0(R9)(BX*1), Y4, Y0 // Y0 = Y0*Y4 + c
	VFMADD213PS 32(R9)(BX*1), Y5, Y1
	VFMADD213PS 64(R9)(BX*1), Y6, Y2
	VFMADD213PS 96(R9)(BX*1), Y7, Y3
	ONENAN
	STORE(R9, DI)
	NEXT

// Of a in y and b in z: the one that compares (less for the smaller of two), any where they are equal but for their zeros' signs, which both joins, and the
// other where one is not a number.
#define CHOOSE(compare, both, y, z) \
	VCMPPS compare, z, y, Y8; \
	VCMPPS $0, z, y, Y9; \
	VCMPPS $3, z, z, Y10; \
	both z, y, Y11; \
	VBLENDVPS Y8, y, z, z; \
	VBLENDVPS Y9, Y11, z, z; \
	VBLENDVPS Y10, y, z, y

#define CHOSEN(name, compare, both) \
	OPERATION(name); \
	D; A; B; \
	LOAD(R9, SI, Y0, Y1, Y2, Y3); \
	LOAD(R9, DX, Y4, Y5, Y6, Y7); \
	CHOOSE(compare, both, Y0, Y4); CHOOSE(compare, both, Y1, Y5); CHOOSE(compare, both, Y2, Y6); CHOOSE(compare, both, Y3, Y7); \
	ONENAN; \
	STORE(R9, DI); \
	NEXT

CHOSEN(minFloat, $17, VORPS)
CHOSEN(maxFloat, $30, VANDPS)

// Halves: a float32 with the fields of one in their places is 2^-112 of it, but for infinities and NaN, whose exponent is set to that of float32.
#define WIDENHALF(y) \
	VPSLLD $13, y, Y4; VPAND Y4, Y12, Y4; \
	VMULPS Y13, Y4, Y4; \
	VPAND y, Y14, Y5; VPCMPEQD Y5, Y14, Y5; \
	VPSRLD $1, Y15, Y6; VPAND Y5, Y6, Y5; \
	VPOR Y5, Y4, Y4; \
	VPSLLD $16, y, y; VPAND y, Y11, y; \
	VPOR Y4, y, y

#define BROADCAST(value, x, y) MOVL value, AX; VMOVD AX, x; VPBROADCASTD x, y

OPERATION(halfToFloat)
	D; A
	LOAD(R9, SI, Y0, Y1, Y2, Y3)
	BROADCAST($0x80000000, X11, Y11)
	BROADCAST($0x0FFFE000, X12, Y12) // exponent and fraction
	BROADCAST($0x77800000, X13, Y13) // 2^112
	BROADCAST($0x00007C00, X14, Y14) // the exponent of infinity
	BROADCAST($0xFF000000, X15, Y15) // that of float32, one to the left
	WIDENHALF(Y0)
	WIDENHALF(Y1)
	WIDENHALF(Y2)
	WIDENHALF(Y3)
	ONENAN
	STORE(R9, DI)
	NEXT

OPERATION(fromSigned)
	D; A
	VCVTDQ2PS 0(R9)(SI*1), Y0
	VCVTDQ2PS 32(R9)(SI*1), Y1
	VCVTDQ2PS 64(R9)(SI*1), Y2
	VCVTDQ2PS 96(R9)(SI*1), Y3
	STORE(R9, DI)
	NEXT

// Bit i of AX is whether the sign of lane i of Y0 to Y3 is set.
#define SIGNS \
	VMOVMSKPS Y0, AX; VMOVMSKPS Y1, BX; VMOVMSKPS Y2, DX; VMOVMSKPS Y3, SI; \
	SHLL $8, BX; SHLL $16, DX; SHLL $24, SI; \
	ORL BX, AX; ORL SI, DX; ORL DX, AX

#define COMPARE(name, comparison, behind) OPERATION(name); comparison; SIGNS; behind; MOVL AX, (R11)(DI*1); NEXT
#define AS_IT_IS
#define NEGATED NOTL AX

#define LESS \
	D; A; B; \
	LOAD(R9, DX, Y0, Y1, Y2, Y3); \
	VPCMPGTD 0(R9)(SI*1), Y0, Y0; VPCMPGTD 32(R9)(SI*1), Y1, Y1; VPCMPGTD 64(R9)(SI*1), Y2, Y2; VPCMPGTD 96(R9)(SI*1), Y3, Y3

// Of unsigned numbers: the greater of a and b is a.
#define ATLEAST \
	D; A; B; \
	LOAD(R9, SI, Y4, Y5, Y6, Y7); \
	VPMAXUD 0(R9)(DX*1), Y4, Y0; VPMAXUD 32(R9)(DX*1), Y5, Y1; VPMAXUD 64(R9)(DX*1), Y6, Y2; VPMAXUD 96(R9)(DX*1), Y7, Y3; \
	VPCMPEQD Y4, Y0, Y0; VPCMPEQD Y5, Y1, Y1; VPCMPEQD Y6, Y2, Y2; VPCMPEQD Y7, Y3, Y3

#define COMPAREFLOATS(how) \
	D; A; B; \
	LOAD(R9, SI, Y0, Y1, Y2, Y3); \
	VCMPPS how, 0(R9)(DX*1), Y0, Y0; VCMPPS how, 32(R9)(DX*1), Y1, Y1; \
	VCMPPS how, 64(R9)(DX*1), Y2, Y2; VCMPPS how, 96(R9)(DX*1), Y3, Y3

COMPARE(equal, TWO(VPCMPEQD), AS_IT_IS)
COMPARE(unequal, TWO(VPCMPEQD), NEGATED)
COMPARE(lessSigned, LESS, AS_IT_IS)
COMPARE(atLeastSigned, LESS, NEGATED)
COMPARE(less, ATLEAST, NEGATED)
COMPARE(atLeast, ATLEAST, AS_IT_IS)
COMPARE(equalFloat, COMPAREFLOATS($0), AS_IT_IS)
COMPARE(unequalFloat, COMPAREFLOATS($4), AS_IT_IS)
COMPARE(lessFloat, COMPAREFLOATS($17), AS_IT_IS)
COMPARE(atMostFloat, COMPAREFLOATS($18), AS_IT_IS)

// The bits of eight lanes.
DATA bits8<>+0(SB)/8, $0x0000000200000001
DATA bits8<>+8(SB)/8, $0x0000000800000004
DATA bits8<>+16(SB)/8, $0x0000002000000010
DATA bits8<>+24(SB)/8, $0x0000008000000040
GLOBL bits8<>(SB), RODATA|NOPTR, $32

// Y4 to Y7 become masks of the lanes whose predicate, at BX, is set.
#define MASKS \
	VPBROADCASTD (R11)(BX*1), Y4; \
	VMOVDQU bits8<>(SB), Y8; \
	VPSRLD $8, Y4, Y5; VPSRLD $16, Y4, Y6; VPSRLD $24, Y4, Y7; \
	VPAND Y8, Y4, Y4; VPAND Y8, Y5, Y5; VPAND Y8, Y6, Y6; VPAND Y8, Y7, Y7; \
	VPCMPEQD Y8, Y4, Y4; VPCMPEQD Y8, Y5, Y5; VPCMPEQD Y8, Y6, Y6; VPCMPEQD Y8, Y7, Y7

OPERATION(selp)
	D; A; B; C
	MASKS
	LOAD(R9, DX, Y0, Y1, Y2, Y3)
	VBLENDVPS Y4, 0(R9)(SI*1), Y0, Y0
	VBLENDVPS Y5, 32(R9)(SI*1), Y1, Y1
	VBLENDVPS Y6, 64(R9)(SI*1), Y2, Y2
	VBLENDVPS Y7, 96(R9)(SI*1), Y3, Y3
	STORE(R9, DI)
	NEXT

// Eight lanes of 64 bits from one place on, chosen by the mask of eight in y, whose low half is x.
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

// Sixteen lanes, widened from 32 bits.
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
SHIFT64(shr64, VPSRLVQ)

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

MULWIDE(mulWide, VPMULUDQ)
MULWIDE(mulWideSigned, VPMULDQ)

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

MADWIDE(madWide, VPMULUDQ)
MADWIDE(madWideSigned, VPMULDQ)

#define WIDEN(name, how) \
	OPERATION(name); \
	D; A; \
	WIDENED(how, SI, Y0, Y1, Y2, Y3); \
	STORE(R10, DI); \
	WIDENEDMORE(how, SI, Y0, Y1, Y2, Y3); \
	STOREMORE(R10, DI); \
	NEXT

WIDEN(widen, VPMOVZXDQ)
WIDEN(widenSigned, VPMOVSXDQ)

// The low halves of eight lanes of 64 bits in two registers, and the high ones.
#define LOWHALVES(y0, y1, y) VSHUFPS $0x88, y1, y0, y; VPERMQ $0xD8, y, y
#define HIGHHALVES(y0, y1, y) VSHUFPS $0xDD, y1, y0, y; VPERMQ $0xD8, y, y

OPERATION(narrow)
	D; A
	LOAD(R10, SI, Y0, Y1, Y2, Y3)
	LOADMORE(R10, SI, Y4, Y5, Y6, Y7)
	LOWHALVES(Y0, Y1, Y0)
	LOWHALVES(Y2, Y3, Y1)
	LOWHALVES(Y4, Y5, Y2)
	LOWHALVES(Y6, Y7, Y3)
	STORE(R9, DI)
	NEXT

OPERATION(pack)
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

OPERATION(unpack)
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

// What each number of an operation means, in the order of laneCode.
DATA lanes<>+0(SB)/8, $·lanesAssembly(SB) // never gone to
DATA lanes<>+8(SB)/8, $mov<>(SB)
DATA lanes<>+16(SB)/8, $add<>(SB)
DATA lanes<>+24(SB)/8, $sub<>(SB)
DATA lanes<>+32(SB)/8, $mul<>(SB)
DATA lanes<>+40(SB)/8, $mad<>(SB)
DATA lanes<>+48(SB)/8, $and<>(SB)
DATA lanes<>+56(SB)/8, $or<>(SB)
DATA lanes<>+64(SB)/8, $xor<>(SB)
DATA lanes<>+72(SB)/8, $shl<>(SB)
DATA lanes<>+80(SB)/8, $shr<>(SB)
DATA lanes<>+88(SB)/8, $sar<>(SB)
DATA lanes<>+96(SB)/8, $minSigned<>(SB)
DATA lanes<>+104(SB)/8, $maxSigned<>(SB)
DATA lanes<>+112(SB)/8, $min<>(SB)
DATA lanes<>+120(SB)/8, $max<>(SB)
DATA lanes<>+128(SB)/8, $selp<>(SB)
DATA lanes<>+136(SB)/8, $addFloat<>(SB)
DATA lanes<>+144(SB)/8, $subFloat<>(SB)
DATA lanes<>+152(SB)/8, $mulFloat<>(SB)
DATA lanes<>+160(SB)/8, $fma<>(SB)
DATA lanes<>+168(SB)/8, $minFloat<>(SB)
DATA lanes<>+176(SB)/8, $maxFloat<>(SB)
DATA lanes<>+184(SB)/8, $halfToFloat<>(SB)
DATA lanes<>+192(SB)/8, $fromSigned<>(SB)
DATA lanes<>+200(SB)/8, $equal<>(SB)
DATA lanes<>+208(SB)/8, $unequal<>(SB)
DATA lanes<>+216(SB)/8, $lessSigned<>(SB)
DATA lanes<>+224(SB)/8, $atLeastSigned<>(SB)
DATA lanes<>+232(SB)/8, $less<>(SB)
DATA lanes<>+240(SB)/8, $atLeast<>(SB)
DATA lanes<>+248(SB)/8, $equalFloat<>(SB)
DATA lanes<>+256(SB)/8, $unequalFloat<>(SB)
DATA lanes<>+264(SB)/8, $lessFloat<>(SB)
DATA lanes<>+272(SB)/8, $atMostFloat<>(SB)
DATA lanes<>+280(SB)/8, $mov64<>(SB)
DATA lanes<>+288(SB)/8, $add64<>(SB)
DATA lanes<>+296(SB)/8, $sub64<>(SB)
DATA lanes<>+304(SB)/8, $and64<>(SB)
DATA lanes<>+312(SB)/8, $or64<>(SB)
DATA lanes<>+320(SB)/8, $shl64<>(SB)
DATA lanes<>+328(SB)/8, $shr64<>(SB)
DATA lanes<>+336(SB)/8, $selp64<>(SB)
DATA lanes<>+344(SB)/8, $mulWide<>(SB)
DATA lanes<>+352(SB)/8, $mulWideSigned<>(SB)
DATA lanes<>+360(SB)/8, $madWide<>(SB)
DATA lanes<>+368(SB)/8, $madWideSigned<>(SB)
DATA lanes<>+376(SB)/8, $widen<>(SB)
DATA lanes<>+384(SB)/8, $widenSigned<>(SB)
DATA lanes<>+392(SB)/8, $narrow<>(SB)
DATA lanes<>+400(SB)/8, $pack<>(SB)
DATA lanes<>+408(SB)/8, $unpack<>(SB)
DATA lanes<>+416(SB)/8, $pack64<>(SB)
DATA lanes<>+424(SB)/8, $unpack64<>(SB)
GLOBL lanes<>(SB), RODATA|NOPTR, $432
