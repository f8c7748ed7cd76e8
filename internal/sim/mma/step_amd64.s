#include "textflag.h"

#define CONSTANT(value, x, y) MOVL value, AX; VMOVD AX, x; VPBROADCASTD x, y

// func stepAssembly(sums *uint32, a *float32, exponentsA *int16, b *float32, exponentsB *int16, p *stepPlan) (skipped uint64)
//
// addStep for eight columns, one row at a time:
//   1. find the largest exponent of the products and of the sum;
//   2. scale the products by it, truncate them to integers and add them;
//   3. add the sum and truncate the total to the bits that the accumulator keeps, or round it to f16.
TEXT ·stepAssembly(SB), NOSPLIT, $0-56
	MOVQ sums+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ exponentsA+16(FP), DX
	MOVQ b+24(FP), R8
	MOVQ exponentsB+32(FP), R9
	MOVQ p+40(FP), R13
	MOVQ 16(R13), R10              // terms
	MOVQ 24(R13), R11              // rows
	MOVQ 32(R13), R12              // stride between rows of sums, bytes
	VPBROADCASTQ 0(R13), Y13       // bits of a sum that the accumulator keeps
	VPBROADCASTD 8(R13), Y15       // fraction
	CONSTANT($127, X14, Y14)
	CONSTANT($-101, X12, Y12)
	VPBROADCASTD 48(R13), Y11      // least exponent of a sum, biased
	CONSTANT($-10000, X10, Y10)    // zeroExponent
	CONSTANT($0xD8F0D8F0, X8, Y8)  // the same in 16 bits
	CONSTANT($-5000, X9, Y9)       // zeroThreshold
	MOVQ 40(R13), R13              // stride between rows of a, bytes
	MOVQ R13, R14
	SHRQ $1, R14                   // stride between rows of their exponents
	MOVQ $1, BX                    // bit of the current row in skipped
	MOVQ $0, skipped+48(FP)

rows:
	// Y0: largest exponent of the products.
	XORQ CX, CX
	MOVQ R9, AX
	VMOVDQA Y8, Y0
	VMOVDQA Y8, Y1

exponents:
	VPBROADCASTD (DX)(CX*2), Y2
	VPBROADCASTD 4(DX)(CX*2), Y3
	VPADDSW (AX), Y2, Y2
	VPADDSW 32(AX), Y3, Y3
	VPMAXSW Y2, Y0, Y0
	VPMAXSW Y3, Y1, Y1
	ADDQ $64, AX
	ADDQ $4, CX
	CMPQ CX, R10
	JLT  exponents
	VPMAXSW Y1, Y0, Y0
	VPSLLD $16, Y0, Y1
	VPMAXSW Y1, Y0, Y0
	VPSRAD $16, Y0, Y0

	// Y3: exponents of the sums in Y2. Subnormal sums have the smallest normal exponent.
	VMOVUPS (DI), Y2
	VPSLLD $1, Y2, Y3
	VPXOR Y4, Y4, Y4
	VPCMPEQD Y4, Y3, Y5
	VPSRLD $24, Y3, Y3
	VPMAXSD Y11, Y3, Y3
	VPSUBD Y14, Y3, Y3
	VBLENDVPS Y5, Y10, Y3, Y3
	VPMAXSD Y3, Y0, Y0

	// If all terms are zero, use exponent 0.
	VPCMPGTD Y0, Y9, Y5
	VPANDN Y0, Y5, Y0

	// The caller computes rows with infinities, NaNs, or exponents too small for a float32 scale.
	VPCMPGTD Y14, Y0, Y5
	VPCMPGTD Y0, Y12, Y6
	VPOR Y6, Y5, Y5
	VMOVMSKPS Y5, CX
	TESTL CX, CX
	JNE  skip

	// Y3: 2^(fraction - exponent), Y6: its inverse.
	VPSUBD Y0, Y15, Y3
	VPADDD Y14, Y3, Y3
	VPSLLD $23, Y3, Y3
	VPSUBD Y15, Y0, Y6
	VPADDD Y14, Y6, Y6
	VPSLLD $23, Y6, Y6

	// Y4: sum of the truncated products.
	MOVQ R8, AX
	XORQ CX, CX
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5

