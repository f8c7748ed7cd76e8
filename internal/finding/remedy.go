package finding

import (
	"fmt"
	"slices"
	"strings"
)

// explanation says what a kind means: in a few words, why it is a defect, and what to do.
type explanation struct{ short, why, remedy string }

var explanations = map[Kind]explanation{
	Race: {
		"two accesses that nothing orders",
		"Two threads access the same bytes, one of them writes, and no barrier, fence or atomic operation orders the two. " +
			"It is reported even if the output is right.",
		"add __syncthreads(), __syncwarp() or an mbarrier between the two",
	},
	MissingWait: {
		"asynchronous data is used before it is complete", "A copy, TMA load or wgmma may still be running.",
		"wait for it before the access: cp.async.wait_group, an mbarrier wait, or wgmma.wait_group",
	},
	MissingFence: {
		"a fence between proxies is missing", "Generic accesses and those of TMA or wgmma are ordered by a proxy fence only.",
		"add cuda::ptx::fence_proxy_async (fence.proxy.async) between the two, or wgmma.fence before the first wgmma",
	},
	Uninitialized: {
		"a read of bytes that were never written", "The value is undefined.",
		"initialise the bytes, or guard the read where no thread has written",
	},
	OutOfBounds: {
		"an access outside of any buffer or variable", "The address is outside of the argument or variable.",
		"check the index against the extent of the buffer",
	},
	Misaligned: {
		"an address that is not aligned for its access",
		"A vector access, TMA or matrix operand needs an address that is a multiple of its size.",
		"align the buffer, for example by __align__(16), or use a smaller access",
	},
	DivergentBarrier: {
		"a barrier that not all lanes execute",
		"Barriers and warpgroup instructions need all lanes of the warp, or all warps of the barrier.",
		"move it out of the branch",
	},
	Deadlock: {
		"a wait that never ends", "No thread can arrive at the barrier or set the flag any more.",
		"check the counts of arrivals, the phases, and early exits",
	},
	BadBarrier: {
		"wrong use of a barrier", "The count, the phase or the expected bytes of the barrier do not fit its use.",
		"compare the count, the phase and the expected bytes with the threads and copies that arrive",
	},
	Undefined: {
		"behaviour that PTX leaves undefined", "The result is not defined by PTX and may differ between chips and compilers.",
		"write the kernel without it",
	},
	KeptMemory: {
		"a read of what an earlier launch has left", "The kernel reads a variable or scratch that a launch before has written. A launch must not depend on another.",
		"set it in each launch before it is read",
	},
	WroteOutside: {
		"a write outside of the output", "Bytes next to a buffer were changed.",
		"check the index of the last rows and columns",
	},
	InputChanged: {
		"an input was changed", "The kernel writes to a buffer that is declared as an input.",
		"declare it as inout, or do not write it",
	},
	Unwritten: {
		"parts of an output were not written", "Elements of the output still have the value from before the launch.",
		"check the grid and the guards of the last block",
	},
	NotRepeatable: {
		"two launches gave different outputs", "The output depends on the order of threads, or on an earlier launch.",
		"if the order of sums is free by design, kernel.toml can allow it",
	},
	Trapped: {
		"the kernel ended with a trap", "The instruction ends the launch and the context: later calls of the program fail.",
		"find out why the kernel reached it",
	},
	AssertFailed: {
		"an assertion of the kernel failed", "The assertion ends the launch and the context: later calls of the program fail.",
		"find out why its condition is false",
	},
	TimedOutputDiffers: {
		"a timed launch gave another output", "The output of a timed launch is not that of an untimed launch on the same inputs.",
		"compute the output from the inputs in every launch",
	},
	RemembersResults: {
		"launches on the same inputs skip work", "The kernel has kept results of an earlier launch.",
		"compute the output from the inputs in every launch",
	},
}

// syncRemedies are what adds a synchronisation, in the words of CUDA.
var syncRemedies = map[Sync]string{
	WarpSync:     "add __syncwarp() between the two",
	BlockSync:    "add __syncthreads() between the two",
	DeviceSync:   "order the blocks: an atomic operation, or __threadfence() and a flag",
	DeviceFence:  "add __threadfence() before the flag is written, and after it is read",
	ClusterSync:  "add cluster.sync() of cooperative_groups between the two, after the blocks start, and before one ends",
	CopyWait:     "wait for the copy first: cuda::pipeline or __pipeline_wait_prior(0) (cp.async.wait_group), then __syncthreads()",
	BulkWait:     "wait for the copy first: cuda::barrier or mbarrier.try_wait for a load, cp.async.bulk.wait_group for a store",
	ProductWait:  "wait for the product first: wgmma.wait_group",
	ProductFence: "add wgmma.fence before the first wgmma that uses the registers",
	ProxyFence:   "add cuda::ptx::fence_proxy_async (fence.proxy.async) after the write, before the barrier",

	CooperativeLaunch: "set cooperative = true in [launch] of kernel.toml or --cooperative, or let each block take its place from a counter",
}

// AllKinds lists the kinds of checkers, devices and the audit, which have a Short and a Help.
func AllKinds() []Kind {
	var audited []Kind
	for _, k := range AllowableKinds() {
		if k.isAudited() {
			audited = append(audited, k)
		}
	}
	return slices.Concat(Kinds(), BufferKinds(), []Kind{Trapped, AssertFailed}, audited)
}

// isAudited reports whether the audit finds the kind.
func (k Kind) isAudited() bool {
	return k != NotRepeatable && k != KeptMemory && slices.Contains(AllowableKinds(), k)
}

// Short is what the kind means, in a few words.
func (k Kind) Short() string {
	if k.isAudited() {
		return "The kernel has access to state other than its arguments: " + string(k)
	}
	return sentence(explanations[k].short)
}

// Help says why the kind is a defect, and what to do.
func (k Kind) Help() string {
	if k.isAudited() {
		return "A kernel that can keep state between launches could return an earlier result. " +
			"Remove the instruction, or allow its kind in kernel.toml if the kernel needs it."
	}
	e := explanations[k]
	return e.why + " " + sentence(e.remedy) + "."
}

// sentence begins a text with a capital letter.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// Remedy is what to do about the finding; empty for a kind without one.
func (f Finding) Remedy() string {
	switch {
	case f.Missing != "":
		return syncRemedies[f.Missing]
	case f.Kind == Unreadable:
		return fmt.Sprintf("write the kernel without it, or allow = [%q] in kernel.toml", f.Kind)
	case f.Variable.Name == "%envreg1" || f.Variable.Name == "%envreg2": // the address of the barrier of a cooperative grid
		return "a grid barrier needs cooperative = true in [launch] of kernel.toml"
	case f.Kind == OutputRead && f.Variable.Space == Argument:
		return fmt.Sprintf("write inout = true in its [[arg]] if the kernel updates it, scratch = true if it is a workspace, or "+
			"allow = [%q] if it reads only what it has written", f.Kind)
	case f.Kind == KeptMemory && f.Variable.Space == Argument && f.Severity == Note:
		return "every launch must leave it zero; zero = \"launch\" in its [[arg]] clears it before each one"
	case f.Kind == KeptMemory && f.Variable.Space == Argument:
		return fmt.Sprintf("leave it zero at the end of each launch, write zero = \"launch\" in its [[arg]], or allow = [%q] "+
			"if it must count launches", f.Kind)
	case f.Kind.isAudited():
		return fmt.Sprintf("remove it, or write allow = [%q] in kernel.toml if the kernel needs it", f.Kind)
	}
	return explanations[f.Kind].remedy
}
