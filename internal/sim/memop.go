package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// memOp is a load, a store or an atomic operation.
type memOp struct {
	what    string // ld, st, atom, red, for messages
	space   ptx.Space
	base    slot // of the address; noFile where the offset is all of it
	offset  int64
	param   *ptx.Variable // of a function, in its frame
	paramAt int

	size     int // bytes of an element
	regs     []element
	bytes    int  // of all elements
	strong   bool // volatile, relaxed, acquire or release
	acquire  bool
	release  bool
	ordered  bool // it says what order it has, .relaxed at least
	narrow   bool // strong for the block's threads only
	loud     bool // volatile
	copies   bool // what it loads only moves on (copied)
	fixed    bool // ld.global.nc: what it reads does not change while the kernel runs
	heeds    bool // an atomic operation whose old value is used
	guess    bool // a load of what a compare-and-swap is to find
	constant bool // a store of a constant
	atomic   *atomicOp
}

// element is one register of a vector that is loaded or stored.
type element struct {
	slot   slot
	extend extension
}

// cacheHints are modifiers that change where data is kept and not what it is.
var cacheHints = map[string]bool{
	"ca": true, "cg": true, "cs": true, "lu": true, "cv": true, "wb": true, "wt": true, "weak": true,
	"L1::evict_normal": true, "L1::evict_unchanged": true, "L1::evict_first": true, "L1::evict_last": true, "L1::no_allocate": true,
	"L2::evict_normal": true, "L2::evict_first": true, "L2::evict_last": true,
	"L2::64B": true, "L2::128B": true, "L2::256B": true, "L2::cache_hint": true,
}

var scopes = map[string]bool{"cta": true, "cluster": true, "gpu": true, "sys": true}

// words reads the modifiers of a memory instruction: what is left when space, type, order, scope and hints are taken out.
type words struct {
	space   ptx.Space
	typed   ptx.Type
	vector  int
	order   string
	scope   string
	hinted  bool // a cache policy stands behind the operands
	fixed   bool
	rest    []string
	cluster bool // shared::cluster
}

func readWords(modifiers []string) words {
	w := words{vector: 1}
	for _, m := range modifiers {
		t, isType := ptx.ParseType(m)
		switch {
		case m == "L2::cache_hint":
			w.hinted = true
		case cacheHints[m]:
		case scopes[m]:
			w.scope = m
		case m == "global":
			w.space = ptx.Global
		case m == "shared" || m == "shared::cta":
			w.space = ptx.Shared
		case m == "shared::cluster":
			w.space, w.cluster = ptx.Shared, true
		case m == "local":
			w.space = ptx.Local
		case m == "const":
			w.space = ptx.Const
		case m == "param" || m == "param::entry" || m == "param::func":
			w.space = ptx.Param
		case m == "volatile" || m == "relaxed" || m == "acquire" || m == "release" || m == "acq_rel" || m == "sc":
			w.order = m
		case m == "nc":
			w.fixed = true
		case m == "v2" || m == "v4" || m == "v8":
			w.vector = int(m[1] - '0')
		case isType && w.typed == ptx.NoType:
			w.typed = t
		default:
			w.rest = append(w.rest, m)
		}
	}
	return w
}

// lowerAccess turns ld, ldu and st into operations.
func (c *code) lowerAccess(in *ptx.Instruction, o *op) error {
	w := readWords(in.Modifiers)
	if len(w.rest) > 0 {
		return fmt.Errorf("unsupported modifier .%s", strings.Join(w.rest, "."))
	}
	if w.typed == ptx.NoType || w.typed == ptx.Pred {
		return fmt.Errorf("it has no type")
	}
	m := &memOp{
		what: in.Opcode, space: w.space, size: w.typed.Size(), fixed: w.fixed, strong: w.order != "", acquire: w.order == "acquire",
		release: w.order == "release", ordered: true, narrow: w.scope == "cta", loud: w.order == "volatile",
	}
	operands := in.Operands
	if w.hinted && len(operands) == 3 {
		operands = operands[:2]
	}
	if len(operands) != 2 {
		return fmt.Errorf("it has %d operands, want 2", len(operands))
	}
	value, address := operands[0], operands[1]
	o.run = runLoad
	if in.Opcode == "st" {
		value, address = address, value
		o.run = runStore
	}
	if err := c.lowerAddress(m, address); err != nil {
		return err
	}
	if err := c.lowerElements(m, value, w.typed, w.vector, in.Opcode == "st"); err != nil {
		return err
	}
	m.copies = in.Opcode != "st" && (m.space == ptx.Generic || m.space == ptx.Local) && c.onlyCopied(value, m.space)
	m.guess = in.Opcode != "st" && !m.strong && (m.space == ptx.Global || m.space == ptx.Shared || m.space == ptx.Generic) && c.isGuess(&value)
	m.constant = in.Opcode == "st" && len(in.Operands) == 2 && c.isConstant(&value)
	o.mem, o.class = m, classMemory
	c.noteTalk(m)
	return nil
}

