#include "textflag.h"

// STEP adds one column of A times one row of B to a tile. Y0 to Y11 hold the tile, three registers
// per row. R8 and R10 point to the first and the third row of A, R9 is the distance of two rows.
#define STEP(offset) \
	VMOVUPS      (offset)(BX), Y12    \
	VMOVUPS      (offset+32)(BX), Y13 \
	VMOVUPS      (offset+64)(BX), Y14 \
	VBROADCASTSS (R8), Y15            \
	VFMADD231PS  Y12, Y15, Y0         \
	VFMADD231PS  Y13, Y15, Y1         \
	VFMADD231PS  Y14, Y15, Y2         \
	VBROADCASTSS (R8)(R9*1), Y15      \
	VFMADD231PS  Y12, Y15, Y3         \
	VFMADD231PS  Y13, Y15, Y4         \
	VFMADD231PS  Y14, Y15, Y5         \
	VBROADCASTSS (R10), Y15           \
	VFMADD231PS  Y12, Y15, Y6         \
	VFMADD231PS  Y13, Y15, Y7         \
	VFMADD231PS  Y14, Y15, Y8         \
	VBROADCASTSS (R10)(R9*1), Y15     \
	VFMADD231PS  Y12, Y15, Y9         \
	VFMADD231PS  Y13, Y15, Y10        \
	VFMADD231PS  Y14, Y15, Y11        \
	ADDQ         R11, R8              \
	ADDQ         R11, R10

// func product4x24(c, a *float32, row, step, tile int, b *float32, n, tiles, accumulate int)
//
// Twelve independent accumulators hide the latency of the fused multiply-add. Four steps at a time
// keep the loop's own instructions below what the front end can issue beside two FMAs a cycle.
TEXT ·product4x24(SB), NOSPLIT, $0-72
	MOVQ c+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ row+16(FP), R9
	MOVQ step+24(FP), R11
	MOVQ tile+32(FP), R12
	MOVQ n+48(FP), R13
	MOVQ tiles+56(FP), DX
	MOVQ accumulate+64(FP), AX

nextTile:
	MOVQ   SI, R8
	LEAQ   (SI)(R9*2), R10
	MOVQ   b+40(FP), BX
	TESTQ  AX, AX
	JZ     zero
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
	VMOVUPS 128(DI), Y4
	VMOVUPS 160(DI), Y5
	VMOVUPS 192(DI), Y6
	VMOVUPS 224(DI), Y7
	VMOVUPS 256(DI), Y8
	VMOVUPS 288(DI), Y9
	VMOVUPS 320(DI), Y10
	VMOVUPS 352(DI), Y11
	JMP    start

zero:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	VXORPS Y8, Y8, Y8
	VXORPS Y9, Y9, Y9
	VXORPS Y10, Y10, Y10
	VXORPS Y11, Y11, Y11

start:
	MOVQ R13, CX
	SUBQ $4, CX
	JL   rest

four:
	STEP(0)
	STEP(96)
	STEP(192)
	STEP(288)
	ADDQ $384, BX
	SUBQ $4, CX
	JGE  four

rest:
	ADDQ $4, CX
	JZ   store

one:
	STEP(0)
	ADDQ $96, BX
	DECQ CX
	JNZ  one

store:
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VMOVUPS Y4, 128(DI)
	VMOVUPS Y5, 160(DI)
	VMOVUPS Y6, 192(DI)
	VMOVUPS Y7, 224(DI)
	VMOVUPS Y8, 256(DI)
	VMOVUPS Y9, 288(DI)
	VMOVUPS Y10, 320(DI)
	VMOVUPS Y11, 352(DI)
	ADDQ    $384, DI
	ADDQ    R12, SI
	DECQ    DX
	JNZ     nextTile
	VZEROUPPER
	RET

