#include "textflag.h"

// Every function here does one operation on 32 lanes of 32 bits: four registers of eight. A result may be one of the operands.

// The chip's NaN, in eight lanes.
DATA nan8<>+0(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+8(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+16(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+24(SB)/8, $0x7FFFFFFF7FFFFFFF
GLOBL nan8<>(SB), RODATA|NOPTR, $32

#define LOAD(from, y0, y1, y2, y3) VMOVDQU 0(from), y0; VMOVDQU 32(from), y1; VMOVDQU 64(from), y2; VMOVDQU 96(from), y3
#define STORE(to) VMOVDQU Y0, 0(to); VMOVDQU Y1, 32(to); VMOVDQU Y2, 64(to); VMOVDQU Y3, 96(to); VZEROUPPER

#define AS_IT_IS

// Lanes of Y0 to Y3 that are not a number become the chip's.
#define ONENAN \
	VMOVUPS nan8<>(SB), Y8; \
	VCMPPS $3, Y0, Y0, Y4; VCMPPS $3, Y1, Y1, Y5; VCMPPS $3, Y2, Y2, Y6; VCMPPS $3, Y3, Y3, Y7; \
	VBLENDVPS Y4, Y8, Y0, Y0; VBLENDVPS Y5, Y8, Y1, Y1; VBLENDVPS Y6, Y8, Y2, Y2; VBLENDVPS Y7, Y8, Y3, Y3

// Go writes the operands of an instruction in Intel's order turned round: the last is the result. What comes behind the instruction is ONENAN for floats.
#define TWO(name, instruction, behind) \
TEXT name(SB), NOSPLIT, $0-24; \
	MOVQ d+0(FP), DI; MOVQ a+8(FP), SI; MOVQ b+16(FP), DX; \
	LOAD(SI, Y0, Y1, Y2, Y3); \
	LOAD(DX, Y4, Y5, Y6, Y7); \
	instruction Y4, Y0, Y0; instruction Y5, Y1, Y1; instruction Y6, Y2, Y2; instruction Y7, Y3, Y3; \
	behind; \
	STORE(DI); \
	RET

// func addLanes(d, a, b *v32)
TWO(·addLanes, VPADDD, AS_IT_IS)

// func subLanes(d, a, b *v32)
TWO(·subLanes, VPSUBD, AS_IT_IS)

// func andLanes(d, a, b *v32)
TWO(·andLanes, VPAND, AS_IT_IS)

// func orLanes(d, a, b *v32)
TWO(·orLanes, VPOR, AS_IT_IS)

// func xorLanes(d, a, b *v32)
TWO(·xorLanes, VPXOR, AS_IT_IS)

// func addFloatLanes(d, a, b *v32)
TWO(·addFloatLanes, VADDPS, ONENAN)

// func subFloatLanes(d, a, b *v32)
TWO(·subFloatLanes, VSUBPS, ONENAN)

// func mulFloatLanes(d, a, b *v32)
TWO(·mulFloatLanes, VMULPS, ONENAN)

// func fmaLanes(d, a, b, c *v32)
TEXT ·fmaLanes(SB), NOSPLIT, $0-32
	MOVQ d+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ c+24(FP), CX
	LOAD(SI, Y0, Y1, Y2, Y3)
	LOAD(DX, Y4, Y5, Y6, Y7)
	VFMADD213PS 0(CX), Y4, Y0 // Y0 = Y0*Y4 + c
	VFMADD213PS 32(CX), Y5, Y1
	VFMADD213PS 64(CX), Y6, Y2
	VFMADD213PS 96(CX), Y7, Y3
	ONENAN
	STORE(DI)
	RET

// Bit i of the result is whether the sign of lane i of Y0 to Y3 is set.
#define SIGNS \
	VMOVMSKPS Y0, AX; VMOVMSKPS Y1, BX; VMOVMSKPS Y2, CX; VMOVMSKPS Y3, DX; \
	SHLL $8, BX; SHLL $16, CX; SHLL $24, DX; \
	ORL BX, AX; ORL DX, CX; ORL CX, AX; \
	VZEROUPPER

// func equalLanes(a, b *v32) uint32
TEXT ·equalLanes(SB), NOSPLIT, $0-20
	MOVQ a+0(FP), SI
	MOVQ b+8(FP), DX
	LOAD(SI, Y0, Y1, Y2, Y3)
	VPCMPEQD 0(DX), Y0, Y0
	VPCMPEQD 32(DX), Y1, Y1
	VPCMPEQD 64(DX), Y2, Y2
	VPCMPEQD 96(DX), Y3, Y3
	SIGNS
	MOVL AX, ret+16(FP)
	RET

// func lessLanes(a, b *v32) uint32, of signed numbers
TEXT ·lessLanes(SB), NOSPLIT, $0-20
	MOVQ a+0(FP), SI
	MOVQ b+8(FP), DX
	LOAD(DX, Y0, Y1, Y2, Y3)
	VPCMPGTD 0(SI), Y0, Y0 // b > a
	VPCMPGTD 32(SI), Y1, Y1
	VPCMPGTD 64(SI), Y2, Y2
	VPCMPGTD 96(SI), Y3, Y3
	SIGNS
	MOVL AX, ret+16(FP)
	RET

// func atLeastLanes(a, b *v32) uint32, of unsigned numbers: the greater of a and b is a
TEXT ·atLeastLanes(SB), NOSPLIT, $0-20
	MOVQ a+0(FP), SI
	MOVQ b+8(FP), DX
	LOAD(SI, Y4, Y5, Y6, Y7)
	VPMAXUD 0(DX), Y4, Y0
	VPMAXUD 32(DX), Y5, Y1
	VPMAXUD 64(DX), Y6, Y2
	VPMAXUD 96(DX), Y7, Y3
	VPCMPEQD Y4, Y0, Y0
	VPCMPEQD Y5, Y1, Y1
	VPCMPEQD Y6, Y2, Y2
	VPCMPEQD Y7, Y3, Y3
	SIGNS
	MOVL AX, ret+16(FP)
	RET