// onlyCopied says whether what is loaded to an operand only moves on. A load with a state space was meant, even if nobody uses it.
func (c *code) onlyCopied(o ptx.Operand, space ptx.Space) bool {
	if c.copied == nil {
		c.copied, c.unused = copied(c.fn)
	}
	only := true
	eachRegister(&o, func(r int) { only = only && c.copied[r] && (space == ptx.Generic || !c.unused[r]) })
	return only
}

// noteTalk notes that blocks may speak to each other: through anything strong outside of shared memory.
func (c *code) noteTalk(m *memOp) {
	if m.strong && (m.space == ptx.Global || m.space == ptx.Generic) {
		c.talks = true
	}
}

// lowerAddress finds the parts of an address.
func (c *code) lowerAddress(m *memOp, o ptx.Operand) error {
	if o.Kind != ptx.AddrOperand || len(o.Parts) != 1 {
		return fmt.Errorf("it wants an address in brackets")
	}
	base := o.Parts[0]
	m.offset = o.Offset
	switch base.Kind {
	case ptx.RegOperand:
		m.base = c.regs[base.Register]
		if m.base.file == filePred {
			return fmt.Errorf("a predicate is no address")
		}
	case ptx.ImmOperand:
		m.offset += int64(base.Value)
	case ptx.SymOperand:
		return c.lowerSymbolAddress(m, base)
	default:
		return fmt.Errorf("an address of this form is not supported")
	}
	return nil
}

func (c *code) lowerSymbolAddress(m *memOp, base ptx.Operand) error {
	v := base.Symbol.Variable
	if v == nil {
		return fmt.Errorf("a function has no memory to access")
	}
	if m.space == ptx.Generic {
		m.space = v.Space
	}
	if m.space != v.Space {
		return fmt.Errorf("%s is in .%s", v.Name, v.Space)
	}
	if _, isEntry := c.entryParam[v]; v.Space == ptx.Param && !isEntry {
		m.param, m.paramAt = v, c.paramAt[v]
		m.offset += base.Offset
		if m.offset < 0 {
			return fmt.Errorf("it reaches outside of the parameter %s", v.Name)
		}
		return nil
	}
	s, err := c.symbol(base, file64)
	m.base = s
	return err
}

// lowerElements finds the registers of a value.
func (c *code) lowerElements(m *memOp, value ptx.Operand, t ptx.Type, vector int, store bool) error {
	parts := []ptx.Operand{value}
	if value.Kind == ptx.VecOperand {
		parts = value.Parts
	}
	if len(parts) != vector {
		return fmt.Errorf("it has %d values, want %d", len(parts), vector)
	}
	m.bytes = m.size * vector
	if m.param != nil && int(m.offset)+m.bytes > m.param.Size() {
		return fmt.Errorf("it reaches outside of the parameter %s", m.param.Name)
	}
	for _, p := range parts {
		var e element
		switch {
		case p.Kind == ptx.SinkOperand && !store:
		case p.Kind == ptx.RegOperand:
			e.slot = c.regs[p.Register]
			if e.slot.file == filePred {
				return fmt.Errorf("a predicate cannot be loaded or stored")
			}
			have := c.fn.Registers[p.Register].Type.Bits()
			if have < t.Bits() {
				return fmt.Errorf("a register of %d bits is too small for .%s", have, t)
			}
			if have > t.Bits() {
				e.extend = extension{from: uint(t.Bits()), signed: t.Signed()}
			}
		case store:
			s, err := c.source(p, t)
			if err != nil {
				return err
			}
			e.slot = s
		default:
			return fmt.Errorf("it wants a register to load into")
		}
		m.regs = append(m.regs, e)
	}
	return nil
}

