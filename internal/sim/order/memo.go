package order

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
	if !m.valid || *c != m.before {
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
