package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"attune/internal/coverage"
	"attune/internal/crash"
	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
	"attune/internal/sim/mma"
	"attune/internal/sim/order"
)

// Launch is one launch of an entry function.
type Launch struct {
	Entry         string // may be empty where the module has one entry
	Grid, Block   [3]int
	DynamicShared int    // bytes
	Cluster       [3]int // blocks of a cluster; zero for the kernel's own, or none
	Cooperative   bool   // all blocks must be resident at once
	Params        []byte // the parameters as the driver lays them out; Program.Params makes them
}

// Options are the options of a run.
type Options struct {
	Seed     uint64   // of the schedule (blocks, warps, sides of branches) and of wmma's fragment layout
	Checks   bool     // enables all checkers
	Tensor   mma.Mode // arithmetic of the tensor cores
	Workers  int      // blocks that run at once; 0 for the number of cores
	MaxSteps uint64   // warp instructions of a block before it counts as endless; 0 for 500 million
	Printf   func(text string)
	Memory   int       // of the memory that a caller makes for the launch, in bytes; 0 for the default
	Instance *Instance // keeps the module's variables between launches; nil for fresh ones
	Heap     *mem.Heap // keeps what kernels allocate between launches; nil for a heap of the launch
	// Sample is how many blocks run; 0 for all. Blocks that communicate cannot be sampled.
	Sample int
	// Executed counts how often warps execute each instruction.
	Executed bool
	// Residency reports blocks that wait for later ones, unless the launch is cooperative. A caller that
	// cannot ask for a cooperative launch leaves it off: a small grid is resident on most chips anyway.
	Residency bool
}

// Result is the result of a launch, besides what it has written.
type Result struct {
	Findings []finding.Finding
	Counters count.Counters
	// Schedules is how many seeds, from 0 on, the launch should run with: more than one if its blocks
	// communicate and the launch is short.
	Schedules int
	Covered   *coverage.Launches
	// Stale is a load that has returned the bytes from before a write, as PTX allows (weak.go). It is a
	// defect if the output is wrong. nil for none.
	Stale *finding.Finding
}

// Limits of a block. The chips have the same.
const (
	maxThreads = 1024
	maxStatic  = 48 << 10 // bytes of static shared memory

	maxSharedAlign = 64 << 10 // bytes; every address then lies far below those of other blocks of a cluster

	defaultMaxSteps = 500_000_000 // takes from half a minute to a minute
)

var maxExtents = [3]int{1024, 1024, 64}

// maxShared returns the bytes of shared memory that a block may have on an architecture.
func maxShared(arch string) int {
	switch strings.TrimRight(arch, "af") {
	case "sm_70", "sm_72":
		return 96 << 10
	case "sm_75":
		return 64 << 10
	case "sm_80", "sm_87":
		return 163 << 10
	case "sm_86", "sm_88", "sm_89", "sm_120", "sm_121":
		return 99 << 10
	}
	return 227 << 10
}

// launch is the state of a launch.
type launch struct {
	program *Program
	memory  *mem.Memory
	code    *code
	options Options

	reachable map[*ptx.Function]bool // that the entry may call, and the entry

	grid            [3]int
	threads         [3]int
	cluster         [3]int
	explicitCluster bool // the kernel specifies clusters, or they have several blocks
	cooperative     bool
	dynamic         int // bytes of dynamic shared memory
	params          []byte
	communicates    bool        // blocks may communicate, so they run interleaved
	exchanges       bool        // the result may depend on the order of blocks (schedule.go)
	sharesBarrier   atomic.Bool // groups of warps share a named barrier, and might meet each other
	usesWgmma       bool        // the module has warpgroup products
	usesReserved    bool        // the kernel reads the address of reserved shared memory
	lacksWorkspace  bool        // the kernel reads the address of the grid's barrier, and the launch has none

	chip      mma.Chip
	plans     map[int32]*matrixPlan // by the number of the operation
	tails     map[*code]*tail
	globals   []uint64 // addresses of the module's variables
	workspace uint64   // address of the grid's barrier; 0 where the kernel does not use it, or has none
	constants []byte
	layout    *mem.Layout
	shared    int // address of shared memory in each block

	findings     finding.Set
	weak         *weakMemory     // nil where every load sees the last write
	locations    order.Locations // what strong accesses have published in global memory
	failed       atomic.Pointer[error]
	halt         atomic.Bool // the launch has failed, or its context has ended
	maxBlocks    int         // that may be resident
	printing     sync.Mutex
	printed      printed
	parallel     bool // several blocks run at the same time
	mu           sync.Mutex
	fencedGlobal map[uint32]bool // blocks that have executed fence.proxy.async.global
	heap         *mem.Heap
	counters     count.Counters
	marks        marks
	executed     []uint64 // by the numbers of the instructions; nil unless the options count them
	interrupted  interrupted
}

