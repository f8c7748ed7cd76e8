package tuner

import (
	"fmt"

	"attune/internal/arch"
	"attune/internal/device"
	"attune/internal/problem"
)

const (
	maxThreads = 1024 // of a block
	lanes      = 32
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
	case n.warps*arch.WarpRegisters(n.registers) > arch.RegisterFile:
		return fmt.Sprintf("%d registers of each of %d threads; the chip has %d", n.registers, n.threads, arch.RegisterFile)
	}
	return ""
}

// resident is how many blocks a multiprocessor runs at once.
func (n blockNeeds) resident(l arch.Limits) int { return l.Resident(n.warps, n.registers, n.shared) }
