package form

import (
	"attune/internal/arch"
	"attune/internal/array"
	"attune/internal/device"
)

// attune_warp.c has the same choice.

// blockSharedBytes are those that a block reserves beside its own.
const blockSharedBytes = 1024

// sharedBytes is the shared memory of a multiprocessor.
func sharedBytes(device string) int {
	switch number, _ := arch.Number(device); {
	case number == 80 || number == 87:
		return 164 << 10
	case number >= 90 && number < 120:
		return 228 << 10
	}
	return 100 << 10
}

// takes reports whether the form has an argument.
func (f *Form) takes(name string) bool {
	for _, a := range f.Arguments {
		if a.Name == name {
			return true
		}
	}
	return false
}

// lacks is the first option of a problem that the form has no argument for; empty without one.
func (f *Form) lacks(p *Problem) string {
	for _, option := range []struct {
		isSet          bool
		argument, name string
	}{
		{p.Softcap != 0, "softcap", "a softcap"},
		{p.AlibiSlopes != 0, "alibi_slopes", "ALiBi slopes"},
		{p.TreeMask != 0, "tree_mask", "a tree mask"},
		{p.CuQueries != 0, "cu_queries", "packed sequences"},
		{p.PageTable != 0, "page_table", "pages"},
		{p.KeyLengths != 0, "lengths", "lengths"},
		{p.Sinks != 0, "sinks", "sinks"},
		{p.WindowLeft >= 0 || p.WindowRight >= 0, "window_left", "a window"},
	} {
		if option.isSet && !f.takes(option.argument) {
			return option.name
		}
	}
	return ""
}

// cost is the work of the multiprocessor that has the most tiles. A row of small tiles counts 19/16:
// each of their warps has 16 rows instead of 32, and reads K and V as often (docs/experiments.md, W1).
func (f *Form) cost(p *Problem, multiprocessors int) int {
	each := 16
	if f.QueryRows < 128 {
		each = 19
	}
	return ceilDiv(f.warpTiles(p), multiprocessors) * f.QueryRows * each
}

// warpTiles are the tiles of query rows of all heads.
func (f *Form) warpTiles(p *Problem) int { return p.Batch * p.Heads * ceilDiv(p.Queries, f.QueryRows) }

// planWarp plans a problem on a GPU that the other kernels are not for.
func (t *Table) planWarp(p Problem) (*Call, error) {
	var best *Form
	lacks, multiprocessors := "", max(t.facts.Multiprocessors, 1)
	for _, f := range t.declared {
		fits := f.HeadDim == p.HeadDim && p.VHeadDim == p.HeadDim && f.BF16 == (p.K.Type == array.BF16) &&
			f.SharedBytes+blockSharedBytes <= sharedBytes(t.facts.Arch)
		if !fits {
			continue
		}
		if option := f.lacks(&p); option != "" {
			lacks = option
			continue
		}
		if best == nil || f.cost(&p, multiprocessors) < best.cost(&p, multiprocessors) {
			best = f
		}
	}
	switch {
	case p.K.Type == array.E4M3 || p.Q.Type != p.K.Type || p.O.Type != p.K.Type:
		return nil, unsupported("q is %s, k %s and o %s; on %s all are F16 or all BF16", p.Q.Type, p.K.Type, p.O.Type, t.facts.Arch)
	case p.Precision == FP8:
		return nil, unsupported("the precision is FP8; on %s nothing is quantised", t.facts.Arch)
	case best != nil:
		return &Call{Form: best, problem: p}, nil
	case lacks == "":
		return nil, unsupported("the head dim is %d, and that of v %d; on %s the kernel has 64, 96, 128 and 256 for both", p.HeadDim, p.VHeadDim, t.facts.Arch)
	}
	return nil, unsupported("no form for %s has %s", t.facts.Arch, lacks)
}

// section are the heads whose tiles follow each other: with a causal mask, those whose K and V fill
// half of the L2 cache at most.
func (p *Problem) section(facts device.Facts) int {
	kvHeads := int(facts.L2Bytes) / 2 / (2 * (p.HeadDim + p.VHeadDim) * p.Keys)
	if !p.Causal || kvHeads < 1 {
		return 1
	}
	return min(kvHeads*(p.Heads/p.KVHeads), p.Batch*p.Heads)
}