// Run runs a launch to its end. The result of a launch that fails while it runs has what was found
// until then. An error concerns the launch as a whole; defects of the kernel are
// findings. A panic in the simulator is an error of type *crash.Panic, which names the instruction.
func (p *Program) Run(ctx context.Context, memory *mem.Memory, l Launch, o Options) (result *Result, err error) {
	defer crash.Catch(&err, func() string { return "the simulation of " + cmp.Or(l.Entry, "the kernel") })
	// Variables of the module, unless it has an instance, and a kernel's allocations, unless it has a
	// heap, do not outlive the launch.
	own := memory.Next()
	defer func() { memory.FreeFrom(max(own, o.Instance.end()), o.Heap) }()
	r, err := p.prepare(memory, l, o)
	if err != nil {
		return nil, err
	}
	defer r.watch(ctx)()
	defer r.printDropped()
	err = r.run(ctx) // the findings before a fault may explain it
	return &Result{Findings: r.findings.List(), Counters: r.counters, Schedules: r.schedules(), Covered: r.covered(), Stale: r.weak.explanation()}, err
}

func (p *Program) prepare(memory *mem.Memory, l Launch, o Options) (*launch, error) {
	f, err := p.Entry(l.Entry)
	if err != nil {
		return nil, err
	}
	if err := p.refused(f); err != nil {
		return nil, err
	}
	c := p.codes[f]
	reachable, used := p.module.Reachable(f)
	layout := mem.NewLayout(p.static, used)
	if err := p.checkLaunch(c, l, layout); err != nil {
		return nil, fmt.Errorf("launch %s: %w", f.Name, err)
	}
	cluster, err := checkCluster(f, l)
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w", f.Name, err)
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = defaultMaxSteps
	}
	r := &launch{
		program: p, memory: memory, code: c, options: o, grid: l.Grid, threads: l.Block, dynamic: l.DynamicShared, params: l.Params,
		layout: layout, tails: map[*code]*tail{}, plans: map[int32]*matrixPlan{}, heap: o.Heap,
		reachable: reachable, marks: make(marks, len(p.ops)),
		cluster: cluster, cooperative: l.Cooperative, explicitCluster: f.ExplicitCluster || f.ClusterBlocks[0] > 0,
	}
	if r.heap == nil {
		r.heap = &mem.Heap{}
	}
	r.explicitCluster = r.explicitCluster || r.clusterSize() > 1
	if o.Executed {
		r.executed = make([]uint64, len(p.ops))
	}
	r.communicates, r.exchanges = r.clusterSize() > 1 || l.Cooperative, l.Cooperative
	for f := range reachable {
		r.exchanges = r.exchanges || p.codes[f].exchanges
		r.communicates = r.communicates || p.codes[f].communicates
		r.usesReserved = r.usesReserved || p.codes[f].readsReserved()
		r.usesWgmma = r.usesWgmma || len(p.codes[f].products) > 0
	}
	if r.chip, err = mma.ChipOf(p.arch); err != nil {
		return nil, err
	}
	r.weak = r.newWeakMemory()
	r.placeShared()
	if err := r.planMatrices(); err != nil {
		return nil, err
	}
	if err := r.placeGlobals(l.Cooperative); err != nil {
		return nil, err
	}
	if err := r.placeBlocks(l.Cooperative); err != nil {
		return nil, fmt.Errorf("launch %s: %w", f.Name, err)
	}
	for _, c := range p.codes {
		r.tails[c] = r.newTail(c)
	}
	memory.ForgetAccesses()
	return r, nil
}