// The constants of EXP2, in the order of its steps; exp2Go has the same.
DATA exp2<>+0(SB)/4, $0xC2FE0000  // -127
DATA exp2<>+4(SB)/4, $0x4B40007F  // 1.5 * 2^23 + 127
DATA exp2<>+8(SB)/4, $0x3AADDD0A
DATA exp2<>+12(SB)/4, $0x3C1E7544
DATA exp2<>+16(SB)/4, $0x3D635BA9
DATA exp2<>+20(SB)/4, $0x3E75FCDE
DATA exp2<>+24(SB)/4, $0x3F317215
DATA exp2<>+28(SB)/4, $0x3F800000 // 1
GLOBL exp2<>(SB), RODATA|NOPTR, $32

// EXP2_CONSTANTS loads the constants into Y8 to Y15.
#define EXP2_CONSTANTS \
	VBROADCASTSS exp2<>+0(SB), Y8   \
	VBROADCASTSS exp2<>+4(SB), Y9   \
	VBROADCASTSS exp2<>+8(SB), Y10  \
	VBROADCASTSS exp2<>+12(SB), Y11 \
	VBROADCASTSS exp2<>+16(SB), Y12 \
	VBROADCASTSS exp2<>+20(SB), Y13 \
	VBROADCASTSS exp2<>+24(SB), Y14 \
	VBROADCASTSS exp2<>+28(SB), Y15

// EXP2 replaces x, at most 0, by 2^x. VMAXPS returns its last Intel operand, x, if that is NaN.
#define EXP2(x, n, p) \
	VMAXPS      x, Y8, x   \
	VADDPS      Y9, x, p   \
	VSUBPS      Y9, p, n   \
	VSUBPS      n, x, x    \
	VPSLLD      $23, p, n  \
	VMOVAPS     Y10, p     \
	VFMADD213PS Y11, x, p  \
	VFMADD213PS Y12, x, p  \
	VFMADD213PS Y13, x, p  \
	VFMADD213PS Y14, x, p  \
	VFMADD213PS Y15, x, p  \
	VMULPS      n, p, x

// func softmax24(scores *float32, keys int, s *state)
//
// The state holds the row max, the row sum and the rescale factor of 48 rows each; 24 are used. One
// group of eight rows at a time: first the row max over the keys, then the exponentials and their
// sum.
TEXT ·softmax24(SB), NOSPLIT, $0-24
	MOVQ scores+0(FP), SI
	MOVQ keys+8(FP), R8
	MOVQ s+16(FP), DI
	MOVQ $3, DX
	EXP2_CONSTANTS

group:
	VMOVUPS (DI), Y0 // row max so far
	VMOVAPS Y0, Y1
	MOVQ    SI, BX
	MOVQ    R8, CX

max:
	VMOVUPS (BX), Y2
	VMAXPS  Y1, Y2, Y1 // the row max if the score is NaN
	ADDQ    $96, BX
	DECQ    CX
	JNZ     max

	VMOVUPS Y1, (DI)
	VSUBPS  Y1, Y0, Y0
	EXP2(Y0, Y2, Y3)
	VMOVUPS Y0, 384(DI)
	VMULPS  192(DI), Y0, Y0 // rescaled row sum
	MOVQ    SI, BX
	MOVQ    R8, CX

