//go:build !amd64

package sim

const haveLaneAssembly = false

func lanesAssembly(*laneOp, int, *v32, *v64, *uint32) {
	panic("BUG: there is no assembly for this processor")
}