// addresses computes the address of each lane.
func (w *warp) addresses(m *memOp, mask uint32) {
	switch m.base.file {
	case file32:
		base := &w.r32[m.base.index]
		for lane := range 32 {
			w.addr[lane] = uint64(base[lane] + uint32(m.offset))
		}
	case file64:
		base := &w.r64[m.base.index]
		for lane := range 32 {
			w.addr[lane] = base[lane] + uint64(m.offset)
		}
	default:
		for lane := range 32 {
			w.addr[lane] = uint64(m.offset)
		}
	}
	_ = mask
}

// inSpaces calls f for each state space that a generic access goes to, with the lanes that go there and their addresses in that space.
func (w *warp) inSpaces(m *memOp, mask uint32, f func(space ptx.Space, mask uint32)) {
	if m.space != ptx.Generic {
		f(m.space, mask)
		return
	}
	var found [ptx.Shared + 1]uint32
	for l := mask; l != 0; l &= l - 1 {
		lane := firstLane(l)
		space, address := ofGeneric(w.addr[lane])
		w.addr[lane] = address
		found[space] |= 1 << lane
	}
	for space, lanes := range found {
		if lanes != 0 {
			f(ptx.Space(space), lanes)
		}
	}
}

// ofGeneric takes a generic address to its state space.
func ofGeneric(address uint64) (ptx.Space, uint64) {
	inside := address&(1<<windowShift-1) - windowStart
	switch address >> windowShift {
	case sharedWindow >> windowShift:
		return ptx.Shared, inside
	case localWindow >> windowShift:
		return ptx.Local, inside
	case constWindow >> windowShift:
		return ptx.Const, inside
	case paramWindow >> windowShift:
		return ptx.Param, inside
	}
	return ptx.Global, address
}

// toGeneric is the inverse.
func toGeneric(space ptx.Space, address uint64) uint64 {
	switch space {
	case ptx.Shared:
		return sharedWindow + address
	case ptx.Local:
		return localWindow + address
	case ptx.Const:
		return constWindow + address
	case ptx.Param:
		return paramWindow + address
	}
	return address
}

func runLoad(w *warp, o *op, mask uint32) {
	m := o.mem
	if m.param != nil {
		for l := mask; l != 0; l &= l - 1 {
			lane := firstLane(l)
			w.setElements(m, lane, w.frame.param(m.paramAt, m.param.Size(), lane)[m.offset:])
		}
		return
	}
	w.addresses(m, mask)
	w.whole = mask == w.alive && mask&(mask-1) != 0
	w.inSpaces(m, mask, func(space ptx.Space, mask uint32) {
		w.countAccess(m, space, mask, reading)
		if space != ptx.Local && w.oneAddress(mask) && (w.knows.alone&mask == 0 || mask == w.alive) {
			// All lanes read the same bytes, and know the same of others: one look will do for them.
			w.sharing = mask
			data := w.reach(o, m, space, allLanes, reading)
			w.sharing = 0
			for l := mask; l != 0; l &= l - 1 {
				w.setElements(m, firstLane(l), data)
			}
			return
		}
		for l := mask; l != 0; l &= l - 1 {
			lane := firstLane(l)
			w.setElements(m, lane, w.reach(o, m, space, lane, reading))
		}
	})
	if m.strong {
		w.afterStrong(m, mask, true)
	}
}

// oneAddress says whether several lanes have one address, which then stands for the whole warp too.
func (w *warp) oneAddress(mask uint32) bool {
	first := w.addr[firstLane(mask)]
	rest := mask & (mask - 1)
	if rest == 0 {
		return false
	}
	for l := rest; l != 0; l &= l - 1 {
		if w.addr[firstLane(l)] != first {
			return false
		}
	}
	w.warpAddr = first
	return true
}

func runStore(w *warp, o *op, mask uint32) {
	m := o.mem
	if m.param != nil {
		for l := mask; l != 0; l &= l - 1 {
			lane := firstLane(l)
			w.putElements(m, lane, w.frame.param(m.paramAt, m.param.Size(), lane)[m.offset:])
		}
		return
	}
	w.addresses(m, mask)
	if m.strong {
		w.beforeStrong(m, mask)
	}
	w.whole = mask == w.alive && mask&(mask-1) != 0
	changed := false
	w.inSpaces(m, mask, func(space ptx.Space, mask uint32) {
		w.countAccess(m, space, mask, writing)
		for l := mask; l != 0; l &= l - 1 {
			lane := firstLane(l)
			w.putElements(m, lane, w.value[:])
			if data := w.reach(o, m, space, lane, writing); data != nil {
				changed = changed || space != ptx.Local && !bytes.Equal(data, w.value[:m.bytes])
				copy(data, w.value[:m.bytes])
			}
		}
	})
	if changed {
		w.block.changes++
	}
}

