#include "textflag.h"

#define CONSTANT(value, x, y) MOVL value, AX; VMOVD AX, x; VPBROADCASTD x, y

// func stepAssembly(sums *uint32, a *float32, exponentsA *int32, b *float32, exponentsB *int32, p *stepPlan) (skipped uint64)
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
	CONSTANT($-5000, X9, Y9)       // zeroThreshold
	MOVQ 40(R13), R13              // stride between rows of a, bytes
	MOVQ $1, BX                    // bit of the current row in skipped
	MOVQ $0, skipped+48(FP)

rows:
	// Y0: largest exponent of the products.
	XORQ CX, CX
	MOVQ R9, AX
	VMOVDQA Y10, Y0
	VMOVDQA Y10, Y1

exponents:
	VPBROADCASTD (DX)(CX*4), Y2
	VPBROADCASTD 4(DX)(CX*4), Y3
	VPBROADCASTD 8(DX)(CX*4), Y4
	VPBROADCASTD 12(DX)(CX*4), Y5
	VPADDD (AX), Y2, Y2
	VPADDD 32(AX), Y3, Y3
	VPADDD 64(AX), Y4, Y4
	VPADDD 96(AX), Y5, Y5
	VPMAXSD Y2, Y0, Y0
	VPMAXSD Y3, Y1, Y1
	VPMAXSD Y4, Y0, Y0
	VPMAXSD Y5, Y1, Y1
	SUBQ $-128, AX
	ADDQ $4, CX
	CMPQ CX, R10
	JLT  exponents
	VPMAXSD Y1, Y0, Y0

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
	ADDQ R13, DX
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

// func decodeAssembly(values *float32, exponents *int32, codes *uint32, n int, p *decodePlan) (wide uint32)
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
	VMOVDQU Y3, (DX)

	ADDQ $32, SI
	ADDQ $32, DI
	ADDQ $32, DX
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
