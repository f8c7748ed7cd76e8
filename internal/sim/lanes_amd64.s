#include "textflag.h"

// Every function here does one operation on 32 lanes of 32 bits: four registers of eight. A result may be one of the operands.

// The chip's NaN, in eight lanes.
DATA nan8<>+0(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+8(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+16(SB)/8, $0x7FFFFFFF7FFFFFFF
DATA nan8<>+24(SB)/8, $0x7FFFFFFF7FFFFFFF
GLOBL nan8<>(SB), RODATA|NOPTR, $32

// Go writes the operands of an instruction in Intel's order turned round: the last is the result.
#define INTEGER(name, instruction) \
TEXT name(SB), NOSPLIT, $0-24; \
	MOVQ d+0(FP), DI; MOVQ a+8(FP), SI; MOVQ b+16(FP), DX; \
	VMOVDQU 0(SI), Y0; VMOVDQU 32(SI), Y1; VMOVDQU 64(SI), Y2; VMOVDQU 96(SI), Y3; \
	VMOVDQU 0(DX), Y4; VMOVDQU 32(DX), Y5; VMOVDQU 64(DX), Y6; VMOVDQU 96(DX), Y7; \
	instruction Y4, Y0, Y0; instruction Y5, Y1, Y1; instruction Y6, Y2, Y2; instruction Y7, Y3, Y3; \
	VMOVDQU Y0, 0(DI); VMOVDQU Y1, 32(DI); VMOVDQU Y2, 64(DI); VMOVDQU Y3, 96(DI); \
	VZEROUPPER; \
	RET

// Lanes of Y0 to Y3 that are not a number become the chip's.
#define ONENAN \
	VMOVUPS nan8<>(SB), Y8; \
	VCMPPS $3, Y0, Y0, Y4; VCMPPS $3, Y1, Y1, Y5; VCMPPS $3, Y2, Y2, Y6; VCMPPS $3, Y3, Y3, Y7; \
	VBLENDVPS Y4, Y8, Y0, Y0; VBLENDVPS Y5, Y8, Y1, Y1; VBLENDVPS Y6, Y8, Y2, Y2; VBLENDVPS Y7, Y8, Y3, Y3

#define FLOAT(name, instruction) \
TEXT name(SB), NOSPLIT, $0-24; \
	MOVQ d+0(FP), DI; MOVQ a+8(FP), SI; MOVQ b+16(FP), DX; \
	VMOVUPS 0(SI), Y0; VMOVUPS 32(SI), Y1; VMOVUPS 64(SI), Y2; VMOVUPS 96(SI), Y3; \
	VMOVUPS 0(DX), Y4; VMOVUPS 32(DX), Y5; VMOVUPS 64(DX), Y6; VMOVUPS 96(DX), Y7; \
	instruction Y4, Y0, Y0; instruction Y5, Y1, Y1; instruction Y6, Y2, Y2; instruction Y7, Y3, Y3; \
	ONENAN; \
	VMOVUPS Y0, 0(DI); VMOVUPS Y1, 32(DI); VMOVUPS Y2, 64(DI); VMOVUPS Y3, 96(DI); \
	VZEROUPPER; \
	RET

// func addLanes(d, a, b *v32)
INTEGER(·addLanes, VPADDD)

// func subLanes(d, a, b *v32)
INTEGER(·subLanes, VPSUBD)

// func andLanes(d, a, b *v32)
INTEGER(·andLanes, VPAND)

// func orLanes(d, a, b *v32)
INTEGER(·orLanes, VPOR)

// func xorLanes(d, a, b *v32)
INTEGER(·xorLanes, VPXOR)

// func addFloatLanes(d, a, b *v32)
FLOAT(·addFloatLanes, VADDPS)

// func subFloatLanes(d, a, b *v32)
FLOAT(·subFloatLanes, VSUBPS)

// func mulFloatLanes(d, a, b *v32)
FLOAT(·mulFloatLanes, VMULPS)

// func fmaLanes(d, a, b, c *v32)
TEXT ·fmaLanes(SB), NOSPLIT, $0-32
	MOVQ d+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ c+24(FP), CX
	VMOVUPS 0(SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS 64(SI), Y2
	VMOVUPS 96(SI), Y3
	VMOVUPS 0(DX), Y4
	VMOVUPS 32(DX), Y5
	VMOVUPS 64(DX), Y6
	VMOVUPS 96(DX), Y7
	VFMADD213PS 0(CX), Y4, Y0 // Y0 = Y0*Y4 + c
	VFMADD213PS 32(CX), Y5, Y1
	VFMADD213PS 64(CX), Y6, Y2
	VFMADD213PS 96(CX), Y7, Y3
	ONENAN
	VMOVUPS Y0, 0(DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	VZEROUPPER
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
	VMOVDQU 0(SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU 64(SI), Y2
	VMOVDQU 96(SI), Y3
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
	VMOVDQU 0(DX), Y0
	VMOVDQU 32(DX), Y1
	VMOVDQU 64(DX), Y2
	VMOVDQU 96(DX), Y3
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
	VMOVDQU 0(SI), Y4
	VMOVDQU 32(SI), Y5
	VMOVDQU 64(SI), Y6
	VMOVDQU 96(SI), Y7
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
