package order

import "unsafe"

// memo is what a pass over cells, which makes the same access to each of them, has changed last. Cells
// of a tile mostly remember the same accesses, so that the pass has to look at few of them. A pass
// ends with forget.
type memo struct {
	shadow        *Shadow
	before, after cell // their tables have the memo as a holder
	valid         bool
}

// repeat changes a cell as the last one, if it remembers the same accesses.
func (m *memo) repeat(c *cell) bool {
	if !m.valid || !c.equals(&m.before) {
		return false
	}
	if m.before.many != m.after.many {
		m.shadow.hold(m.after.many)
		m.shadow.drop(m.before.many)
	}
	*c = m.after
	return true
}

// begin notes a cell that the pass will change.
func (m *memo) begin(c *cell) {
	m.forget()
	m.before = *c
	m.shadow.hold(c.many)
}

// end notes the change.
func (m *memo) end(c *cell) {
	m.after, m.valid = *c, true
	m.shadow.hold(c.many)
}

// forget ends the pass, or begins a new one.
func (m *memo) forget() {
	if m.valid {
		m.shadow.drop(m.before.many)
		m.shadow.drop(m.after.many)
	}
	m.valid = false
}

// equals reports whether two cells remember the same. It compares their bytes, of which none is padding,
// as eight at a time: the comparison of structs is a call.
func (c *cell) equals(other *cell) bool {
	a, b := (*[cellWords]uint64)(unsafe.Pointer(c)), (*[cellWords]uint64)(unsafe.Pointer(other))
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] && a[4] == b[4] && a[5] == b[5]
}

const cellWords = 6

// The cell has as many bytes, or the program does not compile.
var _ [cellWords * 8]byte = [unsafe.Sizeof(cell{})]byte{}
