package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
)

// memOp is a load, a store or an atomic operation.
type memOp struct {
	space   ptx.Space
	base    slot // of the address; noFile where the offset is the whole address
	offset  int64
	param   *ptx.Variable // of a function, in its frame
	paramAt int

	size       int // bytes of an element
	regs       []element
	bytes      int  // of all elements
	strong     bool // volatile, relaxed, acquire or release
	acquire    bool
	release    bool
	ordered    bool // it specifies a memory order, at least .relaxed
	blockScope bool // it is strong for threads of the block only
	volatile   bool
	stores     bool // it is st
	onlyCopied bool // the loaded value is only copied
	taints     bool // it is ld: the use of the loaded value decides whether unwritten bytes are a defect (taint.go)
	readOnly   bool // ld.global.nc: the bytes do not change while the kernel runs
	usesOld    bool // an atomic operation whose old value is used
	overwrites bool // an exchange whose old value is not used: it is no read
	expected   bool // a load of the value that a compare-and-swap expects
	constant   bool // a store of a constant
	yields     bool // other blocks may see it, or it sees what they do: an access to a flag, a counter, a lock
	atomic     *atomicOp
}

func (o *op) storesConstant() bool { return o.mem != nil && o.mem.constant }

// isWord reports whether the operation loads one register of 32 bits.
func (m *memOp) isWord() bool {
	return len(m.regs) == 1 && m.size == 4 && m.regs[0].slot.file == file32 && m.regs[0].extend == extension{}
}

// element is one register of the vector that is loaded or stored.
type element struct {
	slot   slot
	extend extension
	unused bool // of a load: no instruction reads the register
}

// cacheHints are modifiers that change only where data is cached.
var cacheHints = map[string]bool{
	"ca": true, "cg": true, "cs": true, "lu": true, "cv": true, "wb": true, "wt": true, "weak": true,
	"L1::evict_normal": true, "L1::evict_unchanged": true, "L1::evict_first": true, "L1::evict_last": true, "L1::no_allocate": true,
	"L2::evict_normal": true, "L2::evict_first": true, "L2::evict_last": true,
	"L2::64B": true, "L2::128B": true, "L2::256B": true, "L2::cache_hint": true,
}

var scopes = map[string]bool{"cta": true, "cluster": true, "gpu": true, "sys": true}

// memModifiers are the modifiers of a memory instruction.
type memModifiers struct {
	space    ptx.Space
	typed    ptx.Type
	vector   int
	order    string
	scope    string
	hinted   bool     // the last operand is a cache policy
	readOnly bool     // .nc
	rest     []string // all other modifiers
	cluster  bool     // shared::cluster
}

func readModifiers(modifiers []string) memModifiers {
	mods := memModifiers{vector: 1}
	for _, m := range modifiers {
		t, isType := ptx.ParseType(m)
		switch {
		case m == "L2::cache_hint":
			mods.hinted = true
		case cacheHints[m]:
		case scopes[m]:
			mods.scope = m
		case m == "global":
			mods.space = ptx.Global
		case m == "shared" || m == "shared::cta":
			mods.space = ptx.Shared
		case m == "shared::cluster":
			mods.space, mods.cluster = ptx.Shared, true
		case m == "local":
			mods.space = ptx.Local
		case m == "const":
			mods.space = ptx.Const
		case m == "param" || m == "param::entry" || m == "param::func":
			mods.space = ptx.Param
		case m == "volatile" || m == "relaxed" || m == "acquire" || m == "release" || m == "acq_rel" || m == "sc":
			mods.order = m
		case m == "nc":
			mods.readOnly = true
		case m == "v2" || m == "v4" || m == "v8":
			mods.vector = int(m[1] - '0')
		case isType && mods.typed == ptx.NoType:
			mods.typed = t
		default:
			mods.rest = append(mods.rest, m)
		}
	}
	return mods
}

