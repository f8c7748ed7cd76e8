package sim

import (
	"fmt"
	"slices"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
	"attune/internal/tensormap"
)

// tensorMapOp is an operation on a tensor map in memory.
type tensorMapOp struct {
	to, from *memOp // from is the source of a copy
	field    string // that is replaced
	order    int    // dimension, of a field with one value a dimension
	value    slot
}

// lowerTensorMap lowers tensormap.replace and tensormap.cp_fenceproxy.
func (c *code) lowerTensorMap(in *ptx.Instruction, o *op) error {
	if err := c.requireHopper("tensormap"); err != nil {
		return err
	}
	o.class = count.Move
	if slices.Equal(in.Modifiers[:min(2, len(in.Modifiers))], []string{"replace", "tile"}) {
		return c.lowerReplace(in, o)
	}
	scopes := []string{"cta", "cluster", "gpu", "sys"}
	want := []string{"cp_fenceproxy", "global", "shared::cta", "tensormap::generic", "release", "", "sync", "aligned"}
	if len(in.Modifiers) != len(want) || !slices.Contains(scopes, in.Modifiers[5]) || len(in.Operands) != 3 {
		return fmt.Errorf("unsupported form")
	}
	want[5] = in.Modifiers[5]
	if size := in.Operands[2]; !slices.Equal(in.Modifiers, want) || size.Kind != ptx.ImmOperand || size.Value != tensormap.Bytes {
		return fmt.Errorf("unsupported form")
	}
	m := &tensorMapOp{to: &memOp{space: ptx.Global}, from: &memOp{space: ptx.Shared}}
	o.sync = &syncOp{aligned: true, tensorMap: m}
	o.run = runTensorMapCopy
	if err := c.lowerAddress(m.to, in.Operands[0]); err != nil {
		return err
	}
	return c.lowerAddress(m.from, in.Operands[1])
}

// lowerReplace lowers tensormap.replace.tile.FIELD{.SPACE}.b1024.TYPE [map], {dimension,} value.
func (c *code) lowerReplace(in *ptx.Instruction, o *op) error {
	words := in.Modifiers[2:]
	if len(words) < 3 || words[len(words)-2] != "b1024" {
		return fmt.Errorf("unsupported form")
	}
	m := &tensorMapOp{field: words[0], to: &memOp{space: ptx.Generic}}
	switch space := words[1 : len(words)-2]; {
	case len(space) == 0:
	case slices.Equal(space, []string{"global"}):
		m.to.space = ptx.Global
	case slices.Equal(space, []string{"shared::cta"}):
		m.to.space = ptx.Shared
	default:
		return fmt.Errorf("unsupported form")
	}
	wide, indexed, known := mem.TensorMapField(m.field)
	typed, operands := ptx.B32, 2
	if wide {
		typed = ptx.B64
	}
	if indexed {
		operands = 3
	}
	if !known || words[len(words)-1] != typed.String() || len(in.Operands) != operands {
		return fmt.Errorf("unsupported form")
	}
	if indexed {
		if d := in.Operands[1]; d.Kind != ptx.ImmOperand || d.Value > 4 {
			return fmt.Errorf("the dimension must be a constant from 0 to 4")
		}
		m.order = int(in.Operands[1].Value)
	}
	o.sync = &syncOp{tensorMap: m}
	o.run = runReplace
	var err error
	if m.value, err = c.source(in.Operands[operands-1], typed); err != nil {
		return err
	}
	return c.lowerAddress(m.to, in.Operands[0])
}

// runReplace sets a field of the tensor map at each lane's address.
func runReplace(w *warp, o *op, mask uint32) {
	m := o.sync.tensorMap
	addresses := w.addressesOf(m.to)
	for l := mask; l != 0; l &= l - 1 {
		lane := firstLane(l)
		space, at := m.to.space, addresses[lane]
		if space == ptx.Generic {
			space, at = mem.FromGeneric(at)
		}
		if w.accessTensorMap(o, space, at, lane, mem.Read) == nil {
			continue
		}
		data := w.accessTensorMap(o, space, at, lane, mem.Write)
		if data == nil {
			continue
		}
		if err := mem.ReplaceField(data, m.field, m.order, w.elementValue(m.value, lane)); err != nil {
			w.report(finding.Undefined, o, 1<<lane, err.Error)
		}
		if space == ptx.Global {
			w.block.changeTensorMap(at)
		}
	}
}

// accessTensorMap checks an access to a tensor map as a whole and returns its bytes.
func (w *warp) accessTensorMap(o *op, space ptx.Space, at uint64, lane int, d mem.Direction) []byte {
	if at%64 != 0 && space != ptx.Param {
		w.report(finding.Misaligned, o, 1<<lane, func() string {
			return fmt.Sprintf("the address %#x of the tensor map is not a multiple of 64", at)
		})
	}
	return w.access(o, accessInfo{space: space, bytes: tensormap.Bytes, aligned: true}, at, lane, d)
}

// runTensorMapCopy copies a tensor map from shared to global memory, once for the warp.
func runTensorMapCopy(w *warp, o *op, mask uint32) {
	mask, ready := w.gatherAligned(o, mask)
	if !ready {
		return
	}
	m := o.sync.tensorMap
	lane := firstLane(mask)
	to, from := w.addressesOf(m.to)[lane], w.addressesOf(m.from)[lane]
	source := w.accessTensorMap(o, ptx.Shared, from, lane, mem.Read)
	target := w.accessTensorMap(o, ptx.Global, to, lane, mem.Write)
	if source != nil && target != nil {
		copy(target, source)
		w.block.changeTensorMap(to)
	}
}

// changeTensorMap notes that a tensor map in global memory has changed. Copies read tensor maps
// through a proxy of their own.
func (b *block) changeTensorMap(at uint64) {
	if b.changedMaps == nil {
		b.changedMaps = map[uint64]bool{}
	}
	b.changedMaps[at] = true
}

// lowerTensorMapFence lowers fence.proxy.tensormap::generic, whose acquire has an address and a size.
func (c *code) lowerTensorMapFence(in *ptx.Instruction, o *op) error {
	if !slices.Contains(in.Modifiers, "acquire") {
		return nil // the release orders nothing that the simulator delays
	}
	if len(in.Operands) != 2 || in.Operands[1].Kind != ptx.ImmOperand || in.Operands[1].Value != tensormap.Bytes {
		return fmt.Errorf("it takes an address and the size 128")
	}
	o.sync.addr = &memOp{space: ptx.Generic}
	o.run = func(w *warp, o *op, mask uint32) {
		addresses := w.addressesOf(o.sync.addr)
		for l := mask; l != 0; l &= l - 1 {
			delete(w.block.changedMaps, addresses[firstLane(l)])
		}
	}
	return c.lowerAddress(o.sync.addr, in.Operands[0])
}