// checkLaunch returns an error for a launch that the driver refuses. layout is the static shared
// memory that the entry uses.
func (p *Program) checkLaunch(c *code, l Launch, layout *mem.Layout) error {
	shared := layout.Bytes
	for i, most := range [3]int{1<<31 - 1, 65535, 65535} {
		if l.Grid[i] < 1 || l.Block[i] < 1 {
			return fmt.Errorf("a grid of %v and a block of %v: every extent must be at least 1", l.Grid, l.Block)
		}
		if l.Grid[i] > most || l.Block[i] > maxExtents[i] {
			return fmt.Errorf("a grid of %v and a block of %v: a block may be %v at most, a grid [2147483647 65535 65535]", l.Grid, l.Block, maxExtents)
		}
	}
	threads := l.Block[0] * l.Block[1] * l.Block[2]
	f := c.fn
	most := f.MaxThreads[0] * max(f.MaxThreads[1], 1) * max(f.MaxThreads[2], 1)
	switch {
	case threads > maxThreads:
		return fmt.Errorf("a block of %d threads; %d are allowed", threads, maxThreads)
	case most > 0 && threads > most:
		return fmt.Errorf("a block of %d threads; the kernel is compiled for %d at most (.maxntid)", threads, most)
	case f.RequiredThreads[0] > 0 && l.Block != f.RequiredThreads:
		return fmt.Errorf("a block of %v threads; the kernel is compiled for %v (.reqntid)", l.Block, f.RequiredThreads)
	case layout.Align > maxSharedAlign:
		return fmt.Errorf("shared variables with an alignment of %d bytes; %d are allowed", layout.Align, maxSharedAlign)
	case shared > maxStatic:
		return fmt.Errorf("%d bytes of static shared memory; %d are allowed, and more only as dynamic", shared, maxStatic)
	case l.DynamicShared < 0:
		return fmt.Errorf("%d bytes of dynamic shared memory; it must be from 0 to %d on %s", l.DynamicShared, maxShared(p.arch), p.arch)
	case l.DynamicShared > maxShared(p.arch)-shared: // the sum may overflow
		return fmt.Errorf("%d bytes of shared memory, %d of them dynamic; %d are allowed on %s",
			uint64(shared)+uint64(l.DynamicShared), l.DynamicShared, maxShared(p.arch), p.arch)
	case len(l.Params) != c.entrySize:
		return fmt.Errorf("%d bytes of parameters; the kernel takes %d bytes in %d parameters", len(l.Params), c.entrySize, len(f.Params))
	}
	return nil
}

// reservedShared is the number of bytes that the system reserves at the start of shared memory.
const reservedShared = 1024

// placeShared chooses the address of shared memory. It is aligned as the variables require and,
// with a seed, no more than that. A kernel that relies on more alignment then fails under some
// seed.
func (r *launch) placeShared() {
	align := r.layout.Align
	r.shared = mem.AlignUp(reservedShared, align)
	random := rand.New(rand.NewPCG(r.options.Seed, 7))
	if r.options.Seed != 0 && align < 1024 {
		r.shared += align * random.IntN(1024/align)
	}
}

