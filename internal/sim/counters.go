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

	GlobalLoads   Sectors
	GlobalStores  Sectors
	GlobalAtomics Sectors // atom and red
	CachedCopies  Sectors // cp.async.ca: what it reads
	BypassCopies  Sectors // cp.async.cg, which leaves the first cache out

	SharedLoads   Banks
	SharedStores  Banks
	SharedAtomics Banks
	SharedCopies  Banks // cp.async: what it writes
	MatrixLoads   Banks // those of SharedLoads that ldmatrix makes, or wmma.load where it becomes one

	GlobalBytes uint64 // asked for by lanes, both ways
	SharedBytes uint64
	LocalBytes  uint64
	AsyncBytes  uint64 // brought by asynchronous copies

	BulkLoads      uint64 // bulk and tensor copies into shared memory
	BulkLoadBytes  uint64 // that they read of global memory, in whole sectors
	BulkStores     uint64 // and out of it, reductions among them
	BulkStoreBytes uint64

	TensorOps         uint64                // matrix instructions of PTX, a warp each
	TensorFLOPs       uint64                // of them, as PTX has them
	Products          [tensorUnits]uint64   // machine instructions that they become, a warp each
	WarpgroupProducts uint64                // of these, those of a warpgroup
	Operations        [tensorSources]uint64 // multiplications and additions of these, by what they multiply

	Barriers uint64 // warps that came to a barrier
	Waits    uint64 // looks of warps at an mbarrier
	Atomics  uint64
}

// Sectors is traffic with global memory.
type Sectors struct {
	Requests uint64 // warp instructions with at least one lane
	Sectors  uint64 // of 32 bytes
}

// Banks is traffic with shared memory.
type Banks struct {
	Requests   uint64 // warp instructions with at least one lane
	Wavefronts uint64 // passes over the banks
	Conflicts  uint64 // passes beyond those that the width of the access needs
}

func (s *Sectors) add(o Sectors) {
	s.Requests += o.Requests
	s.Sectors += o.Sectors
}

func (b *Banks) add(o Banks) {
	b.Requests += o.Requests
	b.Wavefronts += o.Wavefronts
	b.Conflicts += o.Conflicts
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
	for i := range c.Products {
		c.Products[i] += o.Products[i]
	}
	for i := range c.Operations {
		c.Operations[i] += o.Operations[i]
	}
	c.GlobalLoads.add(o.GlobalLoads)
	c.GlobalStores.add(o.GlobalStores)
	c.GlobalAtomics.add(o.GlobalAtomics)
	c.CachedCopies.add(o.CachedCopies)
	c.BypassCopies.add(o.BypassCopies)
	c.SharedLoads.add(o.SharedLoads)
	c.SharedStores.add(o.SharedStores)
	c.SharedAtomics.add(o.SharedAtomics)
	c.SharedCopies.add(o.SharedCopies)
	c.MatrixLoads.add(o.MatrixLoads)
	for _, pair := range [][2]*uint64{
		{&c.GlobalBytes, &o.GlobalBytes},
		{&c.SharedBytes, &o.SharedBytes},
		{&c.LocalBytes, &o.LocalBytes},
		{&c.AsyncBytes, &o.AsyncBytes},
		{&c.BulkLoads, &o.BulkLoads},
		{&c.BulkLoadBytes, &o.BulkLoadBytes},
		{&c.BulkStores, &o.BulkStores},
		{&c.BulkStoreBytes, &o.BulkStoreBytes},
		{&c.TensorOps, &o.TensorOps},
		{&c.TensorFLOPs, &o.TensorFLOPs},
		{&c.WarpgroupProducts, &o.WarpgroupProducts},
		{&c.Barriers, &o.Barriers},
		{&c.Waits, &o.Waits},
		{&c.Atomics, &o.Atomics},
	} {
		*pair[0] += *pair[1]
	}
}