products:
	VBROADCASTSS 0(SI)(CX*4), Y0
	VBROADCASTSS 4(SI)(CX*4), Y1
	VMULPS 0(AX), Y0, Y0
	VMULPS 32(AX), Y1, Y1
	VMULPS Y3, Y0, Y0
	VMULPS Y3, Y1, Y1
	VCVTTPS2DQ Y0, Y0
	VCVTTPS2DQ Y1, Y1
	VPADDD Y0, Y4, Y4
	VPADDD Y1, Y5, Y5
	VBROADCASTSS 8(SI)(CX*4), Y0
	VBROADCASTSS 12(SI)(CX*4), Y1
	VMULPS 64(AX), Y0, Y0
	VMULPS 96(AX), Y1, Y1
	VMULPS Y3, Y0, Y0
	VMULPS Y3, Y1, Y1
	VCVTTPS2DQ Y0, Y0
	VCVTTPS2DQ Y1, Y1
	VPADDD Y0, Y4, Y4
	VPADDD Y1, Y5, Y5
	SUBQ $-128, AX
	ADDQ $4, CX
	CMPQ CX, R10
	JLT  products
	VPADDD Y5, Y4, Y4

	// Add the truncated sum in float64, which holds the total exactly, and truncate.
	VMULPS Y2, Y3, Y7
	VCVTTPS2DQ Y7, Y7
	MOVQ p+40(FP), AX
	CMPQ 56(AX), $0
	JNE  half
	VCVTDQ2PD X4, Y0
	VCVTDQ2PD X7, Y1
	VADDPD Y1, Y0, Y0
	VANDPD Y13, Y0, Y0
	VCVTPD2PSY Y0, X0
	VEXTRACTI128 $1, Y4, X4
	VEXTRACTI128 $1, Y7, X7
	VCVTDQ2PD X4, Y5
	VCVTDQ2PD X7, Y1
	VADDPD Y1, Y5, Y5
	VANDPD Y13, Y5, Y5
	VCVTPD2PSY Y5, X5
	VINSERTF128 $1, X5, Y0, Y0
	VMULPS Y6, Y0, Y0
	VMOVUPS Y0, (DI)

next:
	ADDQ R12, DI
	ADDQ R13, SI
	ADDQ R14, DX
	ADDQ BX, BX
	SUBQ $1, R11
	JNE  rows
	VZEROUPPER
	RET

half:
	// Y0, Y5: the total in float64.
	VCVTDQ2PD X4, Y0
	VCVTDQ2PD X7, Y1
	VADDPD Y1, Y0, Y0
	VEXTRACTI128 $1, Y4, X4
	VEXTRACTI128 $1, Y7, X7
	VCVTDQ2PD X4, Y5
	VCVTDQ2PD X7, Y1
	VADDPD Y1, Y5, Y5
	VCVTPS2PD X6, Y1
	VMULPD Y1, Y0, Y0
	VEXTRACTF128 $1, Y6, X6
	VCVTPS2PD X6, Y1
	VMULPD Y1, Y5, Y5

	// Round to nearest even: add a number whose last place is that of the f16, and subtract it.
	VBROADCASTSD 56(AX), Y1        // smallest normal f16
	VBROADCASTSD 64(AX), Y2        // shifter of 1
	VANDPD Y13, Y0, Y3             // power of two of the total
	VANDPD Y13, Y5, Y4
	VMAXPD Y1, Y3, Y3
	VMAXPD Y1, Y4, Y4
	VMULPD Y2, Y3, Y3
	VMULPD Y2, Y4, Y4
	VADDPD Y3, Y0, Y0
	VADDPD Y4, Y5, Y5
	VSUBPD Y3, Y0, Y0
	VSUBPD Y4, Y5, Y5

	// The caller computes rows that overflow.
	VMULPD Y0, Y0, Y3
	VMULPD Y5, Y5, Y4
	VMAXPD Y3, Y4, Y3
	VBROADCASTSD 72(AX), Y4        // square of the largest f16
	VCMPPD $0x0E, Y4, Y3, Y3       // greater
	VMOVMSKPD Y3, CX
	TESTL CX, CX
	JNE  skip
	VCVTPD2PSY Y0, X0
	VCVTPD2PSY Y5, X5
	VINSERTF128 $1, X5, Y0, Y0
	VMOVUPS Y0, (DI)
	JMP  next