// initialiseVariables allocates the module's variables in global memory and fills in the addresses
// in initial values.
func (r *launch) initialiseVariables() error {
	for _, v := range r.program.globals {
		base, err := r.memory.Alloc(finding.Variable{Name: v.SourceName(), Space: finding.Global}, v.Size())
		if err != nil {
			return err
		}
		if err := r.memory.Initialise(base, v.Init); err != nil {
			return err
		}
		r.globals = append(r.globals, base)
	}
	for i, v := range r.program.globals {
		write := func(offset int, data []byte) error { return r.memory.Write(r.globals[i]+uint64(offset), data) }
		if err := r.relocate(v, write); err != nil {
			return err
		}
	}
	return nil
}

// placeGlobals prepares everything in global and constant memory that the module needs.
func (r *launch) placeGlobals(cooperative bool) error {
	if err := r.placeVariables(); err != nil {
		return err
	}
	if err := r.placeWorkspace(cooperative); err != nil {
		return err
	}
	return r.placeConstants()
}

// placeWorkspace allocates what the driver provides to a cooperative grid: its size and a barrier,
// 4 bytes each. A launch that is not cooperative has none, and its address reads as null.
func (r *launch) placeWorkspace(cooperative bool) error {
	used := false
	for _, c := range r.program.codes {
		used = used || slices.ContainsFunc(c.specials, func(s specialSlot) bool { return strings.HasPrefix(s.name, "envreg") })
	}
	r.lacksWorkspace = used && !cooperative
	if !used || !cooperative {
		return nil
	}
	const size = 8
	base, err := r.memory.Alloc(finding.Variable{Name: "the workspace of the grid"}, size)
	if err != nil {
		return err
	}
	r.workspace = base
	return r.memory.Write(base, []byte{size, 0, 0, 0, 0, 0, 0, 0})
}

// missingGrid explains a trap, or an access through a null pointer, of a kernel that needs the
// barrier of a cooperative grid and was launched without it. It is empty for other launches.
func (r *launch) missingGrid() string {
	if !r.lacksWorkspace {
		return ""
	}
	return "; a grid barrier needs a cooperative launch, and this one is not: set cooperative = true in [launch] of kernel.toml, or --cooperative of attune sim"
}

// relocate writes addresses into the initial value of a variable.
func (r *launch) relocate(v *ptx.Variable, write func(offset int, data []byte) error) error {
	for _, p := range v.Relocations {
		address, err := r.symbolAddress(p)
		if err != nil {
			return fmt.Errorf("the variable %s: %w", v.Name, err)
		}
		if err := write(p.Offset, littleEndian(address>>p.Shift, p.Size)); err != nil {
			return err
		}
	}
	return nil
}

func (r *launch) symbolAddress(p ptx.Relocation) (uint64, error) {
	if f := p.Symbol.Function; f != nil {
		return mem.FunctionAddress(r.program.codes[f].number), nil
	}
	v := p.Symbol.Variable
	switch v.Space {
	case ptx.Global:
		for i, g := range r.program.globals {
			if g == v {
				return r.globals[i] + uint64(p.Addend), nil
			}
		}
	case ptx.Const:
		address := uint64(r.program.constants.Variables()[v]) + uint64(p.Addend)
		if p.Generic {
			address = mem.ToGeneric(ptx.Const, address)
		}
		return address, nil
	}
	return 0, errors.New("the address of " + v.Name + " is not allowed in an initialiser")
}

// run runs all blocks. They run in parallel if they cannot communicate, and interleaved otherwise,
// so that every run with the same seed is the same.
func (r *launch) run(ctx context.Context) error {
	total := uint64(r.grid[0]) * uint64(r.grid[1]) * uint64(r.grid[2])
	switch sampled := r.options.Sample; {
	case sampled > 0 && r.communicates:
		return ErrCommunicates
	case r.communicates:
		return r.runInterleaved(ctx, total)
	case sampled > 0 && uint64(sampled) < total:
		return r.runBlocks(ctx, uint64(sampled), r.sample(total, sampled))
	}
	return r.runBlocks(ctx, total, newBlockOrder(r.options.Seed, total).at)
}

