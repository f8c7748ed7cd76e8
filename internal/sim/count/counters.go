package count

// Class is a class of instructions.
type Class uint8

// The classes.
const (
	Integer Class = iota
	Float
	Move
	Control
	Memory
	Sync
	Warp   // shuffles, votes and other operations between lanes
	Tensor // matrix products and their fragments
	classes
)

var classNames = [classes]string{"integer", "float", "move", "control", "memory", "sync", "warp", "tensor"}

// Counters are the counters of a warp, or of a launch.
type Counters struct {
	class [classes]uint64

	GlobalLoads   Sectors
	GlobalStores  Sectors
	GlobalAtomics Sectors // atom and red
	CachedCopies  Sectors // cp.async.ca: what it reads
	BypassCopies  Sectors // cp.async.cg, which bypasses L1: what it reads

	SharedLoads   Banks
	SharedStores  Banks
	SharedAtomics Banks
	SharedCopies  Banks // cp.async: what it writes
	MatrixLoads   Banks // the part of SharedLoads that is ldmatrix, or wmma.load compiled to ldmatrix

	GlobalBytes uint64 // accessed by lanes in either direction
	SharedBytes uint64
	LocalBytes  uint64
	AsyncBytes  uint64 // moved by asynchronous copies

	BulkLoads      uint64 // bulk and tensor copies into shared memory
	BulkLoadBytes  uint64 // that they read from global memory, in whole sectors
	BulkStores     uint64 // bulk and tensor copies out of shared memory, and reductions
	BulkStoreBytes uint64

	TensorOps         uint64                // matrix instructions of PTX, per warp
	TensorFLOPs       uint64                // of these
	Products          [tensorUnits]uint64   // machine instructions that they become, per warp
	WarpgroupProducts uint64                // the part of Products that is for a warpgroup
	Operations        [tensorSources]uint64 // multiplications and additions, by source format

	Barriers uint64 // arrivals of warps at a barrier
	Waits    uint64 // mbarrier waits that warps executed
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

// Instruction counts one warp instruction.
func (c *Counters) Instruction(k Class) { c.class[k]++ }

// Instructions counts warp instructions of the three classes that package lanes executes.
func (c *Counters) Instructions(t Tally) {
	c.class[Integer] += uint64(t.Integer)
	c.class[Float] += uint64(t.Float)
	c.class[Move] += uint64(t.Move)
}

// Tally is a number of instructions by class.
type Tally struct{ Integer, Float, Move uint32 }

// Sub returns the difference of two tallies.
func (t Tally) Sub(o Tally) Tally {
	return Tally{t.Integer - o.Integer, t.Float - o.Float, t.Move - o.Move}
}

// WarpInstructions returns the number of instructions that warps have executed with at least one
// lane.
func (c *Counters) WarpInstructions() uint64 {
	total := uint64(0)
	for _, n := range c.class {
		total += n
	}
	return total
}

// ByClass returns the number of warp instructions of each class, by its name.
func (c *Counters) ByClass() map[string]uint64 {
	m := map[string]uint64{}
	for i, n := range c.class {
		m[classNames[i]] = n
	}
	return m
}

// Add adds the counters of a warp.
func (c *Counters) Add(o *Counters) {
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
	c.GlobalBytes += o.GlobalBytes
	c.SharedBytes += o.SharedBytes
	c.LocalBytes += o.LocalBytes
	c.AsyncBytes += o.AsyncBytes
	c.BulkLoads += o.BulkLoads
	c.BulkLoadBytes += o.BulkLoadBytes
	c.BulkStores += o.BulkStores
	c.BulkStoreBytes += o.BulkStoreBytes
	c.TensorOps += o.TensorOps
	c.TensorFLOPs += o.TensorFLOPs
	c.WarpgroupProducts += o.WarpgroupProducts
	c.Barriers += o.Barriers
	c.Waits += o.Waits
	c.Atomics += o.Atomics
}