// setElements writes loaded bytes to the registers of one lane; what was read outside of memory is zeros.
func (w *warp) setElements(m *memOp, lane int, data []byte) {
	if data == nil {
		data = w.nothing[:m.bytes]
	}
	for i := range m.regs {
		e := &m.regs[i]
		var value uint64
		switch m.size {
		case 1:
			value = uint64(data[i])
		case 2:
			value = uint64(binary.LittleEndian.Uint16(data[2*i:]))
		case 4:
			value = uint64(binary.LittleEndian.Uint32(data[4*i:]))
		case 8:
			value = binary.LittleEndian.Uint64(data[8*i:])
		case 16:
			value = binary.LittleEndian.Uint64(data[16*i:])
			if e.slot.file == file64 {
				w.r64[e.slot.index+1][lane] = binary.LittleEndian.Uint64(data[16*i+8:])
			}
		}
		switch e.slot.file {
		case file32:
			w.r32[e.slot.index][lane] = uint32(e.extend.apply(value, file32))
		case file64:
			w.r64[e.slot.index][lane] = e.extend.apply(value, file64)
		}
	}
}

// putElements collects the bytes that one lane stores.
func (w *warp) putElements(m *memOp, lane int, data []byte) {
	for i := range m.regs {
		s := m.regs[i].slot
		var value uint64
		if s.file == file32 {
			value = uint64(w.r32[s.index][lane])
		} else {
			value = w.r64[s.index][lane]
		}
		switch m.size {
		case 1:
			data[i] = byte(value)
		case 2:
			binary.LittleEndian.PutUint16(data[2*i:], uint16(value))
		case 4:
			binary.LittleEndian.PutUint32(data[4*i:], uint32(value))
		case 8:
			binary.LittleEndian.PutUint64(data[8*i:], value)
		case 16:
			binary.LittleEndian.PutUint64(data[16*i:], value)
			binary.LittleEndian.PutUint64(data[16*i+8:], w.r64[s.index+1][lane])
		}
	}
}

// lowerCvta turns cvta into an operation: between generic addresses and those of a state space.
func (c *code) lowerCvta(in *ptx.Instruction, o *op) error {
	to := slices.Contains(in.Modifiers, "to")
	w := readWords(slices.DeleteFunc(slices.Clone(in.Modifiers), func(m string) bool { return m == "to" }))
	if len(w.rest) > 0 || w.space == ptx.Generic || len(in.Operands) != 2 || in.Operands[0].Kind != ptx.RegOperand {
		return fmt.Errorf("unsupported form")
	}
	from, err := c.source(in.Operands[1], w.typed)
	if err != nil {
		return err
	}
	d := c.regs[in.Operands[0].Register]
	space := w.space
	o.class = classInteger
	o.run = func(w *warp, o *op, mask uint32) {
		arg := aluArg{slot: from, mask: ^uint64(0)}
		for l := mask; l != 0; l &= l - 1 {
			lane := firstLane(l)
			address := w.get(&arg, lane)
			if to {
				if _, inside := ofGeneric(address); space != ptx.Global {
					address = inside
				}
			} else {
				address = toGeneric(space, address)
			}
			w.set(d, lane, address)
		}
	}
	return nil
}

// lowerIsspacep turns isspacep into an operation.
func (c *code) lowerIsspacep(in *ptx.Instruction, o *op) error {
	w := readWords(in.Modifiers)
	if len(w.rest) > 0 || w.space == ptx.Generic || len(in.Operands) != 2 {
		return fmt.Errorf("unsupported form")
	}
	p, err := c.predicate(in.Operands[0])
	if err != nil {
		return err
	}
	from, err := c.source(in.Operands[1], ptx.U64)
	if err != nil {
		return err
	}
	space, wide := w.space, w.cluster
	o.class = classInteger
	o.run = func(w *warp, o *op, mask uint32) {
		arg := aluArg{slot: from, mask: ^uint64(0)}
		for l := mask; l != 0; l &= l - 1 {
			lane := firstLane(l)
			have, address := ofGeneric(w.get(&arg, lane))
			far := false
			if space == ptx.Shared && !wide {
				home, _ := w.block.home(address)
				far = home != w.block
			}
			w.setBit(p.index, lane, have == space && !far)
		}
	}
	return nil
}
