package declared

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"attune/internal/array"
	"attune/internal/gate"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/spec"
)

// tolerance returns the tolerance of an output: that of kernel.toml, or one rounding.
func (p *Problem) tolerance(a spec.Arg) spec.OutputTolerance {
	t, given := p.Tolerance[a.Name]
	if !given || t.OneRounding {
		t.Abs, t.Rel = a.Type.Rounding()
	}
	return t
}

// wanted is the right elements of one output: integers if the output has them, else floats.
type wanted struct {
	arg       spec.Arg
	tolerance spec.OutputTolerance
	slack     float64 // factor of the tolerance
	shape     []int
	floats    []float64
	ints      []int64   // of the output's type; values of u64 are reinterpreted
	narrow    string    // the type of the reference if it has fewer bits than the output's
	rounded   []float64 // floats in the output's type; computed when an element is beyond its tolerance
}

// newWanted takes the elements that a reference returned. An integer output without a tolerance
// must have integers that its type can hold. With one it is compared as integers too, if it has
// them: float64 has no integers next to each other beyond 2^53.
func newWanted(a spec.Arg, tolerance spec.OutputTolerance, shape []int, right *array.Array) (*wanted, error) {
	w := &wanted{arg: a, tolerance: tolerance, slack: 1, shape: shape}
	if a.Type.Float() {
		w.floats = right.Floats()
		return w, nil
	}
	err := w.fromInts(right)
	if err != nil && (tolerance.Abs > 0 || tolerance.Rel > 0) {
		w.floats, w.ints, err = right.Floats(), nil, nil
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// fromInts takes integers.
func (w *wanted) fromInts(right *array.Array) error {
	if right.Type.Float() {
		return w.fromFloats(right.Floats())
	}
	w.ints = right.Ints()
	low, high := limits(w.arg.Type)
	for i, x := range w.ints {
		negative := right.Type.Signed() && x < 0
		if negative && x < low || !negative && uint64(x) > high {
			return w.outOfRange(i, integerText(x, right.Type.Signed()))
		}
	}
	return nil
}

// integerText writes an integer whose bits are in an int64.
func integerText(x int64, signed bool) string {
	if signed {
		return strconv.FormatInt(x, 10)
	}
	return strconv.FormatUint(uint64(x), 10)
}

// fromFloats takes integers in floating point.
func (w *wanted) fromFloats(values []float64) error {
	low, high := limits(w.arg.Type)
	w.ints = make([]int64, len(values))
	for i, x := range values {
		// 2^64 is no uint64; float64(high) rounds up to it.
		if x != math.Trunc(x) || math.IsInf(x, 0) {
			return w.noInteger(i, x)
		}
		if x < float64(low) || x > float64(high) || x >= 1<<64 || x >= 1<<63 && w.arg.Type != array.U64 {
			return w.outOfRange(i, strconv.FormatFloat(x, 'g', -1, 64))
		}
		if x >= 1<<63 {
			w.ints[i] = int64(uint64(x))
			continue
		}
		w.ints[i] = int64(x)
	}
	return nil
}

// noInteger is the error of a right element with a fraction, or none at all, of an integer output.
func (w *wanted) noInteger(i int, x float64) error {
	return fmt.Errorf("returned %s for %s, which is no %s; give %s a [tolerance], or return integers",
		strconv.FormatFloat(x, 'g', -1, 64), w.element(i), w.arg.Type, w.arg.Name)
}

// outOfRange is the error of a right element that the type of the output cannot hold.
func (w *wanted) outOfRange(i int, value string) error {
	low, high := limits(w.arg.Type)
	return fmt.Errorf("returned %s for %s, out of the range %d to %d of %s; give %s a [tolerance], or return what the kernel must store",
		value, w.element(i), low, high, w.arg.Type, w.arg.Name)
}

// limits returns the least and the greatest value of an integer type.
func limits(t array.DType) (low int64, high uint64) {
	bits := 8 * t.Bytes()
	if t.Signed() {
		return -1 << (bits - 1), 1<<(bits-1) - 1
	}
	return 0, math.MaxUint64 >> (64 - bits)
}

func (w *wanted) len() int { return max(len(w.floats), len(w.ints)) }

// element names an element by its index, such as y[3, 17].
func (w *wanted) element(index int) string {
	places := make([]string, len(w.shape))
	for i := len(w.shape) - 1; i >= 0; i-- {
		places[i] = strconv.Itoa(index % w.shape[i])
		index /= w.shape[i]
	}
	return w.arg.Name + "[" + strings.Join(places, ", ") + "]"
}

// compare measures the errors of an output of a launch.
func (w *wanted) compare(data []byte) (oracle.Errors, error) {
	got := &array.Array{Type: w.arg.Type, Shape: w.shape, Data: data}
	if w.ints == nil {
		return w.compareFloats(got.Floats())
	}
	return w.compareInts(got.Ints()), nil
}

// compareInts measures the errors of integers.
func (w *wanted) compareInts(got []int64) oracle.Errors {
	t := newTally(w)
	for i, x := range got {
		want := w.ints[i]
		a, b := float64(x), float64(want)
		off := uint64(max(x, want)) - uint64(min(x, want))
		if w.arg.Type == array.U64 {
			a, b = float64(uint64(x)), float64(uint64(want))
			off = max(uint64(x), uint64(want)) - min(uint64(x), uint64(want))
		}
		t.add(i, a, b, float64(off), w.bound(b), w.beyond(off, want))
	}
	e := t.errors()
	if t.worst >= 0 {
		signed := w.arg.Type.Signed()
		e.Worst.GotInteger, e.Worst.WantInteger = integerText(got[t.worst], signed), integerText(w.ints[t.worst], signed)
	}
	return e
}

// bound is the tolerance of an element.
func (w *wanted) bound(want float64) float64 {
	return w.slack * (w.tolerance.Abs + w.tolerance.Rel*math.Abs(want))
}

// beyond reports whether the difference of integers is above the tolerance, exactly.
func (w *wanted) beyond(off uint64, want int64) bool {
	if off == 0 {
		return false
	}
	abs, rel := w.slack*w.tolerance.Abs, w.slack*w.tolerance.Rel
	magnitude := uint64(want)
	if w.arg.Type.Signed() && want < 0 {
		magnitude = -magnitude
	}
	// Where rounding cannot matter, float64 is enough.
	const margin = 1e-9
	bound := abs + rel*float64(magnitude)
	switch {
	case float64(off) > bound*(1+margin):
		return true
	case float64(off) < bound*(1-margin):
		return false
	}
	number := func(x float64) *big.Rat { return new(big.Rat).SetFloat64(x) }
	exact := new(big.Rat).SetUint64(magnitude)
	exact.Add(exact.Mul(exact, number(rel)), number(abs))
	return new(big.Rat).SetUint64(off).Cmp(exact) > 0
}

// compareFloats measures the errors of elements. The error is a NaN of the reference where the
// kernel has a number.
func (w *wanted) compareFloats(got []float64) (oracle.Errors, error) {
	t := newTally(w)
	for i, want := range w.values() {
		x := got[i]
		switch {
		case want != want && x != x, x == want && math.IsInf(x, 0):
		case want != want:
			return oracle.Errors{}, fmt.Errorf("returned NaN for %s, where the kernel has %.6g", w.element(i), x)
		case !finite(x) || !finite(want):
			t.addNonFinite(i, x, want)
		default:
			off, bound := min(math.Abs(x-want), math.MaxFloat64), w.bound(want)
			t.add(i, x, want, off, bound, off > bound && !t.isRounded(i, x))
		}
	}
	return t.errors(), nil
}

// values are the elements as floats.
func (w *wanted) values() []float64 {
	if w.ints == nil {
		return w.floats
	}
	all := make([]float64, len(w.ints))
	for i, x := range w.ints {
		if all[i] = float64(x); w.arg.Type == array.U64 {
			all[i] = float64(uint64(x))
		}
	}
	return all
}

// differsFrom describes the first difference from another computation of the same elements; empty if
// they agree within the tolerance. Threads of numpy may add in another order each time.
func (w *wanted) differsFrom(other *wanted) string {
	first, bad := "", 0
	again := other.values()
	for i, x := range w.values() {
		y := again[i]
		if x == y || x != x && y != y || math.Abs(x-y) <= w.bound(x) {
			continue
		}
		if bad++; bad == 1 {
			first = fmt.Sprintf("returned %.9g and then %.9g for %s", x, y, w.element(i))
		}
	}
	if float64(bad) <= w.tolerance.BadFraction*float64(w.len()) {
		return ""
	}
	return first
}

// finite reports whether x is neither NaN nor an infinity.
func finite(x float64) bool { return math.Abs(x) <= math.MaxFloat64 }

// isRounded reports whether got is the right element as the output's type has it. A right element
// beyond the range of the type becomes infinite or the largest number.
func (w *wanted) isRounded(i int, got float64) bool {
	if w.floats == nil {
		return false
	}
	if w.rounded == nil {
		w.rounded = array.FromFloats(w.arg.Type, w.shape, w.floats).Floats()
	}
	return got == w.rounded[i]
}

// tally adds the errors of elements up.
type tally struct {
	*wanted
	e      oracle.Errors
	finite int // elements that are finite in the output and in the reference
	worst  int
	rank   float64 // of the worst element: its error beyond the tolerance, or its error if none is bad
	got    float64
	want   float64

	sum, gotGot, wantWant, gotWant float64
}

func newTally(w *wanted) *tally { return &tally{wanted: w, worst: -1} }

// addNonFinite adds an element that is NaN or infinite in the output or in the reference, but not
// the same in both. No tolerance covers it: that of an infinite element would be infinite.
func (t *tally) addNonFinite(i int, got, want float64) {
	if t.isRounded(i, got) {
		return
	}
	if t.e.NonFinite++; t.e.NonFinite == 1 {
		t.e.FirstNonFinite = &oracle.Place{Element: t.element(i)}
		t.e.FirstValues = fmt.Sprintf("got %.9g, want %.9g", got, want)
	}
}

// add adds an element with its error and tolerance, all finite. The worst element is the bad one
// with the largest error beyond its tolerance, or that with the largest error if none is bad.
func (t *tally) add(i int, got, want, off, tolerance float64, bad bool) {
	rank, first := off, t.worst < 0
	if bad {
		t.e.Bad++
		rank, first = off-tolerance, t.e.Bad == 1
	}
	if first || rank > t.rank && bad == (t.e.Bad > 0) {
		t.worst, t.rank, t.got, t.want = i, rank, got, want
	}
	t.finite++
	t.e.MaxErr = max(t.e.MaxErr, off)
	t.sum += off
	t.gotGot += got * got
	t.wantWant += want * want
	t.gotWant += got * want
}

// errors returns the errors of all elements.
func (t *tally) errors() oracle.Errors {
	e := t.e
	if t.worst >= 0 {
		e.Worst = oracle.Worst{Place: oracle.Place{Element: t.element(t.worst)}, Got: t.got, Want: t.want}
		e.MeanErr = min(t.sum/float64(t.finite), math.MaxFloat64)
	}
	e.Cosine = cosine(t.gotGot, t.wantWant, t.gotWant)
	e.Bad += e.NonFinite
	e.BadFraction = float64(e.Bad) / float64(t.len())
	return e
}

// cosine returns the cosine of two vectors from their dot products: 1 for two zero vectors, 0 if
// only one is zero or a product overflows.
func cosine(aa, bb, ab float64) float64 {
	if aa == 0 && bb == 0 {
		return 1
	}
	quotient := ab / (math.Sqrt(aa) * math.Sqrt(bb))
	if !(math.Abs(quotient) <= math.MaxFloat64) { // true for NaN too
		return 0
	}
	return min(1, max(-1, quotient))
}

// Compare measures the errors of the outputs of a launch.
func (r *reference) Compare(b problem.Build, outputs [][]byte) (problem.Result, error) {
	a, err := r.of(b)
	if err != nil {
		return problem.Result{}, err
	}
	next := 0
	return r.compare(a, func(w *wanted) (oracle.Errors, error) {
		if next == len(outputs) || len(outputs[next]) != w.len()*w.arg.Type.Bytes() {
			panic("BUG: the outputs of a launch are not those of its job")
		}
		next++
		return w.compare(outputs[next-1])
	})
}

// CompareValues measures the errors of the outputs of a peer.
func (r *reference) CompareValues(outputs map[string][]float64) (problem.Result, error) {
	a, err := r.answer(r.refs.defaults(r.instance.Shape))
	if err != nil {
		return problem.Result{}, err
	}
	for _, w := range a.want {
		if w != nil && len(outputs[w.arg.Name]) != w.len() {
			return problem.Result{}, fmt.Errorf("it has %d elements of %s; want %d", len(outputs[w.arg.Name]), w.arg.Name, w.len())
		}
	}
	return r.compare(a, func(w *wanted) (oracle.Errors, error) { return w.compareFloats(outputs[w.arg.Name]) })
}

// compare measures every output. The errors of the whole are those of the output with the largest
// share of bad elements, then with the largest error.
func (r *reference) compare(a *answer, measure func(w *wanted) (oracle.Errors, error)) (problem.Result, error) {
	var result problem.Result
	for _, w := range a.want {
		if w == nil {
			continue
		}
		e, err := measure(w)
		if err != nil {
			return problem.Result{}, r.refs.failure(err.Error(), "")
		}
		worst := result.Errors
		if result.Outputs == nil || e.BadFraction > worst.BadFraction || e.BadFraction == worst.BadFraction && e.MaxErr > worst.MaxErr {
			result.Errors = e
		}
		result.Outputs = append(result.Outputs, oracle.OutputErrors{Name: w.arg.Name, Errors: e})
	}
	return result, nil
}

// Judge limits the share of bad elements of each output, and allows none that is not finite where
// the right one is. A peer has no image and no variant.
func (r *reference) Judge(b problem.Build, result problem.Result, slack float64) (gate.Limits, []string) {
	limits := gate.Limits{Outputs: map[string]gate.OutputLimit{}}
	var wrong []string
	a, err := r.answer(r.refs.defaults(r.instance.Shape))
	if b.Image != nil {
		a, err = r.of(b)
	}
	if err != nil {
		return limits, []string{err.Error()}
	}
	for _, w := range a.want {
		if w == nil {
			continue
		}
		t := w.tolerance
		limits.Outputs[w.arg.Name] = gate.OutputLimit{Abs: t.Abs, Rel: t.Rel, BadFraction: t.BadFraction}
		limits.BadFraction = max(limits.BadFraction, t.BadFraction)
		for _, o := range result.Outputs {
			if o.Name == w.arg.Name && (o.BadFraction > t.BadFraction*slack || o.NonFinite > 0) {
				wrong = append(wrong, w.describe(o.Errors, slack))
			}
		}
	}
	return limits, wrong
}

// describe says what is wrong with an output.
func (w *wanted) describe(e oracle.Errors, slack float64) string {
	n := w.len()
	text := fmt.Sprintf("%s: %d of %d elements are bad (%d allowed)", w.arg.Name, e.Bad, n, int(w.tolerance.BadFraction*slack*float64(n)))
	if e.NonFinite > 0 {
		text += fmt.Sprintf(", %d of them not finite (0 allowed), the first %s: %s", e.NonFinite, e.FirstNonFinite, e.FirstValues)
	}
	if e.Bad > e.NonFinite {
		text += fmt.Sprintf(", the worst %s: %s, tolerance %.3g", e.Worst.Place, e.Worst.Values(), w.bound(e.Worst.Want))
	}
	if w.narrow != "" {
		text += fmt.Sprintf("; the reference returned %s, which has fewer bits than %s: compute it in float64", w.narrow, w.arg.Type)
	}
	if !w.tolerance.Given && w.arg.Type.Float() {
		text += fmt.Sprintf("; %s has no [tolerance]: the default is one rounding to %s (rel %.0e)", w.arg.Name, w.arg.Type, w.tolerance.Rel)
	}
	return text
}
