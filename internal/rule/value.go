package rule

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Value is a value of a rule or of a name in it: an integer, a real number, a boolean or a text. The
// zero Value is the integer 0. Values are comparable; the integer 1 and the real 1.0 are different
// Values.
type Value struct {
	kind kind
	bits int64  // of an integer, a boolean (0 or 1), or the bits of a real; the sign of a large integer
	text string // of a text; the bytes of a large integer; why there is no value
}

type kind uint8

const (
	intKind   kind = iota
	largeKind      // an integer that does not fit 64 bits
	realKind
	boolKind
	textKind
	badKind // the result of a rule that has no value
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

// large returns an integer of any size.
func large(n *big.Int) Value {
	switch {
	case n.IsInt64():
		return Int(n.Int64())
	case n.BitLen() > maxBits:
		return bad("an integer has more than %d bits", maxBits)
	}
	return Value{largeKind, int64(n.Sign()), string(n.Bytes())}
}

// maxBits limits integers, so that a hostile rule cannot exhaust the memory.
const maxBits = 1 << 16

// big returns an integer as a new number.
func (v Value) big() *big.Int {
	if v.kind == largeKind {
		n := new(big.Int).SetBytes([]byte(v.text))
		if v.bits < 0 {
			n.Neg(n)
		}
		return n
	}
	return big.NewInt(v.bits)
}

// Type returns Starlark's name of the value's type.
func (v Value) Type() string {
	return [...]string{"int", "int", "float", "bool", "string", "failure"}[v.kind]
}

// Err says why a rule has no value. It is nil if the rule has one.
func (v Value) Err() error {
	if v.kind == badKind {
		return errors.New(v.text)
	}
	return nil
}

// Int64 returns an integer that fits 64 bits, or a boolean as 0 or 1.
func (v Value) Int64() (int64, bool) { return v.bits, v.kind == intKind || v.kind == boolKind }

// Uint64 returns an integer from 0 to 2^64-1, or a boolean as 0 or 1.
func (v Value) Uint64() (uint64, bool) {
	if v.kind == largeKind {
		n := v.big()
		return n.Uint64(), n.IsUint64()
	}
	n, ok := v.Int64()
	return uint64(n), ok && n >= 0
}

// Float returns the value as a number; false for a text.
func (v Value) Float() (float64, bool) {
	switch v.kind {
	case intKind, boolKind:
		return float64(v.bits), true
	case largeKind:
		x, _ := new(big.Float).SetInt(v.big()).Float64()
		return x, true
	case realKind:
		return v.real(), true
	}
	return 0, false
}

func (v Value) real() float64 { return math.Float64frombits(uint64(v.bits)) }

func (v Value) isInt() bool { return v.kind == intKind || v.kind == largeKind }

func (v Value) isNumber() bool { return v.isInt() || v.kind == realKind }

// Truth is Starlark's: zero and the empty text are false.
func (v Value) Truth() bool {
	switch v.kind {
	case realKind:
		return v.real() != 0
	case textKind:
		return v.text != ""
	}
	return v.bits != 0
}

// Equal compares numbers by their value. A boolean equals only a boolean, a text only a text.
func (v Value) Equal(w Value) bool {
	if v.kind == intKind && w.kind == intKind {
		return v.bits == w.bits
	}
	order, ok := compare(v, w)
	return ok && order == 0
}

// compare orders two numbers exactly, or two booleans or texts. It is false for values of different
// types. NaN equals itself and is above all other numbers, as in Starlark.
func compare(x, y Value) (order int, ok bool) {
	switch {
	case x.kind == intKind && y.kind == intKind, x.kind == boolKind && y.kind == boolKind:
		return three(x.bits < y.bits, x.bits > y.bits), true
	case x.kind == textKind && y.kind == textKind:
		return strings.Compare(x.text, y.text), true
	case !x.isNumber() || !y.isNumber():
		return 0, false
	}
	if x.isInt() && y.isInt() {
		return x.big().Cmp(y.big()), true
	}
	a, _ := x.Float()
	b, _ := y.Float()
	switch {
	case math.IsNaN(a) || math.IsNaN(b):
		return three(!math.IsNaN(a), !math.IsNaN(b)), true
	case a != b || x.kind == y.kind || math.IsInf(a, 0) && x.kind == realKind || math.IsInf(b, 0) && y.kind == realKind:
		return three(a < b, a > b), true
	}
	return x.exact().Cmp(y.exact()), true // an integer that may have been rounded
}

func three(less, greater bool) int {
	switch {
	case less == greater:
		return 0
	case less:
		return -1
	}
	return 1
}

// exact returns a finite number without rounding.
func (v Value) exact() *big.Float {
	if v.kind == realKind {
		return big.NewFloat(v.real())
	}
	return new(big.Float).SetInt(v.big())
}

// String formats the value as Python's str does, which the keys of Kernel Tuner caches use.
func (v Value) String() string {
	switch v.kind {
	case intKind:
		return strconv.FormatInt(v.bits, 10)
	case largeKind:
		return v.big().String()
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
	case intKind, largeKind:
		return []byte(v.String()), nil
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
	return nil, v.Err()
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
			return fmt.Errorf("the number %.40s does not fit 64 bits", x)
		}
		*v = Real(f)
	default:
		return fmt.Errorf("%s is not a number, a boolean or a text", data)
	}
	return nil
}