skip:
	ORQ BX, skipped+48(FP)
	JMP next

#define WIDE(value, x, z) MOVL value, AX; VMOVD AX, x; VPBROADCASTD x, z

// func stepWide(sums *uint32, a *float32, exponentsA *int16, b *float32, exponentsB *int16, boundsA, boundsB *int32, p *stepPlan) (skipped uint64)
//
// stepAssembly for sixteen columns and sums in f32. Bounds tell whether any product has to be
// truncated; a row of products that need not be is added in float32.
TEXT ·stepWide(SB), NOSPLIT, $0-72
	MOVQ sums+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ exponentsA+16(FP), DX
	MOVQ b+24(FP), R8
	MOVQ exponentsB+32(FP), R9
	MOVQ boundsA+40(FP), R15
	MOVQ boundsB+48(FP), R11
	MOVQ p+56(FP), R13
	MOVQ 16(R13), R10              // terms
	MOVQ 32(R13), R12              // stride between rows of sums, bytes
	VPBROADCASTQ 0(R13), Z13       // bits of a sum that the accumulator keeps
	VPBROADCASTD 8(R13), Z15       // fraction
	WIDE($127, X14, Z14)
	WIDE($-101, X12, Z12)
	VPBROADCASTD 48(R13), Z11      // least exponent of a sum, biased
	WIDE($-10000, X10, Z10)        // zeroExponent
	WIDE($0xD8F0D8F0, X8, Z8)      // the same in 16 bits
	WIDE($-5000, X9, Z9)           // zeroThreshold
	VPBROADCASTD 80(R13), Z20      // exactFraction
	VMOVDQU32 (R11), Z18           // largest exponents of the columns
	VMOVDQU32 64(R11), Z19         // exponents of their last bits
	MOVQ 24(R13), R11              // rows
	MOVQ 88(R13), BX               // stride between rows of boundsA, bytes
	MOVQ 40(R13), R13              // stride between rows of a, bytes
	MOVQ R13, R14
	SHRQ $1, R14                   // stride between rows of their exponents
	MOVQ $0, skipped+64(FP)

rows:
	// Z3: exponents of the sums in Z2. Subnormal sums have the smallest normal exponent.
	VMOVUPS (DI), Z2
	VPSLLD $1, Z2, Z3
	VPTESTNMD Z3, Z3, K1
	VPSRLD $24, Z3, Z3
	VPMAXSD Z11, Z3, Z3
	VPSUBD Z14, Z3, Z3
	VMOVDQA32 Z10, K1, Z3

	// Z0: a bound of the largest exponent. Do all products and the sum have no bit below its unit?
	VPADDD.BCST (R15), Z18, Z0
	VPMAXSD Z3, Z0, Z0
	VPCMPGTD Z0, Z9, K1
	VPXORD Z0, Z0, K1, Z0
	VPADDD.BCST 4(R15), Z19, Z16
	VPADDD Z20, Z16, Z16
	VPCMPGTD Z16, Z0, K1           // products have
	VPCMPGTD Z14, Z0, K2
	VPCMPGTD Z0, Z12, K3
	KORW K2, K1, K1
	KORTESTW K3, K1
	JNE  inexact
	VPSUBD Z0, Z15, Z17            // Z17: 2^(fraction - exponent)
	VPADDD Z14, Z17, Z17
	VPSLLD $23, Z17, Z17
	VMULPS Z2, Z17, Z5
	VCVTTPS2DQ Z5, Z7
	VCVTDQ2PS Z7, Z16
	VPCMPD $4, Z16, Z5, K1         // not equal; a sum of -0 is not, either
	KORTESTW K1, K1
	JNE  inexact

	// Z4: sum of the products.
	MOVQ R8, AX
	XORQ CX, CX
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPXORD Z21, Z21, Z21
	VPXORD Z22, Z22, Z22

