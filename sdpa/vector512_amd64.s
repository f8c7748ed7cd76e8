#include "textflag.h"

// STEPZ is STEP of vector_amd64.s with 48 lanes in registers of 16. Z0 to Z11 hold the tile.
#define STEPZ(offset) \
	VMOVUPS      (offset)(BX), Z12     \
	VMOVUPS      (offset+64)(BX), Z13  \
	VMOVUPS      (offset+128)(BX), Z14 \
	VBROADCASTSS (R8), Z15             \
	VBROADCASTSS (R8)(R9*1), Z16       \
	VBROADCASTSS (R10), Z17            \
	VBROADCASTSS (R10)(R9*1), Z18      \
	VFMADD231PS  Z12, Z15, Z0          \
	VFMADD231PS  Z13, Z15, Z1          \
	VFMADD231PS  Z14, Z15, Z2          \
	VFMADD231PS  Z12, Z16, Z3          \
	VFMADD231PS  Z13, Z16, Z4          \
	VFMADD231PS  Z14, Z16, Z5          \
	VFMADD231PS  Z12, Z17, Z6          \
	VFMADD231PS  Z13, Z17, Z7          \
	VFMADD231PS  Z14, Z17, Z8          \
	VFMADD231PS  Z12, Z18, Z9          \
	VFMADD231PS  Z13, Z18, Z10         \
	VFMADD231PS  Z14, Z18, Z11         \
	ADDQ         R11, R8               \
	ADDQ         R11, R10

// func product4x48(c, a *float32, row, step, tile int, b *float32, n, tiles, accumulate int)
//
// It is product4x24 with wider registers.
TEXT ·product4x48(SB), NOSPLIT, $0-72
	MOVQ c+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ row+16(FP), R9
	MOVQ step+24(FP), R11
	MOVQ tile+32(FP), R12
	MOVQ n+48(FP), R13
	MOVQ tiles+56(FP), DX
	MOVQ accumulate+64(FP), AX

nextTile:
	MOVQ  SI, R8
	LEAQ  (SI)(R9*2), R10
	MOVQ  b+40(FP), BX
	TESTQ AX, AX
	JZ    zero
	VMOVUPS 0(DI), Z0
	VMOVUPS 64(DI), Z1
	VMOVUPS 128(DI), Z2
	VMOVUPS 192(DI), Z3
	VMOVUPS 256(DI), Z4
	VMOVUPS 320(DI), Z5
	VMOVUPS 384(DI), Z6
	VMOVUPS 448(DI), Z7
	VMOVUPS 512(DI), Z8
	VMOVUPS 576(DI), Z9
	VMOVUPS 640(DI), Z10
	VMOVUPS 704(DI), Z11
	JMP   start

zero:
	VPXORQ Z0, Z0, Z0
	VPXORQ Z1, Z1, Z1
	VPXORQ Z2, Z2, Z2
	VPXORQ Z3, Z3, Z3
	VPXORQ Z4, Z4, Z4
	VPXORQ Z5, Z5, Z5
	VPXORQ Z6, Z6, Z6
	VPXORQ Z7, Z7, Z7
	VPXORQ Z8, Z8, Z8
	VPXORQ Z9, Z9, Z9
	VPXORQ Z10, Z10, Z10
	VPXORQ Z11, Z11, Z11

start:
	MOVQ R13, CX
	SUBQ $4, CX
	JL   rest

four:
	STEPZ(0)
	STEPZ(192)
	STEPZ(384)
	STEPZ(576)
	ADDQ $768, BX
	SUBQ $4, CX
	JGE  four

rest:
	ADDQ $4, CX
	JZ   store

one:
	STEPZ(0)
	ADDQ $192, BX
	DECQ CX
	JNZ  one

store:
	VMOVUPS Z0, 0(DI)
	VMOVUPS Z1, 64(DI)
	VMOVUPS Z2, 128(DI)
	VMOVUPS Z3, 192(DI)
	VMOVUPS Z4, 256(DI)
	VMOVUPS Z5, 320(DI)
	VMOVUPS Z6, 384(DI)
	VMOVUPS Z7, 448(DI)
	VMOVUPS Z8, 512(DI)
	VMOVUPS Z9, 576(DI)
	VMOVUPS Z10, 640(DI)
	VMOVUPS Z11, 704(DI)
	ADDQ    $768, DI
	ADDQ    R12, SI
	DECQ    DX
	JNZ     nextTile
	VZEROUPPER
	RET

