package tune

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Value is one value of a knob: an integer, a real number, a boolean or a text. The zero Value is
// the integer 0. Values are comparable; the integer 1 and the real 1.0 are different Values.
type Value struct {
	kind kind
	bits int64 // of an integer, a boolean (0 or 1), or the bits of a real
	text string
}

type kind uint8

const (
	intKind kind = iota
	realKind
	boolKind
	textKind
	badKind // the result of an expression that has no value; text says why
)

// Int returns an integer value.
func Int(n int64) Value { return Value{kind: intKind, bits: n} }

// Real returns a real value.
func Real(x float64) Value { return Value{kind: realKind, bits: int64(math.Float64bits(x))} }

// Bool returns a boolean value.
func Bool(is bool) Value {
	if is {
		return Value{kind: boolKind, bits: 1}
	}
	return Value{kind: boolKind}
}

// Text returns a text value.
func Text(s string) Value { return Value{kind: textKind, text: s} }

func bad(format string, args ...any) Value {
	return Value{kind: badKind, text: fmt.Sprintf(format, args...)}
}

// Float returns the value as a number; false for a text.
func (v Value) Float() (float64, bool) {
	switch v.kind {
	case intKind, boolKind:
		return float64(v.bits), true
	case realKind:
		return v.real(), true
	}
	return 0, false
}

func (v Value) real() float64 { return math.Float64frombits(uint64(v.bits)) }

// truth is Python's: zero and the empty text are false.
func (v Value) truth() bool {
	switch v.kind {
	case realKind:
		return v.real() != 0
	case textKind:
		return v.text != ""
	}
	return v.bits != 0
}

// equal compares as Python does: numbers by their value, and a text equals only a text.
func (v Value) equal(w Value) bool {
	if v.kind == w.kind && v.kind != realKind {
		return v == w
	}
	x, xok := v.Float()
	y, yok := w.Float()
	return xok && yok && x == y
}

// String formats the value as Python's str does, which the keys of Kernel Tuner caches use.
func (v Value) String() string {
	switch v.kind {
	case intKind:
		return strconv.FormatInt(v.bits, 10)
	case boolKind:
		if v.bits != 0 {
			return "True"
		}
		return "False"
	case realKind:
		return pythonFloat(v.real())
	}
	return v.text
}

// pythonFloat formats a float as Python's repr does.
func pythonFloat(x float64) string {
	switch {
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	case math.IsNaN(x):
		return "nan"
	}
	if size := math.Abs(x); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	text := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// MarshalJSON writes the value as a JSON number, boolean or string. A real keeps its point, so that
// it is read as a real again.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.kind {
	case intKind:
		return strconv.AppendInt(nil, v.bits, 10), nil
	case boolKind:
		return strconv.AppendBool(nil, v.bits != 0), nil
	case realKind:
		if x := v.real(); math.IsInf(x, 0) || math.IsNaN(x) {
			return nil, fmt.Errorf("JSON has no number %v", x)
		}
		return []byte(pythonFloat(v.real())), nil
	case textKind:
		return json.Marshal(v.text)
	}
	return nil, errors.New(v.text)
}

// UnmarshalJSON reads a JSON number, boolean or string. A number without a point and an exponent
// that fits 64 bits is an integer.
func (v *Value) UnmarshalJSON(data []byte) error {
	var any any
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	if err := decoder.Decode(&any); err != nil {
		return err
	}
	switch x := any.(type) {
	case bool:
		*v = Bool(x)
	case string:
		*v = Text(x)
	case json.Number:
		if n, err := strconv.ParseInt(x.String(), 10, 64); err == nil {
			*v = Int(n)
			return nil
		}
		f, err := x.Float64()
		if err != nil {
			return fmt.Errorf("the number %s does not fit 64 bits", x)
		}
		*v = Real(f)
	default:
		return fmt.Errorf("%s is not a number, a boolean or a text", data)
	}
	return nil
}
