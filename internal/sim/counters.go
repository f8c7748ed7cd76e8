package sim

// class is a class of instructions, for the counters.
type class uint8

const (
	classInteger class = iota
	classFloat
	classMove
	classControl
	classMemory
	classSync
	classWarp   // shuffles, votes and the like
	classTensor // matrix products and their fragments
	classes
)

var classNames = [classes]string{"integer", "float", "move", "control", "memory", "sync", "warp", "tensor"}

// Counters count what Nsight Compute counts too, as far as PTX decides it. One block's are added to the launch's when it ends.
type Counters struct {
	class [classes]uint64

	GlobalLoadRequests   uint64 // warp instructions
	GlobalLoadSectors    uint64 // of 32 bytes
	GlobalStoreRequests  uint64
	GlobalStoreSectors   uint64
	SharedLoads          uint64 // warp instructions
	SharedStores         uint64
	SharedLoadConflicts  uint64 // passes beyond those that the width of the access needs
	SharedStoreConflicts uint64

	GlobalBytes uint64 // asked for by lanes, both ways
	SharedBytes uint64
	LocalBytes  uint64
	AsyncBytes  uint64 // brought by asynchronous copies
	TensorOps   uint64 // matrix instructions
	TensorFLOPs uint64
	Barriers    uint64 // warps that came to a barrier
	Atomics     uint64
}

// WarpInstructions is the number of instructions that warps have executed, with at least one lane.
func (c *Counters) WarpInstructions() uint64 {
	total := uint64(0)
	for _, n := range c.class {
		total += n
	}
	return total
}

// ByClass is the number of warp instructions of each class.
func (c *Counters) ByClass() map[string]uint64 {
	m := map[string]uint64{}
	for i, n := range c.class {
		m[classNames[i]] = n
	}
	return m
}

func (c *Counters) add(o *Counters) {
	for i := range c.class {
		c.class[i] += o.class[i]
	}
	for _, pair := range [][2]*uint64{
		{&c.GlobalLoadRequests, &o.GlobalLoadRequests},
		{&c.GlobalLoadSectors, &o.GlobalLoadSectors},
		{&c.GlobalStoreRequests, &o.GlobalStoreRequests},
		{&c.GlobalStoreSectors, &o.GlobalStoreSectors},
		{&c.SharedLoads, &o.SharedLoads},
		{&c.SharedStores, &o.SharedStores},
		{&c.SharedLoadConflicts, &o.SharedLoadConflicts},
		{&c.SharedStoreConflicts, &o.SharedStoreConflicts},
		{&c.GlobalBytes, &o.GlobalBytes},
		{&c.SharedBytes, &o.SharedBytes},
		{&c.LocalBytes, &o.LocalBytes},
		{&c.AsyncBytes, &o.AsyncBytes},
		{&c.TensorOps, &o.TensorOps},
		{&c.TensorFLOPs, &o.TensorFLOPs},
		{&c.Barriers, &o.Barriers},
		{&c.Atomics, &o.Atomics},
	} {
		*pair[0] += *pair[1]
	}
}