exact:
	VBROADCASTSS 0(SI)(CX*4), Z1
	VBROADCASTSS 4(SI)(CX*4), Z2
	VBROADCASTSS 8(SI)(CX*4), Z3
	VBROADCASTSS 12(SI)(CX*4), Z16
	VFMADD231PS 0(AX), Z1, Z4
	VFMADD231PS 64(AX), Z2, Z5
	VFMADD231PS 128(AX), Z3, Z21
	VFMADD231PS 192(AX), Z16, Z22
	ADDQ $256, AX
	ADDQ $4, CX
	CMPQ CX, R10
	JLT  exact
	VADDPS Z5, Z4, Z4
	VADDPS Z22, Z21, Z21
	VADDPS Z21, Z4, Z4
	VMULPS Z17, Z4, Z4
	VCVTTPS2DQ Z4, Z4
	JMP  total

inexact:
	// Z0: largest exponent of the products.
	XORQ CX, CX
	MOVQ R9, AX
	VMOVDQA64 Z8, Z0
	VMOVDQA64 Z8, Z1

exponents:
	VPBROADCASTD (DX)(CX*2), Z4
	VPBROADCASTD 4(DX)(CX*2), Z5
	VPADDSW (AX), Z4, Z4
	VPADDSW 64(AX), Z5, Z5
	VPMAXSW Z4, Z0, Z0
	VPMAXSW Z5, Z1, Z1
	SUBQ $-128, AX
	ADDQ $4, CX
	CMPQ CX, R10
	JLT  exponents
	VPMAXSW Z1, Z0, Z0
	VPSLLD $16, Z0, Z1
	VPMAXSW Z1, Z0, Z0
	VPSRAD $16, Z0, Z0
	VPMAXSD Z3, Z0, Z0

	// If all terms are zero, use exponent 0.
	VPCMPGTD Z0, Z9, K1
	VPXORD Z0, Z0, K1, Z0

	// The caller computes rows with infinities, NaNs, or exponents too small for a float32 scale.
	VPCMPGTD Z14, Z0, K1
	VPCMPGTD Z0, Z12, K2
	KORTESTW K2, K1
	JNE  skip

	// Z17: 2^(fraction - exponent).
	VPSUBD Z0, Z15, Z17
	VPADDD Z14, Z17, Z17
	VPSLLD $23, Z17, Z17

	// Z4: sum of the truncated products.
	MOVQ R8, AX
	XORQ CX, CX
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5

products:
	VBROADCASTSS 0(SI)(CX*4), Z1
	VBROADCASTSS 4(SI)(CX*4), Z3
	VBROADCASTSS 8(SI)(CX*4), Z16
	VBROADCASTSS 12(SI)(CX*4), Z21
	VMULPS 0(AX), Z1, Z1
	VMULPS 64(AX), Z3, Z3
	VMULPS 128(AX), Z16, Z16
	VMULPS 192(AX), Z21, Z21
	VMULPS Z17, Z1, Z1
	VMULPS Z17, Z3, Z3
	VMULPS Z17, Z16, Z16
	VMULPS Z17, Z21, Z21
	VCVTTPS2DQ Z1, Z1
	VCVTTPS2DQ Z3, Z3
	VCVTTPS2DQ Z16, Z16
	VCVTTPS2DQ Z21, Z21
	VPADDD Z1, Z4, Z4
	VPADDD Z3, Z5, Z5
	VPADDD Z16, Z4, Z4
	VPADDD Z21, Z5, Z5
	ADDQ $256, AX
	ADDQ $4, CX
	CMPQ CX, R10
	JLT  products
	VPADDD Z5, Z4, Z4
	VMULPS Z2, Z17, Z7
	VCVTTPS2DQ Z7, Z7

total:
	// Add the truncated sum, Z7, in float64, which holds the total exactly, and truncate.
	VPSUBD Z15, Z0, Z6             // Z6: the inverse of Z17
	VPADDD Z14, Z6, Z6
	VPSLLD $23, Z6, Z6
	VCVTDQ2PD Y4, Z0
	VCVTDQ2PD Y7, Z1
	VADDPD Z1, Z0, Z0
	VPANDQ Z13, Z0, Z0
	VCVTPD2PS Z0, Y0
	VEXTRACTI64X4 $1, Z4, Y4
	VEXTRACTI64X4 $1, Z7, Y7
	VCVTDQ2PD Y4, Z5
	VCVTDQ2PD Y7, Z1
	VADDPD Z1, Z5, Z5
	VPANDQ Z13, Z5, Z5
	VCVTPD2PS Z5, Y5
	VINSERTF64X4 $1, Y5, Z0, Z0
	VMULPS Z6, Z0, Z0
	VMOVUPS Z0, (DI)

