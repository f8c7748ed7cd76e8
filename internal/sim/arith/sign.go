package arith

import "attune/internal/ptx"

func abs(f *form) (Op, bool) {
	if f.isInteger() {
		return absInteger(f)
	}
	return signOp(f, func(n *format, code uint64) uint64 { return code & n.magnitude() })
}

func neg(f *form) (Op, bool) {
	if f.isInteger() {
		return negInteger(f)
	}
	return signOp(f, func(n *format, code uint64) uint64 { return code&(n.sign()|n.magnitude()) ^ n.sign() })
}

// signOp defines abs and neg of floating-point types (PTX ISA, Floating-Point Instructions). A NaN
// operand gives the canonical NaN; for f64, the operand as a quiet NaN with its sign unchanged.
func signOp(f *form, change func(n *format, code uint64) uint64) (Op, bool) {
	t, ok := f.oneType(ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2, ptx.F32, ptx.F64)
	if !ok {
		return Op{}, false
	}
	n := formatOf(t)
	ftz := (n == float16 || n == float32s) && f.consume("ftz")
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

// copysign is the magnitude of the second source with the sign of the first.
func copysign(f *form) (Op, bool) {
	t, ok := f.oneType(ptx.F32, ptx.F64)
	if !ok {
		return Op{}, false
	}
	n := formatOf(t)
	return uniformOp(t, 2, func(a, b, _, _ uint64) uint64 { return a&n.sign() | b&n.magnitude() }), true
}

// testp tests a property of a floating-point value. .normal holds for zero as well.
func testp(f *form) (Op, bool) {
	property := f.consumeAny("finite", "infinite", "number", "notanumber", "normal", "subnormal")
	t, ok := f.oneType(ptx.F32, ptx.F64)
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

func minimum(f *form) (Op, bool) { return minMax(f) }
func maximum(f *form) (Op, bool) { return minMax(f) }

// minMax defines min and max. If one operand is NaN, the result is the other; with .NaN it is NaN.
// -0 is less than +0. .xorsign.abs compares magnitudes and gives the result the exclusive or of
// both signs.
func minMax(f *form) (Op, bool) {
	if f.isInteger() {
		return minMaxInteger(f)
	}
	t, ok := f.oneType(ptx.F16, ptx.F16x2, ptx.BF16, ptx.BF16x2, ptx.F32, ptx.F64)
	if !ok {
		return Op{}, false
	}
	n := formatOf(t)
	ftz := (n == float16 || n == float32s) && f.consume("ftz")
	propagate, absolute := t != ptx.F64 && f.consume("NaN"), false
	if t != ptx.F64 && f.consume("xorsign") {
		absolute = true
		if !f.consume("abs") {
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
				return n.encodeNaN(n.decode(b))
			}
			return n.nan
		case n.isNaN(a):
			a = b
		case n.isNaN(b):
		case n.orderKey(a) < n.orderKey(b) == largest:
			a = b
		}
		if absolute {
			return a | sign
		}
		return a & (n.sign() | n.magnitude())
	}), true
}

// orderKey maps encodings other than NaN to integers in the same order, with -0 before +0.
func (f *format) orderKey(code uint64) int64 {
	magnitude := int64(code & f.magnitude())
	if code&f.sign() != 0 {
		return -1 - magnitude
	}
	return magnitude
}
