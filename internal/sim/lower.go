package sim

import (
	"fmt"
	"slices"

	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/lanes"
)

// lowerInstruction lowers an instruction. pc is its index in the function.
func (c *code) lowerInstruction(in *ptx.Instruction, o *op, pc int) error {
	switch in.Opcode {
	case "mov":
		return c.lowerMov(in, o)
	case "ld", "ldu", "st":
		if slices.Contains(in.Modifiers, "async") {
			return c.lowerStoreAsync(in, o)
		}
		return c.lowerAccess(in, o)
	case "atom", "red":
		if slices.Contains(in.Modifiers, "async") {
			return c.lowerStoreAsync(in, o)
		}
		return c.lowerAtomic(in, o)
	case "cvta":
		return c.lowerCvta(in, o)
	case "isspacep":
		return c.lowerIsspacep(in, o)
	case "bra", "brx", "call", "ret", "exit", "trap":
		return c.lowerControl(in, o, pc)
	case "mapa", "getctarank":
		return c.lowerMapa(in, o)
	case "bar", "barrier":
		if slices.Contains(in.Modifiers, "cluster") {
			return c.lowerClusterBarrier(in, o)
		}
		return c.lowerBarrier(in, o)
	case "membar", "fence":
		return c.lowerFence(in, o)
	case "cp":
		return c.lowerCpAsync(in, o)
	case "mbarrier":
		return c.lowerMbarrier(in, o, pc)
	case "activemask", "shfl", "vote", "match", "redux", "elect":
		return c.lowerWarpOp(in, o)
	case "ldmatrix", "stmatrix", "movmatrix", "mma", "wmma":
		return c.lowerMatrix(in, o)
	case "wgmma":
		return c.lowerWgmma(in, o)
	case "setmaxnreg":
		return c.lowerMaxRegisters(in, o)
	case "tex", "tld4", "suld", "sust":
		return c.lowerTexture(in, o)
	case "tensormap":
		return c.lowerTensorMap(in, o)
	case "createpolicy":
		return c.lowerPolicy(in, o)
	case "prefetch", "prefetchu", "pmevent", "nanosleep", "brkpt", "applypriority", "griddepcontrol":
		// They concern caches, sleep and events, which the simulator does not have.
		o.class = count.Move
		o.run = func(*warp, *op, uint32) {}
		return nil
	}
	return c.lowerALU(in, o)
}

// lowerPolicy lowers createpolicy. The value of a cache policy has no effect here.
func (c *code) lowerPolicy(in *ptx.Instruction, o *op) error {
	if len(in.Operands) == 0 {
		return fmt.Errorf("unsupported form")
	}
	d, err := c.register(in.Operands[0], ptx.B64)
	if err != nil {
		return err
	}
	o.class = count.Move
	o.compact(lanes.Mov64, d, c.constant(file64, 0))
	return nil
}