next:
	ADDQ R12, DI
	ADDQ R13, SI
	ADDQ R14, DX
	ADDQ BX, R15
	SUBQ $1, R11
	JNE  rows
	VZEROUPPER
	RET

skip:
	MOVQ p+56(FP), AX
	MOVQ 24(AX), CX
	SUBQ R11, CX                   // row
	MOVQ $1, AX
	SHLQ CX, AX
	ORQ AX, skipped+64(FP)
	JMP next

// func decodeTableRow(values *float32, exponents *int16, codes *uint32, n int, table *element, bounds *int32)
//
// Decodes n elements, a multiple of 16, of one step of a row of A, and sets the bounds of the step.
TEXT ·decodeTableRow(SB), NOSPLIT, $0-48
	MOVQ values+0(FP), DI
	MOVQ exponents+8(FP), DX
	MOVQ codes+16(FP), SI
	MOVQ n+24(FP), CX
	MOVQ table+32(FP), R8
	MOVQ bounds+40(FP), R9
	WIDE($0xD8F0D8F0, X8, Z8)      // zeroExponent in 16 bits
	WIDE($0x27102710, X9, Z9)      // noLastBit in 16 bits
	WIDE($0xFF, X10, Z10)

elements:
	VPANDD (SI), Z10, Z0
	KXNORW K1, K1, K1
	KXNORW K2, K2, K2
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPGATHERDD (R8)(Z0*8), K1, Z1
	VPGATHERDD 4(R8)(Z0*8), K2, Z2
	VMOVDQU32 Z1, (DI)
	VPMOVDW Z2, Y3
	VMOVDQU Y3, (DX)
	VPMAXSW Z2, Z8, Z8             // in the low halves: exponents
	VPMINSW Z2, Z9, Z9             // in the high halves: last bits
	ADDQ $64, SI
	ADDQ $64, DI
	ADDQ $32, DX
	SUBQ $16, CX
	JNE  elements
	VPSLLD $16, Z8, Z8
	VPSRAD $16, Z8, Z8
	VPSRAD $16, Z9, Z9
	VEXTRACTI64X4 $1, Z8, Y0
	VEXTRACTI64X4 $1, Z9, Y1
	VPMAXSD Y0, Y8, Y8
	VPMINSD Y1, Y9, Y9
	VEXTRACTI128 $1, Y8, X0
	VEXTRACTI128 $1, Y9, X1
	VPMAXSD X0, X8, X8
	VPMINSD X1, X9, X9
	VPSHUFD $0x4E, X8, X0
	VPSHUFD $0x4E, X9, X1
	VPMAXSD X0, X8, X8
	VPMINSD X1, X9, X9
	VPSHUFD $0xB1, X8, X0
	VPSHUFD $0xB1, X9, X1
	VPMAXSD X0, X8, X8
	VPMINSD X1, X9, X9
	VMOVD X8, (R9)
	VMOVD X9, 4(R9)
	VZEROUPPER
	RET

// func decodeTableColumns(values *float32, exponents *int16, codes *uint32, n, stride int, table *element, bounds *int32)
//
// Decodes n terms, an even number, of one step of sixteen columns of B, whose codes are stride words
// apart, and sets the bounds of the step.
TEXT ·decodeTableColumns(SB), NOSPLIT, $0-56
	MOVQ values+0(FP), DI
	MOVQ exponents+8(FP), DX
	MOVQ codes+16(FP), SI
	MOVQ n+24(FP), CX
	MOVQ stride+32(FP), AX
	MOVQ table+40(FP), R8
	MOVQ bounds+48(FP), R9
	VMOVD AX, X0
	VPBROADCASTD X0, Z0
	VMOVDQU32 ·firstLanes(SB), Z11
	VPMULLD Z0, Z11, Z11           // word indexes of the columns
	WIDE($0xD8F0D8F0, X8, Z8)      // zeroExponent in 16 bits
	WIDE($0x27102710, X9, Z9)      // noLastBit in 16 bits
	WIDE($0xFF, X10, Z10)
	WIDE($0xFFFF, X12, Z12)

