package tune

// randomSearch draws variants without repetition.
type randomSearch struct{ *history }

func newRandom(h *history, _ Options) Strategy { return randomSearch{h} }

func (s randomSearch) Ask() (Point, bool) {
	p, ok := s.fresh()
	if !ok {
		return nil, false
	}
	return s.take(p), true
}

func (s randomSearch) Tell(p Point, r Result) { s.tell(p, r) }

// gridSearch visits all variants in the order of the space.
type gridSearch struct {
	*history
	rows []Point // the present combination of each component; nil before the first
	done bool
}

func newGrid(h *history, _ Options) Strategy { return &gridSearch{history: h} }

func (s *gridSearch) Ask() (Point, bool) {
	for {
		p, ok := s.next()
		if !ok || s.isNew(p) {
			return p, ok
		}
	}
}

func (s *gridSearch) next() (Point, bool) {
	if s.done {
		return nil, false
	}
	components := s.space.components
	at := len(components) - 1
	if s.rows == nil {
		s.rows = make([]Point, len(components))
		at = -1
	}
	for ; at >= 0; at-- { // count up: the last component changes fastest
		if next, ok := components[at].after(s.rows[at]); ok {
			s.rows[at] = next
			break
		}
		if at == 0 {
			s.done = true
			return nil, false
		}
	}
	for i := at + 1; i < len(components); i++ {
		s.rows[i], _ = components[i].after(nil) // no component is empty
	}
	p := make(Point, len(s.space.Knobs))
	for i, c := range components {
		for j, knob := range c.knobs {
			p[knob] = s.rows[i][j]
		}
	}
	return p, true
}

func (s *gridSearch) Tell(p Point, r Result) { s.tell(p, r) }