// The constants of EXP2Z, those of EXP2.
DATA exp2z<>+0(SB)/4, $0xC2FE0000  // -127
DATA exp2z<>+4(SB)/4, $0x4B40007F  // 1.5 * 2^23 + 127
DATA exp2z<>+8(SB)/4, $0x3AADDD0A
DATA exp2z<>+12(SB)/4, $0x3C1E7544
DATA exp2z<>+16(SB)/4, $0x3D635BA9
DATA exp2z<>+20(SB)/4, $0x3E75FCDE
DATA exp2z<>+24(SB)/4, $0x3F317215
DATA exp2z<>+28(SB)/4, $0x3F800000 // 1
GLOBL exp2z<>(SB), RODATA|NOPTR, $32

// EXP2Z_CONSTANTS loads the constants into Z8 to Z15.
#define EXP2Z_CONSTANTS \
	VBROADCASTSS exp2z<>+0(SB), Z8   \
	VBROADCASTSS exp2z<>+4(SB), Z9   \
	VBROADCASTSS exp2z<>+8(SB), Z10  \
	VBROADCASTSS exp2z<>+12(SB), Z11 \
	VBROADCASTSS exp2z<>+16(SB), Z12 \
	VBROADCASTSS exp2z<>+20(SB), Z13 \
	VBROADCASTSS exp2z<>+24(SB), Z14 \
	VBROADCASTSS exp2z<>+28(SB), Z15

// EXP2Z replaces x, at most 0, by 2^x. VMAXPS returns its last Intel operand, x, if that is NaN.
#define EXP2Z(x, n, p) \
	VMAXPS      x, Z8, x   \
	VADDPS      Z9, x, p   \
	VSUBPS      Z9, p, n   \
	VSUBPS      n, x, x    \
	VPSLLD      $23, p, n  \
	VMOVAPS     Z10, p     \
	VFMADD213PS Z11, x, p  \
	VFMADD213PS Z12, x, p  \
	VFMADD213PS Z13, x, p  \
	VFMADD213PS Z14, x, p  \
	VFMADD213PS Z15, x, p  \
	VMULPS      n, p, x

// func softmax48(scores *float32, keys int, s *state)
//
// One group of sixteen rows at a time, as in softmax24.
TEXT ·softmax48(SB), NOSPLIT, $0-24
	MOVQ scores+0(FP), SI
	MOVQ keys+8(FP), R8
	MOVQ s+16(FP), DI
	MOVQ $3, DX
	EXP2Z_CONSTANTS

group:
	VMOVUPS (DI), Z0 // row max so far
	VMOVAPS Z0, Z1
	MOVQ    SI, BX
	MOVQ    R8, CX

max:
	VMOVUPS (BX), Z2
	VMAXPS  Z1, Z2, Z1 // the row max if the score is NaN
	ADDQ    $192, BX
	DECQ    CX
	JNZ     max

	VMOVUPS Z1, (DI)
	VSUBPS  Z1, Z0, Z0
	EXP2Z(Z0, Z2, Z3)
	VMOVUPS Z0, 384(DI)
	VMULPS  192(DI), Z0, Z0 // rescaled row sum
	MOVQ    SI, BX
	MOVQ    R8, CX

exp:
	VMOVUPS (BX), Z2
	VSUBPS  Z1, Z2, Z2
	EXP2Z(Z2, Z3, Z4)
	VMOVUPS Z2, (BX)
	VADDPS  Z2, Z0, Z0
	ADDQ    $192, BX
	DECQ    CX
	JNZ     exp

	VMOVUPS Z0, 192(DI)
	ADDQ    $64, SI
	ADDQ    $64, DI
	DECQ    DX
	JNZ     group
	VZEROUPPER
	RET

// func rescale48(sums *float32, n int, factors *float32)
TEXT ·rescale48(SB), NOSPLIT, $0-24
	MOVQ    sums+0(FP), DI
	MOVQ    n+8(FP), CX
	MOVQ    factors+16(FP), BX
	VMOVUPS (BX), Z0
	VMOVUPS 64(BX), Z1
	VMOVUPS 128(BX), Z2

row:
	VMULPS  (DI), Z0, Z3
	VMULPS  64(DI), Z1, Z4
	VMULPS  128(DI), Z2, Z5
	VMOVUPS Z3, (DI)
	VMOVUPS Z4, 64(DI)
	VMOVUPS Z5, 128(DI)
	ADDQ    $192, DI
	DECQ    CX
	JNZ     row
	VZEROUPPER
	RET
