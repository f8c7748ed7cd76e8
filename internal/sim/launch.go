package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"attune/internal/ptx"
	"attune/internal/sim/mma"
)

// Launch is one launch of an entry function.
type Launch struct {
	Entry         string // may be empty where the module has one only
	Grid, Block   [3]int
	DynamicShared int    // bytes
	Cluster       [3]int // blocks of a cluster; zero for what the kernel says, or none
	Params        []byte // the parameters, each at its own alignment, as the driver lays them out
}

// Options say how to run.
type Options struct {
	Seed     uint64   // of the schedule: which warp and which side of a branch goes first, and of wmma's layout
	Checks   bool     // all checkers on
	Tensor   mma.Mode // arithmetic of the tensor cores
	Workers  int      // blocks at once; 0 for as many as there are cores
	MaxSteps uint64   // warp instructions of a block before it counts as endless; 0 for a bound that no sensible kernel reaches
	Printf   func(text string)
}

// Result is what a launch gave beside what it wrote.
type Result struct {
	Findings []Finding
	Counters Counters
}

// mostExtents bound a block.
var mostExtents = [3]int{1024, 1024, 64}

// Limits of a block, as the chips have them.
const (
	mostThreads = 1024
	mostStatic  = 48 << 10    // of shared memory that the compiler places
	mostSteps   = 500_000_000 // half a minute or a whole one
)

// mostShared is how much shared memory a block may have on a chip.
func mostShared(arch string) int {
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

// launch is a launch that runs.
type launch struct {
	program      *Program
	memory       *Memory
	code         *code
	options      Options
	grid         [3]int
	threads      [3]int
	cluster      [3]int
	explicit     bool // the launch, or the kernel, speaks of clusters
	dynamic      int
	params       []byte
	chip         mma.Chip
	found        *findings
	globals      []uint64 // addresses of the module's variables
	workspace    uint64   // address of the grid's barrier; 0 where the kernel does not ask for it
	constants    []byte
	layout       *layout
	shared       int                   // where shared memory begins, of the block's window
	plans        map[int32]*matrixPlan // by the number of the operation
	tails        map[*code]*tail
	syncs        syncPlaces // clocks that places in global memory hold
	failed       atomic.Pointer[error]
	fencedGlobal map[uint32]bool // blocks that have executed fence.proxy.async.global

	heap      atomic.Int64 // bytes that the kernel has allocated
	allocated []uint64     // by the kernel
	counters  Counters
	parallel  bool // blocks run at the same time
	mu        sync.Mutex
}

// Run runs a launch to its end. An error is about the launch as a whole; what the kernel does wrong is in the findings.
func (p *Program) Run(ctx context.Context, memory *Memory, l Launch, o Options) (*Result, error) {
	r, err := p.prepare(memory, l, o)
	if err != nil {
		return nil, err
	}
	defer r.freeGlobals()
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	return &Result{Findings: r.found.list(), Counters: r.counters}, nil
}

func (p *Program) prepare(memory *Memory, l Launch, o Options) (*launch, error) {
	f, err := p.Entry(l.Entry)
	if err != nil {
		return nil, err
	}
	c := p.codes[f]
	if err := p.refused(f); err != nil {
		return nil, err
	}
	layout := p.layout(f)
	if err := p.checkLaunch(c, l, layout.plain); err != nil {
		return nil, fmt.Errorf("launch %s: %w", f.Name, err)
	}
	cluster, err := checkCluster(f, l)
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w", f.Name, err)
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = mostSteps
	}
	r := &launch{
		program: p, memory: memory, code: c, options: o, grid: l.Grid, threads: l.Block, dynamic: l.DynamicShared, params: l.Params,
		layout: layout, found: newFindings(), tails: map[*code]*tail{}, plans: map[int32]*matrixPlan{},
	}
	r.cluster, r.explicit = cluster, l.Cluster != [3]int{} || f.ClusterBlocks[0] > 0
	layout.talks = layout.talks || r.clusterSize() > 1
	if r.chip, err = mma.ChipOf(p.arch); err != nil {
		return nil, err
	}
	r.placeShared()
	if err := r.planMatrices(); err != nil {
		return nil, err
	}
	if err := r.placeGlobals(); err != nil {
		return nil, err
	}
	for _, c := range p.codes {
		r.tails[c] = r.newTail(c)
	}
	for _, a := range memory.sorted {
		a.shadow.forget()
	}
	return r, nil
}