terms:
	KXNORW K1, K1, K1
	KXNORW K2, K2, K2
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPGATHERDD (SI)(Z11*4), K1, Z0
	VPGATHERDD 4(SI)(Z11*4), K2, Z1
	VPANDD Z10, Z0, Z0
	VPANDD Z10, Z1, Z1
	KXNORW K1, K1, K1
	KXNORW K2, K2, K2
	KXNORW K3, K3, K3
	KXNORW K4, K4, K4
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	VPXORD Z4, Z4, Z4
	VPXORD Z5, Z5, Z5
	VPGATHERDD (R8)(Z0*8), K1, Z2
	VPGATHERDD (R8)(Z1*8), K2, Z3
	VPGATHERDD 4(R8)(Z0*8), K3, Z4
	VPGATHERDD 4(R8)(Z1*8), K4, Z5
	VMOVDQU32 Z2, (DI)
	VMOVDQU32 Z3, 64(DI)
	VPANDD Z12, Z4, Z6
	VPSLLD $16, Z5, Z7
	VPORD Z7, Z6, Z6
	VMOVDQU32 Z6, (DX)
	VPMAXSW Z6, Z8, Z8
	VPMINSW Z4, Z9, Z9             // in the high halves
	VPMINSW Z5, Z9, Z9
	ADDQ $8, SI
	SUBQ $-128, DI
	ADDQ $64, DX
	SUBQ $2, CX
	JNE  terms
	VPSLLD $16, Z8, Z7
	VPMAXSW Z7, Z8, Z8
	VPSRAD $16, Z8, Z8
	VPSRAD $16, Z9, Z9
	VMOVDQU32 Z8, (R9)
	VMOVDQU32 Z9, 64(R9)
	VZEROUPPER
	RET

DATA ·firstLanes+0(SB)/8, $0x0000000100000000
DATA ·firstLanes+8(SB)/8, $0x0000000300000002
DATA ·firstLanes+16(SB)/8, $0x0000000500000004
DATA ·firstLanes+24(SB)/8, $0x0000000700000006
DATA ·firstLanes+32(SB)/8, $0x0000000900000008
DATA ·firstLanes+40(SB)/8, $0x0000000b0000000a
DATA ·firstLanes+48(SB)/8, $0x0000000d0000000c
DATA ·firstLanes+56(SB)/8, $0x0000000f0000000e
GLOBL ·firstLanes(SB), RODATA|NOPTR, $64

// func integersAssembly(sums *int32, a, b *int16, rows, k, stride int)
TEXT ·integersAssembly(SB), NOSPLIT, $0-48
	MOVQ sums+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), R8
	MOVQ rows+24(FP), R11
	MOVQ k+32(FP), R10
	MOVQ stride+40(FP), R12

rows:
	VPXOR Y0, Y0, Y0
	MOVQ R8, AX
	XORQ CX, CX

pairs:
	VPBROADCASTD (SI)(CX*2), Y1
	VPMADDWD (AX), Y1, Y1
	VPADDD Y1, Y0, Y0
	ADDQ $32, AX
	ADDQ $2, CX
	CMPQ CX, R10
	JLT  pairs
	VMOVDQU Y0, (DI)
	ADDQ R12, DI
	LEAQ (SI)(R10*2), SI
	SUBQ $1, R11
	JNE  rows
	VZEROUPPER
	RET

