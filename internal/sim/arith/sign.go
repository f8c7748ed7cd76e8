package arith

import "attune/internal/ptx"

func abs(f *form) (Op, bool) {
	if f.isInteger() {
		return absInteger(f)
	}
	return signed(f, func(n *format, code uint64) uint64 { return code & n.magnitude() })
}

func neg(f *form) (Op, bool) {
	if f.isInteger() {
		return negInteger(f)
	}
	return signed(f, func(n *format, code uint64) uint64 { return code&(n.sign()|n.magnitude()) ^ n.sign() })
}

// signed defines abs and neg of floating point.
func signed(f *form, change func(n *format, code uint64) uint64) (Op, bool) {
	t, ok := f.one(ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2, ptx.F32, ptx.F64)
	if !ok {
		return Op{}, false
	}
	n := formatOf(t)
	ftz := (n == float16 || n == float32s) && f.take("ftz")
	return uniformFloat(t, 1, func(a, _, _, _ uint64) uint64 {
		switch {
		case n.isNaN(a):
			return n.encode(n.decode(a), toNearest)
		case ftz:
			a = n.flush(a)
		}
		return change(n, a)
	}), true
}

// copysign is a number with the magnitude of the second source and the sign of the first.
func copysign(f *form) (Op, bool) {
	t, ok := f.one(ptx.F32, ptx.F64)
	if !ok {
		return Op{}, false
	}
	n := formatOf(t)
	return uniform(t, 2, func(a, b, _, _ uint64) uint64 { return a&n.sign() | b&n.magnitude() }), true
}

// testp takes zero for normal.
func testp(f *form) (Op, bool) {
	property := f.choose("finite", "infinite", "number", "notanumber", "normal", "subnormal")
	t, ok := f.one(ptx.F32, ptx.F64)
	if !ok || property == "" {
		return Op{}, false
	}
	n := formatOf(t)
	test := map[string]func(magnitude uint64) bool{
		"finite":     func(m uint64) bool { return m < n.infinity() },
		"infinite":   func(m uint64) bool { return m == n.infinity() },
		"number":     func(m uint64) bool { return m <= n.infinity() },
		"notanumber": func(m uint64) bool { return m > n.infinity() },
		"normal":     func(m uint64) bool { return m < n.infinity() && (m == 0 || !n.isSubnormal(m)) },
		"subnormal":  func(m uint64) bool { return m != 0 && n.isSubnormal(m) },
	}[property]
	return Op{Result: ptx.Pred, Args: []ptx.Type{t}, Func: func(a, _, _, _ uint64) uint64 {
		return bit(test(a & n.magnitude()))
	}}, true
}

func minimum(f *form) (Op, bool) { return extreme(f) }
func maximum(f *form) (Op, bool) { return extreme(f) }

// extreme defines min and max: of a number and a NaN it is the number, or NaN with .NaN; -0 is less than +0.
func extreme(f *form) (Op, bool) {
	if f.isInteger() {
		return extremeInteger(f)
	}
	t, ok := f.one(ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2, ptx.F32, ptx.F64)
	if !ok {
		return Op{}, false
	}
	n := formatOf(t)
	ftz := (n == float16 || n == float32s) && f.take("ftz")
	propagate, absolute := t != ptx.F64 && f.take("NaN"), false
	if t != ptx.F64 && f.take("xorsign") {
		absolute = true
		if !f.take("abs") {
			return Op{}, false
		}
	}
	largest := f.opcode == "max"
	return uniformFloat(t, 2, func(a, b, _, _ uint64) uint64 {
		if ftz {
			a, b = n.flush(a), n.flush(b)
		}
		sign := (a ^ b) & n.sign()
		if absolute {
			a, b = a&n.magnitude(), b&n.magnitude()
		}
		switch {
		case n.isNaN(a) && n.isNaN(b), propagate && (n.isNaN(a) || n.isNaN(b)):
			if n == float64s {
				return n.kept(n.decode(b))
			}
			return n.nan
		case n.isNaN(a):
			a = b
		case n.isNaN(b):
		case n.order(a) < n.order(b) == largest:
			a = b
		}
		if absolute {
			return a | sign
		}
		return a & (n.sign() | n.magnitude())
	}), true
}

// order maps codes that are no NaN to numbers in the same order, with -0 before +0.
func (f *format) order(code uint64) int64 {
	magnitude := int64(code & f.magnitude())
	if code&f.sign() != 0 {
		return -1 - magnitude
	}
	return magnitude
}