// checkLaunch refuses a launch that the driver would refuse.
func (p *Program) checkLaunch(c *code, l Launch, shared int) error {
	for i, most := range [3]int{1<<31 - 1, 65535, 65535} {
		if l.Grid[i] < 1 || l.Block[i] < 1 {
			return fmt.Errorf("a grid of %v and a block of %v: every extent must be at least 1", l.Grid, l.Block)
		}
		if l.Grid[i] > most || l.Block[i] > mostExtents[i] {
			return fmt.Errorf("a grid of %v and a block of %v: a block may be %v at most, a grid [2147483647 65535 65535]", l.Grid, l.Block, mostExtents)
		}
	}
	threads := l.Block[0] * l.Block[1] * l.Block[2]
	f := c.fn
	most := f.MaxThreads[0] * max(f.MaxThreads[1], 1) * max(f.MaxThreads[2], 1)
	switch {
	case threads > mostThreads:
		return fmt.Errorf("a block of %d threads; %d are allowed", threads, mostThreads)
	case most > 0 && threads > most:
		return fmt.Errorf("a block of %d threads; the kernel is compiled for %d at most (.maxntid)", threads, most)
	case f.RequiredThreads[0] > 0 && l.Block != f.RequiredThreads:
		return fmt.Errorf("a block of %v threads; the kernel is compiled for %v (.reqntid)", l.Block, f.RequiredThreads)
	case shared > mostStatic:
		return fmt.Errorf("%d bytes of static shared memory; %d are allowed, and more only as dynamic", shared, mostStatic)
	case l.DynamicShared < 0 || shared+l.DynamicShared > mostShared(p.arch):
		return fmt.Errorf("%d bytes of shared memory, %d of them dynamic; %d are allowed on %s", shared+l.DynamicShared, l.DynamicShared, mostShared(p.arch), p.arch)
	case len(l.Params) != c.entrySize:
		return fmt.Errorf("%d bytes of parameters; the kernel takes %d bytes in %d parameters", len(l.Params), c.entrySize, len(f.Params))
	}
	return nil
}

// Params lays values out as the parameters of an entry function, each at the alignment that it is declared with, as the driver does.
func (p *Program) Params(entry string, values [][]byte) ([]byte, error) {
	f, err := p.Entry(entry)
	if err != nil {
		return nil, err
	}
	if len(values) != len(f.Params) {
		return nil, fmt.Errorf("launch %s: %d arguments; the kernel takes %d parameters", f.Name, len(values), len(f.Params))
	}
	c := p.codes[f]
	params := make([]byte, c.entrySize)
	for i, v := range f.Params {
		if len(values[i]) != v.Size() {
			return nil, fmt.Errorf("launch %s: argument %d has %d bytes; the parameter %s has %d", f.Name, i, len(values[i]), v.Name, v.Size())
		}
		copy(params[c.entryParam[v]:], values[i])
	}
	return params, nil
}

// reservedShared is what the system keeps at the start of a block's shared memory.
const reservedShared = 1024

// placeShared chooses where shared memory begins: as aligned as its variables ask for and no more, so that what relies on more is found out.
func (r *launch) placeShared() {
	align := r.layout.align
	r.shared = alignUp(reservedShared, align)
	random := rand.New(rand.NewPCG(r.options.Seed, 7))
	if r.options.Seed != 0 && align < 1024 {
		r.shared += align * random.IntN(1024/align)
	}
}

// sharedBytes is the shared memory of a block, with the gaps between variables.
func (r *launch) sharedBytes() int { return r.layout.dynamicAt() + r.dynamic }