// func decodeAssembly(values *float32, exponents *int16, codes *uint32, n int, p *decodePlan) (wide uint32)
//
// decodeShifted for eight elements at a time.
TEXT ·decodeAssembly(SB), NOSPLIT, $0-44
	MOVQ values+0(FP), DI
	MOVQ exponents+8(FP), DX
	MOVQ codes+16(FP), SI
	MOVQ n+24(FP), CX
	MOVQ p+32(FP), R13
	VMOVQ 0(R13), X15              // shift
	VMOVQ 8(R13), X14              // mantissa bits
	VPBROADCASTD 16(R13), Y13      // factor
	VPBROADCASTD 20(R13), Y12      // bias
	VPBROADCASTD 24(R13), Y11      // exponent field of infinities and NaNs
	VPBROADCASTD 28(R13), Y10      // flip of the sign
	VPBROADCASTD 48(R13), Y9       // unit of subnormals
	VPBROADCASTD 52(R13), Y8       // mask of subnormals that are multiplied by it
	VPXOR Y7, Y7, Y7               // elements that do not fit

elements:
	VMOVDQU (SI), Y0
	VPSLLD $17, Y0, Y1
	VPSRLD $17, Y1, Y1             // without the sign
	VPSRLD X14, Y1, Y2             // exponent field
	VPXOR Y6, Y6, Y6
	VPCMPEQD Y6, Y2, Y6            // subnormals and zeros
	VPSUBD Y6, Y2, Y3
	VPSUBD Y12, Y3, Y3             // exponent
	VPCMPEQD Y11, Y2, Y4           // infinities and NaNs
	VPXOR Y5, Y5, Y5
	VPCMPEQD Y5, Y1, Y5            // zeros

	// The value. A subnormal float32 would be slow, so subnormals are converted from integers.
	VPAND Y8, Y6, Y6
	VCVTDQ2PS Y1, Y2
	VPAND Y6, Y2, Y2
	VMULPS Y9, Y2, Y2
	VPSLLD X15, Y1, Y1
	VPANDN Y1, Y6, Y1
	VMULPS Y13, Y1, Y1
	VPOR Y2, Y1, Y1
	VPBROADCASTD 32(R13), Y6       // infinity
	VPAND Y6, Y4, Y6
	VPOR Y6, Y1, Y1
	VPSRLD $15, Y0, Y0
	VPSLLD $31, Y0, Y0
	VPXOR Y10, Y0, Y0
	VPXOR Y0, Y1, Y1
	VMOVUPS Y1, (DI)

	// Whether the exponent is within the bound.
	VPBROADCASTD 36(R13), Y6
	VPABSD Y3, Y2
	VPCMPGTD Y6, Y2, Y2
	VPOR Y4, Y5, Y6
	VPANDN Y2, Y6, Y2
	VPOR Y2, Y7, Y7

	VPBROADCASTD 40(R13), Y6
	VBLENDVPS Y5, Y6, Y3, Y3
	VPBROADCASTD 44(R13), Y6
	VBLENDVPS Y4, Y6, Y3, Y3
	VEXTRACTI128 $1, Y3, X2
	VPACKSSDW X2, X3, X3
	VMOVDQU X3, (DX)

	ADDQ $32, SI
	ADDQ $32, DI
	ADDQ $16, DX
	SUBQ $8, CX
	JNE  elements
	VMOVMSKPS Y7, AX
	MOVL AX, wide+40(FP)
	VZEROUPPER
	RET

// func encodeAssembly(codes *uint32, sums *uint32, n int) (special uint32)
//
// encodeExactFloat16 for eight finite sums at a time.
TEXT ·encodeAssembly(SB), NOSPLIT, $0-28
	MOVQ codes+0(FP), DI
	MOVQ sums+8(FP), SI
	MOVQ n+16(FP), CX
	CONSTANT($0x7FFFFFFF, X9, Y9)
	CONSTANT($0x7F7FFFFF, X8, Y8)  // largest finite float32
	CONSTANT($0x07800000, X6, Y6)  // 2^-112
	VPXOR Y7, Y7, Y7               // infinities and NaNs

sums:
	VMOVDQU (SI), Y0
	VPAND Y9, Y0, Y1
	VPCMPGTD Y8, Y1, Y2
	VPOR Y2, Y7, Y7
	VMULPS Y6, Y1, Y1
	VPSRLD $13, Y1, Y1
	VPSRLD $31, Y0, Y0
	VPSLLD $15, Y0, Y0
	VPOR Y0, Y1, Y1
	VMOVDQU Y1, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNE  sums
	VMOVMSKPS Y7, AX
	MOVL AX, special+24(FP)
	VZEROUPPER
	RET