exp:
	VMOVUPS (BX), Y2
	VSUBPS  Y1, Y2, Y2
	EXP2(Y2, Y3, Y4)
	VMOVUPS Y2, (BX)
	VADDPS  Y2, Y0, Y0
	ADDQ    $96, BX
	DECQ    CX
	JNZ     exp

	VMOVUPS Y0, 192(DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	DECQ    DX
	JNZ     group
	VZEROUPPER
	RET

// func rescale24(sums *float32, n int, factors *float32)
TEXT ·rescale24(SB), NOSPLIT, $0-24
	MOVQ    sums+0(FP), DI
	MOVQ    n+8(FP), CX
	MOVQ    factors+16(FP), BX
	VMOVUPS (BX), Y0
	VMOVUPS 32(BX), Y1
	VMOVUPS 64(BX), Y2

row:
	VMULPS  (DI), Y0, Y3
	VMULPS  32(DI), Y1, Y4
	VMULPS  64(DI), Y2, Y5
	VMOVUPS Y3, (DI)
	VMOVUPS Y4, 32(DI)
	VMOVUPS Y5, 64(DI)
	ADDQ    $96, DI
	DECQ    CX
	JNZ     row
	VZEROUPPER
	RET

DATA widen<>+0(SB)/4, $0x43800000 // 256
DATA widen<>+4(SB)/4, $0x00003F80 // the code 0x7f, NaN, as the FP16 below
DATA widen<>+8(SB)/4, $0x7FFF7FFF // FP16 NaN, twice
GLOBL widen<>(SB), RODATA|NOPTR, $12

// func widenE4M3(to *float32, from *byte, groups int)
//
// A code shifted to the fields of an FP16 is its value over 256, subnormals included. VCVTPH2PS is
// fast for subnormals too, unlike a product of subnormal float32.
TEXT ·widenE4M3(SB), NOSPLIT, $0-24
	MOVQ         to+0(FP), DI
	MOVQ         from+8(FP), SI
	MOVQ         groups+16(FP), CX
	VPBROADCASTD widen<>+0(SB), Y8
	VPBROADCASTW widen<>+4(SB), X9
	VPBROADCASTD widen<>+8(SB), X10

e4m3:
	VPMOVSXBW (SI), X0       // the sign fills the upper byte
	VPSLLW    $9, X0, X1
	VPSRLW    $2, X1, X1     // exponent and mantissa
	VPCMPEQW  X9, X1, X2     // NaN
	VPSRLW    $15, X0, X0
	VPSLLW    $15, X0, X0    // sign
	VPOR      X1, X0, X0
	VPAND     X10, X2, X2
	VPOR      X2, X0, X0
	VCVTPH2PS X0, Y0
	VMULPS    Y8, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $8, SI
	ADDQ      $32, DI
	DECQ      CX
	JNZ       e4m3
	VZEROUPPER
	RET

// func widenFP16(to *float32, from *byte, groups int)
TEXT ·widenFP16(SB), NOSPLIT, $0-24
	MOVQ to+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ groups+16(FP), CX

fp16:
	VCVTPH2PS (SI), Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	DECQ      CX
	JNZ       fp16
	VZEROUPPER
	RET

// func widenBF16(to *float32, from *byte, groups int)
TEXT ·widenBF16(SB), NOSPLIT, $0-24
	MOVQ to+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ groups+16(FP), CX

bf16:
	VPMOVZXWD (SI), Y0
	VPSLLD    $16, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	DECQ      CX
	JNZ       bf16
	VZEROUPPER
	RET

// func transpose8x8(to *float32, toStride int, from *float32, fromStride, count int)
//
// Transposes count blocks of 8x8 that stand side by side in from and below each other in to.
TEXT ·transpose8x8(SB), NOSPLIT, $0-40
	MOVQ to+0(FP), DI
	MOVQ toStride+8(FP), R8
	MOVQ from+16(FP), SI
	MOVQ fromStride+24(FP), R9
	MOVQ count+32(FP), CX
	LEAQ (R8)(R8*2), R10 // three rows of to
	LEAQ (R9)(R9*2), R11 // three rows of from

block:
	LEAQ        (SI)(R9*4), BX
	VMOVUPS     (SI), Y0
	VMOVUPS     (SI)(R9*1), Y1
	VMOVUPS     (SI)(R9*2), Y2
	VMOVUPS     (SI)(R11*1), Y3
	VMOVUPS     (BX), Y4
	VMOVUPS     (BX)(R9*1), Y5
	VMOVUPS     (BX)(R9*2), Y6
	VMOVUPS     (BX)(R11*1), Y7
	VUNPCKLPS   Y1, Y0, Y8
	VUNPCKHPS   Y1, Y0, Y9
	VUNPCKLPS   Y3, Y2, Y10
	VUNPCKHPS   Y3, Y2, Y11
	VUNPCKLPS   Y5, Y4, Y12
	VUNPCKHPS   Y5, Y4, Y13
	VUNPCKLPS   Y7, Y6, Y14
	VUNPCKHPS   Y7, Y6, Y15
	VUNPCKLPD   Y10, Y8, Y0
	VUNPCKHPD   Y10, Y8, Y1
	VUNPCKLPD   Y11, Y9, Y2
	VUNPCKHPD   Y11, Y9, Y3
	VUNPCKLPD   Y14, Y12, Y4
	VUNPCKHPD   Y14, Y12, Y5
	VUNPCKLPD   Y15, Y13, Y6
	VUNPCKHPD   Y15, Y13, Y7
	VPERM2F128  $0x20, Y4, Y0, Y8
	VPERM2F128  $0x20, Y5, Y1, Y9
	VPERM2F128  $0x20, Y6, Y2, Y10
	VPERM2F128  $0x20, Y7, Y3, Y11
	VPERM2F128  $0x31, Y4, Y0, Y12
	VPERM2F128  $0x31, Y5, Y1, Y13
	VPERM2F128  $0x31, Y6, Y2, Y14
	VPERM2F128  $0x31, Y7, Y3, Y15
	LEAQ        (DI)(R8*4), BX
	VMOVUPS     Y8, (DI)
	VMOVUPS     Y9, (DI)(R8*1)
	VMOVUPS     Y10, (DI)(R8*2)
	VMOVUPS     Y11, (DI)(R10*1)
	VMOVUPS     Y12, (BX)
	VMOVUPS     Y13, (BX)(R8*1)
	VMOVUPS     Y14, (BX)(R8*2)
	VMOVUPS     Y15, (BX)(R10*1)
	ADDQ        $32, SI
	LEAQ        (DI)(R8*8), DI
	DECQ        CX
	JNZ         block
	VZEROUPPER
	RET

// func narrowFP16(to *byte, from *float32, groups int)
TEXT ·narrowFP16(SB), NOSPLIT, $0-24
	MOVQ to+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ groups+16(FP), CX

toFP16:
	VMOVUPS   (SI), Y0
	VCVTPS2PH $0, Y0, X0 // to nearest even
	VMOVUPS   X0, (DI)
	ADDQ      $32, SI
	ADDQ      $16, DI
	DECQ      CX
	JNZ       toFP16
	VZEROUPPER
	RET

DATA narrow<>+0(SB)/4, $0x00007FFF // just under half a unit of BF16; also its NaN
DATA narrow<>+4(SB)/4, $0x00000001
GLOBL narrow<>(SB), RODATA|NOPTR, $8

// func narrowBF16(to *byte, from *float32, groups int)
//
// Adds just under half a unit, or exactly half if the last kept bit is odd, and drops 16 bits.
TEXT ·narrowBF16(SB), NOSPLIT, $0-24
	MOVQ         to+0(FP), DI
	MOVQ         from+8(FP), SI
	MOVQ         groups+16(FP), CX
	VPBROADCASTD narrow<>+0(SB), Y8
	VPBROADCASTD narrow<>+4(SB), Y9

toBF16:
	VMOVDQU    (SI), Y0
	VCMPPS     $3, Y0, Y0, Y2 // NaN
	VPSRLD     $16, Y0, Y1
	VPAND      Y9, Y1, Y1
	VPADDD     Y8, Y1, Y1
	VPADDD     Y0, Y1, Y1
	VPSRLD     $16, Y1, Y1
	VBLENDVPS  Y2, Y8, Y1, Y1
	VEXTRACTI128 $1, Y1, X2
	VPACKUSDW  X2, X1, X1
	VMOVDQU    X1, (DI)
	ADDQ       $32, SI
	ADDQ       $16, DI
	DECQ       CX
	JNZ        toBF16
	VZEROUPPER
	RET