// placeGlobals makes the module's variables in global memory.
func (r *launch) placeGlobals() error {
	for _, v := range r.program.globals {
		base, err := r.memory.Alloc("the variable "+v.Name, v.Size())
		if err != nil {
			return err
		}
		value := make([]byte, v.Size())
		copy(value, v.Init)
		if err := r.memory.Write(base, value); err != nil {
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
	if err := r.placeWorkspace(); err != nil {
		return err
	}
	r.constants = slices.Clone(r.program.constants)
	for v, at := range r.program.constantAt {
		write := func(offset int, data []byte) error {
			copy(r.constants[at+offset:], data)
			return nil
		}
		if err := r.relocate(v, write); err != nil {
			return err
		}
	}
	return nil
}

// placeWorkspace makes what the driver gives to a grid whose blocks may all meet: its size and a barrier, four bytes each.
func (r *launch) placeWorkspace() error {
	asked := false
	for _, c := range r.program.codes {
		asked = asked || slices.ContainsFunc(c.specials, func(s specialSlot) bool { return strings.HasPrefix(s.name, "envreg") })
	}
	if !asked {
		return nil
	}
	const size = 8
	base, err := r.memory.Alloc("the workspace of the grid", size)
	if err != nil {
		return err
	}
	r.workspace = base
	r.globals = append(r.globals, base) // behind the module's variables, to be freed with them
	return r.memory.Write(base, []byte{size, 0, 0, 0, 0, 0, 0, 0})
}

// relocate writes addresses into the initial value of a variable.
func (r *launch) relocate(v *ptx.Variable, write func(offset int, data []byte) error) error {
	for _, p := range v.Pointed {
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
		return functionAddress(r.program.codes[f].number), nil
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
		address := uint64(r.program.constantAt[v]) + uint64(p.Addend)
		if p.Generic {
			address += constWindow
		}
		return address, nil
	}
	return 0, errors.New("the address of " + v.Name + " cannot stand in an initialiser")
}

// isAllocated says whether an address is one that malloc has given.
func (r *launch) isAllocated(address uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.allocated, address)
}

// freeGlobals forgets what the launch has made. What a kernel has allocated does not outlive it here.
func (r *launch) freeGlobals() {
	for _, base := range r.allocated {
		_ = r.memory.Free(base) // it was made here
	}
	for _, base := range r.globals {
		_ = r.memory.Free(base) // it was made here
	}
}

// run runs all blocks: at the same time where they cannot know of each other, in turns where they can, so that every run is the same.
func (r *launch) run(ctx context.Context) error {
	total := uint64(r.grid[0]) * uint64(r.grid[1]) * uint64(r.grid[2])
	if r.layout.talks {
		return r.runInTurns(ctx, total)
	}
	workers := r.options.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	r.parallel = min(uint64(workers), total) > 1
	var next atomic.Uint64
	var group sync.WaitGroup
	for range min(uint64(workers), total) {
		group.Go(func() {
			b := r.newBlock()
			for ctx.Err() == nil && r.failed.Load() == nil {
				n := next.Add(1) - 1
				if n >= total {
					return
				}
				b.start(n)
				b.run(ctx, b.forever)
				b.finish()
			}
		})
	}
	group.Wait()
	return r.err(ctx)
}

// How many blocks are under way at once when they run in turns: at first, and at most, where they wait for each other. No chip holds more.
const (
	residentBlocks = 64
	mostResident   = 4096
)

// runInTurns runs blocks a little at a time, one after another.
func (r *launch) runInTurns(ctx context.Context, total uint64) error {
	var resident, spare []*block
	var together *cluster
	used := tiles{}
	size := uint64(r.clusterSize())
	started := uint64(0)
	room := residentBlocks
	for idle := 0; ctx.Err() == nil && r.failed.Load() == nil; {
		for (len(resident) < room || started%size != 0) && started < total {
			var b *block
			if n := len(spare); n > 0 && size == 1 { // others may still look at a block of a cluster that has ended
				b, spare = spare[n-1], spare[:n-1]
			} else {
				b = r.newBlock()
				b.tiles = used // they take turns
			}
			index, rank := r.inClusters(started)
			if size > 1 {
				if rank == 0 {
					together = newCluster(int(size))
				}
				together.join(b, rank)
			}
			b.start(index)
			started++
			resident = append(resident, b)
		}
		if len(resident) == 0 {
			return r.err(ctx)
		}
		moved := false
		for i := 0; i < len(resident); {
			b := resident[i]
			b.run(ctx, b.turn)
			moved = moved || b.progressed
			if b.done() {
				b.finish()
				spare = append(spare, b)
				resident = append(resident[:i], resident[i+1:]...)
				moved = true
				continue
			}
			i++
		}
		if moved {
			idle = 0
			continue
		}
		// No block has changed anything for a while: they wait for each other, or for a block that has had no room.
		if started < total && room < mostResident {
			room *= 2
			continue
		}
		for _, b := range resident {
			moved = b.leap() || moved
		}
		if moved {
			continue
		}
		idle++
		if idle%loosenRounds == 0 {
			for _, b := range resident {
				moved = b.loosen() || moved
			}
			if moved {
				idle = 0
			}
		}
		if idle > idleRounds {
			for _, b := range resident {
				b.reportStuck()
			}
			return r.err(ctx)
		}
	}
	return r.err(ctx)
}

// How many rounds in which nothing moves go by before lanes are let go that wait for their warp, and before it counts as stuck.
const (
	loosenRounds = 3
	idleRounds   = 20
)

func (r *launch) err(ctx context.Context) error {
	if failed := r.failed.Load(); failed != nil {
		return *failed
	}
	return ctx.Err()
}

// fail ends the launch.
func (r *launch) fail(err error) { r.failed.CompareAndSwap(nil, &err) }