// lowerAccess lowers ld, ldu and st.
func (c *code) lowerAccess(in *ptx.Instruction, o *op) error {
	mods := readModifiers(in.Modifiers)
	if len(mods.rest) > 0 {
		return fmt.Errorf("unsupported modifier .%s", strings.Join(mods.rest, "."))
	}
	if mods.typed == ptx.NoType || mods.typed == ptx.Pred {
		return fmt.Errorf("it has no type")
	}
	m := &memOp{
		space: mods.space, size: mods.typed.Size(), readOnly: mods.readOnly, strong: mods.order != "", acquire: mods.order == "acquire",
		release: mods.order == "release", ordered: true, blockScope: mods.scope == "cta", volatile: mods.order == "volatile",
	}
	operands := in.Operands
	if mods.hinted && len(operands) == 3 {
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
	if err := c.lowerElements(m, value, mods.typed, mods.vector, in.Opcode == "st"); err != nil {
		return err
	}
	m.stores = in.Opcode == "st"
	m.taints = in.Opcode != "st"
	m.onlyCopied = in.Opcode != "st" && (m.space == ptx.Generic || m.space == ptx.Local) && c.isOnlyCopied(value, m.space)
	m.expected = in.Opcode != "st" && !m.strong && (m.space == ptx.Global || m.space == ptx.Shared || m.space == ptx.Generic) && c.isExpected(&value)
	m.constant = in.Opcode == "st" && len(in.Operands) == 2 && c.isConstant(&value)
	o.mem, o.class = m, count.Memory
	c.noteCommunication(m)
	c.loadsStrong = c.loadsStrong || m.strong && !m.stores && (m.space == ptx.Global || m.space == ptx.Generic)
	return nil
}

// noteCommunication notes that blocks may communicate: by any strong access that may be to global
// memory.
func (c *code) noteCommunication(m *memOp) {
	if m.strong && (m.space == ptx.Global || m.space == ptx.Generic) {
		c.communicates = true
		m.yields = !m.blockScope && (m.atomic == nil || m.usesOld)
		c.exchanges = c.exchanges || m.yields
	}
}

// lowerAddress lowers an address operand: a register or a symbol, plus an offset.
func (c *code) lowerAddress(m *memOp, o ptx.Operand) error {
	if o.Element { // ld and st access arr[i] as [arr+offset]
		base := o
		base.Offset = 0
		o = ptx.Operand{Kind: ptx.AddrOperand, Parts: []ptx.Operand{base}, Offset: o.Offset}
	}
	if o.Kind != ptx.AddrOperand || len(o.Parts) != 1 {
		return fmt.Errorf("it needs an address in brackets")
	}
	base := o.Parts[0]
	m.offset = o.Offset
	switch base.Kind {
	case ptx.RegOperand:
		m.base = c.regs[base.Register]
		if m.base.file == filePred {
			return fmt.Errorf("a predicate cannot be an address")
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
			return fmt.Errorf("it accesses bytes outside of the parameter %s", v.Name)
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
		return fmt.Errorf("it accesses bytes outside of the parameter %s", m.param.Name)
	}
	for _, p := range parts {
		e := element{unused: !store && !c.isRead(&p)}
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
			return fmt.Errorf("it needs a register to load into")
		}
		m.regs = append(m.regs, e)
	}
	return nil
}

// computeAddresses computes the address of every lane into w.addr.
func (w *warp) computeAddresses(m *memOp) {
	switch m.base.file {
	case file32:
		base := &w.R32[m.base.index]
		for lane := range 32 {
			w.addr[lane] = uint64(base[lane] + uint32(m.offset))
		}
	case file64:
		base := &w.R64[m.base.index]
		for lane := range 32 {
			w.addr[lane] = base[lane] + uint64(m.offset)
		}
	default:
		for lane := range 32 {
			w.addr[lane] = uint64(m.offset)
		}
	}
}

// inSpaces calls f for each state space that an access goes to, with the lanes that access it. It
// converts the generic addresses in w.addr to addresses of the space.
func (w *warp) inSpaces(m *memOp, mask uint32, f func(space ptx.Space, mask uint32)) {
	if m.space != ptx.Generic {
		f(m.space, mask)
		return
	}
	var found [ptx.Shared + 1]uint32
	for l := mask; l != 0; l &= l - 1 {
		lane := firstLane(l)
		space, address := mem.FromGeneric(w.addr[lane])
		w.addr[lane] = address
		found[space] |= 1 << lane
	}
	for space, lanes := range found {
		if lanes != 0 {
			f(ptx.Space(space), lanes)
		}
	}
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
	w.computeAddresses(m)
	w.whole = mask == w.alive && mask&(mask-1) != 0
	w.inSpaces(m, mask, func(space ptx.Space, mask uint32) {
		w.counters.Access(&w.addr, space, mask, m.bytes, mem.Read)
		if space != ptx.Local && w.oneAddress(mask) && (w.clocks.Separate()&mask == 0 || mask == w.alive) {
			// All lanes read the same bytes and have the same clock, so one check is enough.
			w.sharing = mask
			data := w.accessLane(o, m, space, allLanes, mem.Read)
			if m.strong || m.expected {
				data = w.weaken(o, space, w.warpAddr, allLanes, data)
			}
			w.sharing = everyLane
			for l := mask; l != 0; l &= l - 1 {
				w.setElements(m, firstLane(l), data)
			}
			return
		}
		win := w.openWindow(o, space, mem.Read)
		for l := mask; l != 0; l &= l - 1 {
			lane := firstLane(l)
			if w.loadFour(win, m, l) {
				l &^= 14 << lane
				continue
			}
			if win != nil {
				if data := w.readLane(win, w.addr[lane], lane); data != nil {
					w.setElements(m, lane, data)
					continue
				}
			}
			data := w.accessLane(o, m, space, lane, mem.Read)
			if m.strong || m.expected {
				data = w.weaken(o, space, w.addr[lane], lane, data)
			}
			w.setElements(m, lane, data)
			win.leave()
		}
	})
	if m.strong {
		w.afterStrong(m, mask, true)
	}
}

// oneAddress reports whether several lanes have the same address, and stores it in w.warpAddr.
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
	w.computeAddresses(m)
	if m.strong {
		w.beforeStrong(m, mask)
	}
	w.whole = mask == w.alive && mask&(mask-1) != 0
	changed := false
	w.inSpaces(m, mask, func(space ptx.Space, mask uint32) {
		w.counters.Access(&w.addr, space, mask, m.bytes, mem.Write)
		win := w.openWindow(o, space, mem.Write)
		for l := mask; l != 0; l &= l - 1 {
			lane := firstLane(l)
			if done, differ := w.storeFour(win, m, l); done {
				changed = changed || differ
				l &^= 14 << lane
				continue
			}
			if done, differ := w.storePair(win, m, l); done {
				changed = changed || differ
				l &^= 2 << lane
				continue
			}
			w.putElements(m, lane, w.value[:])
			if win != nil {
				if data := w.writeLane(win, w.addr[lane], lane); data != nil {
					changed = changed || !bytes.Equal(data, w.value[:m.bytes])
					copy(data, w.value[:m.bytes])
					continue
				}
			}
			if data := w.accessLane(o, m, space, lane, mem.Write); data != nil {
				changed = changed || space != ptx.Local && !bytes.Equal(data, w.value[:m.bytes])
				if m.strong && w.isWeak(space) {
					w.overwrite(o, w.addr[lane], lane, data, w.value[:m.bytes])
				}
				copy(data, w.value[:m.bytes])
			}
			win.leave()
		}
	})
	if changed {
		w.block.changes++
	}
}

