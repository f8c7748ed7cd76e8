package tuner

import (
	"fmt"

	"attune/internal/arch"
	"attune/internal/device"
	"attune/internal/problem"
)

const (
	registerFile = 65536 // of a multiprocessor, and of a block
	registerUnit = 8     // registers of a thread are allocated in steps of 8
	maxThreads   = 1024  // of a block
	driverShared = 1024
	lanes        = 32
)

// blockNeeds are the resources of one block.
type blockNeeds struct {
	threads, warps int
	registers      int // of a thread; 0 if unknown
	shared         int // bytes
}

func needsOf(b problem.Build, job device.Job) blockNeeds {
	threads := job.Block[0] * job.Block[1] * job.Block[2]
	r := b.Image.Record.Resources
	return blockNeeds{threads, (threads + lanes - 1) / lanes, r.Registers, r.StaticSharedBytes + job.DynamicSharedBytes}
}

// warpRegisters are the registers that a warp is given.
func (n blockNeeds) warpRegisters() int {
	return (n.registers + registerUnit - 1) / registerUnit * registerUnit * lanes
}

// over is what the block needs more of than a chip has; empty if it fits. sharedLimit is the device's
// own limit, or 0.
func (n blockNeeds) over(name string, sharedLimit int) string {
	limits, known := arch.LimitsOf(name)
	if sharedLimit == 0 && known {
		sharedLimit = limits.BlockShared
	}
	switch {
	case n.threads > maxThreads:
		return fmt.Sprintf("%d threads of a block; the chip allows %d", n.threads, maxThreads)
	case sharedLimit > 0 && n.shared > sharedLimit:
		return fmt.Sprintf("%d bytes of shared memory of a block; the chip has %d", n.shared, sharedLimit)
	case n.warps*n.warpRegisters() > registerFile:
		return fmt.Sprintf("%d registers of each of %d threads; the chip has %d", n.registers, n.threads, registerFile)
	}
	return ""
}

// resident is how many blocks a multiprocessor runs at once: at least 1.
func (n blockNeeds) resident(c arch.Limits) int {
	blocks := min(c.Blocks, c.Warps/max(1, n.warps), c.Shared/(n.shared+driverShared))
	if n.registers > 0 {
		blocks = min(blocks, registerFile/(n.warpRegisters()*max(1, n.warps)))
	}
	return max(1, blocks)
}