// runBlocks runs a number of blocks in parallel. at is the index of the n-th.
func (r *launch) runBlocks(ctx context.Context, total uint64, at func(n uint64) uint64) error {
	workers := uint64(runtime.GOMAXPROCS(0))
	if r.options.Workers > 0 {
		workers = uint64(r.options.Workers)
	}
	workers = min(workers, total, uint64(r.maxBlocks))
	r.parallel = workers > 1
	var next atomic.Uint64
	var group crash.Group
	for range workers {
		group.Go(func() {
			b := r.newBlock()
			defer b.catch()
			for ctx.Err() == nil && r.failed.Load() == nil {
				n := next.Add(1) - 1
				if n >= total {
					return
				}
				b.start(at(n))
				b.run(ctx, math.MaxInt)
				r.noteInterrupted(ctx, b)
				b.finish()
			}
		})
	}
	group.Wait()
	return r.err(ctx)
}

// catch ends the launch with an error after a panic in a block. It must be deferred itself. The pages
// that the block holds are unlocked, because other blocks may wait for them.
func (b *block) catch() {
	if value := recover(); value != nil {
		b.held.Unlock()
		b.abort(crash.New(value, b.whereabouts()))
	}
}

// whereabouts describes the instruction that the block runs, for the report of a panic. The state of
// the block may be anything.
func (b *block) whereabouts() string {
	text := fmt.Sprintf("the simulation of %s, block %v", b.launch.code.fn.Name, b.at)
	w := b.running
	if w == nil || w.frame == nil {
		return text
	}
	at := position{w.frame.code, max(w.pc-1, 0)}.place() // the program counter is already that of the next instruction
	return fmt.Sprintf("%s, warp %d, at %s: %s", text, w.index, at, at.PTX)
}

// Numbers of resident blocks of an interleaved run: at first, and at most if they wait for each
// other. No chip holds more.
const (
	residentBlocks = 64
	maxResident    = 4096
)

// interleavedSlice is the time slice of a block in an interleaved run, in warp instructions. With a
// seed other than 0 it is the longest one.
const interleavedSlice = 20_000

// interleaving is the state of an interleaved run.
type interleaving struct {
	launch   *launch
	total    uint64 // blocks of the grid
	started  uint64
	clusters blockOrder
	ranks    blockOrder // of the blocks of a cluster
	random   *rand.Rand // nil with seed 0
	room     int        // for resident blocks
	resident []*block
	spare    []*block // ended blocks, to be used again
	cluster  *cluster // of the blocks that are started now
	tiles    tiles    // of all blocks: one runs at a time
	operands *keptOperands
	idle     int // rounds in which nothing has changed
}

// runInterleaved runs blocks one after another in time slices.
func (r *launch) runInterleaved(ctx context.Context, total uint64) error {
	s := &interleaving{
		launch: r, total: total, room: min(residentBlocks, r.maxBlocks), tiles: tiles{}, operands: &keptOperands{},
		clusters: newBlockOrder(r.options.Seed, total/uint64(r.clusterSize())), ranks: newBlockOrder(r.options.Seed, uint64(r.clusterSize())),
	}
	switch {
	case r.options.Seed != 0:
		s.random = rand.New(rand.NewPCG(r.options.Seed, 11))
	case !r.cooperative:
		s.room = 1
	}
	for ctx.Err() == nil && r.failed.Load() == nil {
		s.startBlocks()
		if len(s.resident) == 0 || !s.runSlices(ctx) && !s.resolveIdle() {
			break
		}
	}
	for _, b := range s.resident { // of a launch that is interrupted, has failed or is deadlocked
		b.addCounters()
	}
	return r.err(ctx)
}

