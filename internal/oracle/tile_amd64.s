#include "textflag.h"

// func tile4x8(c *float64, ldc int, a *float64, lda int, b *float64, n int)
//
// Y0 to Y7 hold the tile, two registers per row. Eight independent accumulators hide the latency of
// the fused multiply-add.
TEXT ·tile4x8(SB), NOSPLIT, $0-48
	MOVQ c+0(FP), DI
	MOVQ ldc+8(FP), SI
	MOVQ a+16(FP), R8
	MOVQ lda+24(FP), R9
	MOVQ b+32(FP), BX
	MOVQ n+40(FP), CX
	SHLQ $3, SI
	SHLQ $3, R9
	LEAQ (R8)(R9*2), R10 // third row of a
	LEAQ (DI)(SI*2), R11 // third row of c

	VXORPD Y0, Y0, Y0
	VXORPD Y1, Y1, Y1
	VXORPD Y2, Y2, Y2
	VXORPD Y3, Y3, Y3
	VXORPD Y4, Y4, Y4
	VXORPD Y5, Y5, Y5
	VXORPD Y6, Y6, Y6
	VXORPD Y7, Y7, Y7

step:
	VMOVUPD      (BX), Y8
	VMOVUPD      32(BX), Y9
	VBROADCASTSD (R8), Y10
	VBROADCASTSD (R8)(R9*1), Y11
	VBROADCASTSD (R10), Y12
	VBROADCASTSD (R10)(R9*1), Y13
	VFMADD231PD  Y8, Y10, Y0
	VFMADD231PD  Y9, Y10, Y1
	VFMADD231PD  Y8, Y11, Y2
	VFMADD231PD  Y9, Y11, Y3
	VFMADD231PD  Y8, Y12, Y4
	VFMADD231PD  Y9, Y12, Y5
	VFMADD231PD  Y8, Y13, Y6
	VFMADD231PD  Y9, Y13, Y7
	ADDQ         $64, BX
	ADDQ         $8, R8
	ADDQ         $8, R10
	DECQ         CX
	JNZ          step

	VADDPD  (DI), Y0, Y0
	VADDPD  32(DI), Y1, Y1
	VADDPD  (DI)(SI*1), Y2, Y2
	VADDPD  32(DI)(SI*1), Y3, Y3
	VADDPD  (R11), Y4, Y4
	VADDPD  32(R11), Y5, Y5
	VADDPD  (R11)(SI*1), Y6, Y6
	VADDPD  32(R11)(SI*1), Y7, Y7
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, 32(DI)
	VMOVUPD Y2, (DI)(SI*1)
	VMOVUPD Y3, 32(DI)(SI*1)
	VMOVUPD Y4, (R11)
	VMOVUPD Y5, 32(R11)
	VMOVUPD Y6, (R11)(SI*1)
	VMOVUPD Y7, 32(R11)(SI*1)
	VZEROUPPER
	RET