// setElements writes loaded bytes to the registers of one lane. Without data, it writes zeros.
func (w *warp) setElements(m *memOp, lane int, data []byte) {
	if data == nil {
		data = w.zeros[:m.bytes]
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
				w.R64[e.slot.index+1][lane] = binary.LittleEndian.Uint64(data[16*i+8:])
			}
		}
		switch e.slot.file {
		case file32:
			w.R32[e.slot.index][lane] = uint32(e.extend.apply(value, file32))
		case file64:
			w.R64[e.slot.index][lane] = e.extend.apply(value, file64)
		}
	}
}

// putElements collects the bytes that one lane stores.
func (w *warp) putElements(m *memOp, lane int, data []byte) {
	for i := range m.regs {
		s := m.regs[i].slot
		var value uint64
		if s.file == file32 {
			value = uint64(w.R32[s.index][lane])
		} else {
			value = w.R64[s.index][lane]
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
			binary.LittleEndian.PutUint64(data[16*i+8:], w.R64[s.index+1][lane])
		}
	}
}

// lowerCvta lowers cvta, which converts between generic addresses and those of a state space.
func (c *code) lowerCvta(in *ptx.Instruction, o *op) error {
	to := slices.Contains(in.Modifiers, "to")
	mods := readModifiers(slices.DeleteFunc(slices.Clone(in.Modifiers), func(m string) bool { return m == "to" }))
	if len(mods.rest) > 0 || mods.space == ptx.Generic || len(in.Operands) != 2 || in.Operands[0].Kind != ptx.RegOperand {
		return fmt.Errorf("unsupported form")
	}
	from, err := c.source(in.Operands[1], mods.typed)
	if err != nil {
		return err
	}
	d := c.regs[in.Operands[0].Register]
	space := mods.space
	o.class = count.Integer
	o.run = func(w *warp, o *op, mask uint32) {
		arg := aluArg{slot: from, mask: ^uint64(0)}
		for l := mask; l != 0; l &= l - 1 {
			lane := firstLane(l)
			address := w.get(&arg, lane)
			if to {
				if _, inside := mem.FromGeneric(address); space != ptx.Global {
					address = inside
				}
			} else {
				address = mem.ToGeneric(space, address)
			}
			w.set(d, lane, address)
		}
	}
	return nil
}

func (c *code) lowerIsspacep(in *ptx.Instruction, o *op) error {
	mods := readModifiers(in.Modifiers)
	if len(mods.rest) > 0 || mods.space == ptx.Generic || len(in.Operands) != 2 {
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
	space, wide := mods.space, mods.cluster
	o.class = count.Integer
	o.run = func(w *warp, o *op, mask uint32) {
		arg := aluArg{slot: from, mask: ^uint64(0)}
		for l := mask; l != 0; l &= l - 1 {
			lane := firstLane(l)
			have, address := mem.FromGeneric(w.get(&arg, lane))
			far := false
			if space == ptx.Shared && !wide {
				owner, _ := w.block.ownerBlock(address)
				far = owner != w.block
			}
			w.setBit(p.index, lane, have == space && !far)
		}
	}
	return nil
}
