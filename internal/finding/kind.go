package finding

// Kind is a kind of finding.
type Kind string

// The kinds of the simulator's checkers. Kinds lists them in this order.
const (
	Race             Kind = "race"              // two accesses that nothing orders
	MissingWait      Kind = "missing-wait"      // use of asynchronous data that no thread has waited for
	MissingFence     Kind = "missing-fence"     // a fence between proxies, or before wgmma, is missing
	Uninitialized    Kind = "uninitialized"     // a read of bytes that were never written
	OutOfBounds      Kind = "out-of-bounds"     // an access outside of any buffer or variable
	Misaligned       Kind = "misaligned"        // an address that is not a multiple of the required alignment
	DivergentBarrier Kind = "divergent-barrier" // a barrier or warpgroup instruction that not all lanes execute
	Deadlock         Kind = "deadlock"          // a wait that never ends
	BadBarrier       Kind = "bad-barrier"       // wrong use of a barrier: its count, its phase, its bytes
	Undefined        Kind = "undefined"         // behaviour that PTX leaves undefined
	KeptMemory       Kind = "kept-memory"       // a read of what an earlier launch has left in a variable or in scratch
)

// Kinds lists the kinds of the simulator's checkers, which a case may expect.
func Kinds() []Kind {
	return []Kind{
		Race, MissingWait, MissingFence, Uninitialized, OutOfBounds, Misaligned, DivergentBarrier, Deadlock, BadBarrier, Undefined,
		KeptMemory,
	}
}

// Sync is a synchronisation that orders two accesses.
type Sync string

// The synchronisations.
const (
	WarpSync     Sync = "warp-sync"     // between lanes of a warp
	BlockSync    Sync = "block-sync"    // between warps of a block
	DeviceSync   Sync = "device-sync"   // between blocks
	DeviceFence  Sync = "device-fence"  // between blocks that have a flag
	ClusterSync  Sync = "cluster-sync"  // between blocks of a cluster that share memory
	CopyWait     Sync = "copy-wait"     // until a cp.async has ended
	BulkWait     Sync = "bulk-wait"     // until a bulk copy or TMA load has ended
	ProductWait  Sync = "product-wait"  // until a wgmma has ended
	ProductFence Sync = "product-fence" // between registers and a wgmma
	ProxyFence   Sync = "proxy-fence"   // between the generic and the async proxy

	CooperativeLaunch Sync = "cooperative-launch" // makes all blocks resident at once
)

// The kinds that every device finds in the buffers of a job. BufferKinds lists them in this order.
const (
	WroteOutside  Kind = "wrote-outside"
	InputChanged  Kind = "input-changed"
	Unwritten     Kind = "unwritten"
	NotRepeatable Kind = "not-repeatable" // outputs that differ between launches
)

// BufferKinds lists the kinds that every device finds in the buffers of a job.
func BufferKinds() []Kind { return []Kind{WroteOutside, InputChanged, Unwritten, NotRepeatable} }

// The kinds of whole programs: a kernel ends its launch itself.
const (
	Trapped      Kind = "trap"
	AssertFailed Kind = "assert"
)

// The kinds about launches that are timed or repeated.
const (
	// TimedOutputDiffers: the output of a timed launch is not that of an untimed one.
	TimedOutputDiffers Kind = "timed-output-differs"
	// RemembersResults: launches on new inputs take longer than launches on the same ones, or, on the
	// simulator, execute more instructions.
	RemembersResults Kind = "remembers-results"
	// UnorderedSums is a note: the kernel adds floating-point numbers by atomic operations, so that its
	// outputs differ in rounding from launch to launch.
	UnorderedSums Kind = "unordered-sums"
)

// The kinds of the audit of the PTX. AllowableKinds lists them in this order.
const (
	ModuleMemory    Kind = "module-memory"    // a variable of the module that the kernel may write
	Clock           Kind = "clock"            // a clock or a performance counter
	LaunchID        Kind = "launch-id"        // a value that the driver sets for each launch
	OutputRead      Kind = "output-read"      // an output, which has the result of an earlier launch
	UnsetRegister   Kind = "unset-register"   // a register that nothing sets, with what was left in it
	UnsetLocal      Kind = "unset-local"      // local memory that no path sets before
	Allocation      Kind = "allocation"       // the heap, whose contents outlive the launch
	DeviceLaunch    Kind = "device-launch"    // a launch of another grid
	ExternalCall    Kind = "external-call"    // a function that is not in the module
	IndirectCall    Kind = "indirect-call"    // a call whose possible callees are not listed
	AbsoluteAddress Kind = "absolute-address" // memory that no argument and no variable leads to
	Texture         Kind = "texture"          // textures and surfaces, which are not arguments
	Unreadable      Kind = "unreadable"       // PTX that the audit cannot read
)

// AllowableKinds lists the kinds that kernel.toml may allow: those of the audit, NotRepeatable, and
// KeptMemory of scratch.
func AllowableKinds() []Kind {
	return []Kind{
		ModuleMemory, Clock, LaunchID, OutputRead, UnsetRegister, UnsetLocal, Allocation, DeviceLaunch, ExternalCall,
		IndirectCall, AbsoluteAddress, Texture, Unreadable, NotRepeatable, KeptMemory,
	}
}
