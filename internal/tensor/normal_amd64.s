#include "textflag.h"

// STEP is one step of Horner's rule for eight numerators and eight denominators, with the
// coefficients at an offset. Multiplication and addition are separate: a fused multiply-add would
// give other bits.
#define STEP(offset) \
	VMULPD       Y0, Y2, Y2          \
	VMULPD       Y0, Y3, Y3          \
	VMULPD       Y1, Y4, Y4          \
	VMULPD       Y1, Y5, Y5          \
	VBROADCASTSD offset(BX), Y6      \
	VBROADCASTSD (offset+64)(BX), Y7 \
	VADDPD       Y6, Y2, Y2          \
	VADDPD       Y7, Y3, Y3          \
	VADDPD       Y6, Y4, Y4          \
	VADDPD       Y7, Y5, Y5

// func evaluate8(x *float64, groups int, f *rational)
//
// Y0 and Y1 hold eight x, Y2 and Y4 their numerators, Y3 and Y5 their denominators.
TEXT ·evaluate8(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), DI
	MOVQ groups+8(FP), CX
	MOVQ f+16(FP), BX

group:
	VMOVUPD      (DI), Y0
	VMOVUPD      32(DI), Y1
	VBROADCASTSD 56(BX), Y2
	VBROADCASTSD 120(BX), Y3
	VMOVAPD      Y2, Y4
	VMOVAPD      Y3, Y5
	STEP(48)
	STEP(40)
	STEP(32)
	STEP(24)
	STEP(16)
	STEP(8)
	STEP(0)
	VDIVPD       Y3, Y2, Y2
	VDIVPD       Y5, Y4, Y4
	VMOVUPD      Y2, (DI)
	VMOVUPD      Y4, 32(DI)
	ADDQ         $64, DI
	DECQ         CX
	JNZ          group
	VZEROUPPER
	RET
