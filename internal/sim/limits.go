package sim

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"time"

	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// Limits of a launch: its memory and what it prints. MaxSteps bounds the instructions of a block,
// and the context bounds the time.

// Sizes of a register of a warp, in bytes.
const (
	bytes32 = 32 * 4
	bytes64 = 32 * 8
)

// warpBytes returns the bytes of the registers and the parameters of a call.
func (c *code) warpBytes() int { return c.n32*bytes32 + c.n64*bytes64 + 32*c.paramSize }

// blockBytes returns the bytes that a resident block takes: registers and shared memory, with the
// marks and the shadow of the checkers.
func (r *launch) blockBytes() int {
	warps := (r.threads[0]*r.threads[1]*r.threads[2] + 31) / 32
	shared := r.layout.DynamicAt() + r.dynamic
	perByte := 2
	if r.options.Checks {
		perByte += order.ShadowBytes
	}
	return warps*r.code.warpBytes() + shared*perByte
}

// placeBlocks decides how many blocks may be resident, so that they take at most half of what memory
// is left. It returns an error where not even one worker or one cluster fits, or not all blocks of a
// cooperative grid.
func (r *launch) placeBlocks(cooperative bool) error {
	one, limit := r.blockBytes(), r.memory.Limit()
	r.maxBlocks = max((limit-r.memory.Used())/2, 0) / max(one, 1)
	if need := r.clusterSize(); r.maxBlocks < need {
		return fmt.Errorf("%d block(s) of %d bytes must be resident: %d bytes of registers per warp and %d bytes of shared memory, with what the checkers "+
			"remember of it; buffers take %d bytes, and the limit of the simulation is %d (%d MiB); %s MIB sets another",
			need, one, r.code.warpBytes(), r.layout.DynamicAt()+r.dynamic, r.memory.Used(), limit, limit>>20, mem.LimitFlag)
	}
	total, most := uint64(r.grid[0])*uint64(r.grid[1])*uint64(r.grid[2]), min(r.maxBlocks, maxResident)
	if cooperative && total > uint64(most) {
		return fmt.Errorf("a cooperative grid of %d blocks; at most %d can be resident at once", total, most)
	}
	if cooperative {
		return r.checkResidency(total)
	}
	return nil
}

// residency returns what the blocks of one multiprocessor may have: blocks, threads, and bytes of
// shared memory, of which each block takes 1 KB more than it asks for.
func residency(arch string) (blocks, threads, shared int) {
	switch strings.TrimRight(arch, "af") {
	case "sm_86", "sm_88":
		return 16, 1536, maxShared(arch) + 1<<10
	case "sm_89", "sm_120", "sm_121":
		return 24, 1536, maxShared(arch) + 1<<10
	}
	return 32, 2048, maxShared(arch) + 1<<10
}

// checkResidency returns an error if the blocks of a cooperative grid cannot be resident at once. The
// registers of a thread are not known, so a launch that passes may still be refused by the driver.
func (r *launch) checkResidency(total uint64) error {
	blocks, threads, shared := residency(r.program.arch)
	warps := (r.threads[0]*r.threads[1]*r.threads[2] + 31) / 32
	bytes := r.layout.Bytes + r.dynamic
	each := min(blocks, threads/32/warps, shared/(bytes+reservedShared))
	if total <= uint64(multiprocessors*each) {
		return nil
	}
	return fmt.Errorf("a cooperative grid of %d blocks; at most %d can be resident at once: %d on each of %d multiprocessors, "+
		"which has room for %d blocks, %d threads and %d bytes of shared memory; a block has %d threads and %d bytes; launch fewer blocks and let each do more",
		total, multiprocessors*each, each, multiprocessors, blocks, threads, shared, 32*warps, bytes+reservedShared)
}

// LimitError is the error of a launch that takes more memory than allowed. The kernel may be right.
type LimitError struct{ text string }

func (e *LimitError) Error() string { return e.text }

// watchInterval is how often the memory of the program is compared with the limit.
const watchInterval = 20 * time.Millisecond

// running is how many launches the program runs at the same time.
var running atomic.Int64

// watch ends the launch when its context ends, or when it holds more memory than allowed. Buffers and
// what the checkers remember of them are counted. Calls and pending copies have no size that is known
// before, so that the program as a whole is measured too. The caller must call stop.
func (r *launch) watch(ctx context.Context) (stop func()) {
	cancelled := context.AfterFunc(ctx, func() { r.halt.Store(true) })
	running.Add(1)
	before, limit := r.liveBefore(), r.memory.Limit()
	timer := time.NewTimer(watchInterval)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			held, why := r.memory.Held(), "what the checkers remember of the bytes that it accesses"
			if live := liveBytes(); live > before+uint64(limit)*uint64(running.Load()) {
				held, why = int(live-before), "endless recursion, copies that no thread waits for, or too many bytes for the checkers"
			}
			if held > limit {
				r.fail(&LimitError{fmt.Sprintf("the simulation of %s holds %d MiB of memory, and the limit is %d MiB: %s; a smaller shape takes less, and %s MIB sets another limit",
					r.code.fn.Name, held>>20, limit>>20, why, mem.LimitFlag)})
				return
			}
			timer.Reset(watchInterval)
		}
	}()
	return func() {
		running.Add(-1)
		cancelled()
		timer.Stop()
		close(done)
	}
}

// liveBefore returns the bytes that the program holds besides the buffers of the launch.
func (r *launch) liveBefore() uint64 {
	used := r.memory.Used()
	if used < r.memory.Limit()/8 {
		return liveBytes()
	}
	runtime.GC() // it may not have counted the buffers yet
	live := liveBytes()
	return live - min(uint64(used), live)
}

// liveBytes returns the bytes that were reachable when the garbage collector last ran.
func liveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// maxPrinted is the size of the buffer for printf in bytes: the driver's default. maxText bounds the
// text of one call.
const (
	maxPrinted = 1 << 20
	maxText    = 32 << 10
)

// printed counts what a launch has printed.
type printed struct {
	bytes, dropped int
}

// print passes text to the caller, one block at a time. What does not fit into the buffer is
// dropped.
func (r *launch) print(text string) {
	if r.options.Printf == nil {
		return
	}
	r.printing.Lock()
	defer r.printing.Unlock()
	if r.printed.bytes+len(text) > maxPrinted {
		r.printed.dropped++
		return
	}
	r.printed.bytes += len(text)
	r.options.Printf(text)
}

// printDropped prints how many calls of printf were dropped.
func (r *launch) printDropped() {
	if n := r.printed.dropped; n > 0 {
		r.options.Printf(fmt.Sprintf("attune: %d more calls of printf are not shown: a launch prints at most %d KiB\n", n, maxPrinted>>10))
	}
}