// startBlocks starts blocks while there is room, and completes a cluster that it has begun.
func (s *interleaving) startBlocks() {
	r := s.launch
	size := uint64(r.clusterSize())
	for (len(s.resident) < s.room || s.started%size != 0) && s.started < s.total {
		var b *block
		if n := len(s.spare); n > 0 && size == 1 { // blocks of a cluster may still access an ended one
			b, s.spare = s.spare[n-1], s.spare[:n-1]
		} else {
			b = r.newBlock()
			b.tiles, b.operands = s.tiles, s.operands
		}
		index, rank := r.inClusters(s.clusters.at(s.started/size)*size + s.ranks.at(s.started%size))
		if size > 1 {
			if s.started%size == 0 {
				s.cluster = newCluster(int(size))
			}
			s.cluster.join(b, rank)
		}
		b.start(index)
		b.turn = s.started
		s.started++
		s.resident = append(s.resident, b)
	}
}

// runSlices runs a time slice of every resident block, and reports whether anything has changed.
// With a seed other than 0 the slices have random lengths.
func (s *interleaving) runSlices(ctx context.Context) bool {
	changed := false
	for i := 0; i < len(s.resident); {
		b, budget := s.resident[i], interleavedSlice
		if s.random != nil {
			budget = 1 + s.random.IntN(interleavedSlice)
		}
		b.runSlice(ctx, budget)
		s.launch.noteInterrupted(ctx, b)
		changed = changed || b.progressed
		if b.done() {
			s.spare = append(s.spare, b)
			s.resident = append(s.resident[:i], s.resident[i+1:]...)
			changed = true
			continue
		}
		i++
	}
	if changed {
		s.idle = 0
	}
	return changed
}

// runSlice runs a time slice of a block, and finishes the block at its end.
func (b *block) runSlice(ctx context.Context, budget int) {
	defer b.catch()
	b.run(ctx, budget)
	if b.done() {
		b.finish()
	}
}

// Numbers of idle rounds before lanes that wait for their warp are unblocked, and before the blocks
// count as deadlocked.
const (
	unblockRounds  = 3
	deadlockRounds = 20
)

// resolveIdle does something about blocks that wait for each other, or for a block that is not
// resident. It reports a deadlock and returns false where nothing helps.
func (s *interleaving) resolveIdle() bool {
	if most := min(maxResident, s.launch.maxBlocks); s.started < s.total && s.room < most {
		if s.room == 1 {
			s.noteLaterBlocks()
		}
		s.room = min(2*s.room, most)
		return true
	}
	any := false
	s.forgetLaterBlocks()
	for _, b := range s.resident {
		any = b.advanceClock() || any
	}
	if any {
		return true
	}
	s.idle++
	if s.idle%unblockRounds == 0 {
		for _, b := range s.resident {
			any = b.unblock() || any
		}
		if any {
			s.idle = 0
		}
	}
	if s.idle <= deadlockRounds {
		return true
	}
	for _, b := range s.resident {
		b.reportDeadlock()
	}
	return false
}

func (r *launch) err(ctx context.Context) error {
	if failed := r.failed.Load(); failed != nil {
		return *failed
	}
	if ctx.Err() != nil && r.interrupted.where != "" {
		return &InterruptedError{Where: r.interrupted.where, cause: ctx.Err()}
	}
	return ctx.Err()
}

// InterruptedError is the error of a launch whose context has ended.
type InterruptedError struct {
	Where string // the block and the instructions of its warps when the launch was ended
	cause error
}

func (e *InterruptedError) Error() string { return e.cause.Error() + ": " + e.Where }

func (e *InterruptedError) Unwrap() error { return e.cause }

// interrupted is where a launch was when its context ended.
type interrupted struct {
	block uint64
	where string // empty before
}

// noteInterrupted notes where a block is whose context has ended. Of several that ran at the same
// time the first in the grid is kept.
func (r *launch) noteInterrupted(ctx context.Context, b *block) {
	if ctx.Err() == nil || b.done() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.interrupted.where == "" || b.index < r.interrupted.block {
		r.interrupted = interrupted{b.index, fmt.Sprintf("block %v was at %s", b.at, b.describe("running"))}
	}
}

// fail ends the launch with an error.
func (r *launch) fail(err error) {
	r.failed.CompareAndSwap(nil, &err)
	r.halt.Store(true)
}
