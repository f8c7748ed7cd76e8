package sim

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// lowerInstruction finds the operation of an instruction.
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
		return c.lowerMbarrier(in, o)
	case "activemask", "shfl", "vote", "match", "redux", "elect":
		return c.lowerWarpOp(in, o)
	case "ldmatrix", "stmatrix", "movmatrix", "mma", "wmma":
		return c.lowerMatrix(in, o)
	case "wgmma":
		return c.lowerWgmma(in, o)
	case "setmaxnreg":
		return c.lowerMaxRegisters(in, o)
	}
	if in.Opcode == "createpolicy" {
		return c.lowerPolicy(in, o)
	}
	if noEffect(in) {
		o.class = classMove
		o.run = func(*warp, *op, uint32) {}
		return nil
	}
	return c.lowerALU(in, o)
}

// noEffect says whether an instruction changes nothing that a simulator has: caches, sleep and events.
func noEffect(in *ptx.Instruction) bool {
	switch in.Opcode {
	case "prefetch", "prefetchu", "pmevent", "nanosleep", "brkpt", "applypriority", "griddepcontrol":
		return true
	}
	return false
}

// lowerProxyFence is for the fences between ways to memory, which matter to bulk copies and to wgmma.
func (c *code) lowerProxyFence(in *ptx.Instruction, o *op) error {
	o.run = func(*warp, *op, uint32) {}
	switch words := strings.Join(in.Modifiers, "."); words {
	case "proxy.async", "proxy.async.shared::cta", "proxy.async.shared::cluster":
		o.run = runProxyFence
	case "proxy.async.global":
		o.run = func(w *warp, _ *op, _ uint32) { w.block.fenceGlobal() }
	case "proxy.alias", "mbarrier_init.release.cluster":
	default:
		if !strings.HasPrefix(words, "proxy.tensormap::generic.") {
			return fmt.Errorf("unsupported form")
		}
	}
	return nil
}

// lowerPolicy gives a cache policy some value; nothing depends on it.
func (c *code) lowerPolicy(in *ptx.Instruction, o *op) error {
	if len(in.Operands) == 0 {
		return fmt.Errorf("unsupported form")
	}
	d, err := c.register(in.Operands[0], ptx.B64)
	if err != nil {
		return err
	}
	o.class = classMove
	o.compact(laneMov64, d, c.constant(file64, 0))
	return nil
}
