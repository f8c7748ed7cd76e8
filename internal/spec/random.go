package spec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"attune/internal/tensor"
)

// What the times on random problems are compared with.
const (
	AgainstPeers = "peers" // the fastest peer
	AgainstCopy  = "copy"  // the bytes of the problem at the device's measured copy rate, plus an overhead
)

// Random says how random problems of a kernel are drawn, and what their times are compared with.
type Random struct {
	Against    string  // AgainstPeers or AgainstCopy
	OverheadUS float64 // of AgainstCopy: what a launch takes besides the copy
	Required   float64 // ratio to it from which on a problem counts as fast enough

	line  int
	draws []draw
	where []condition
	axes  []axisSource // of the axes of the kernel
	shape func(axes []int) (Shape, error)
}

// axisSource is where the value of an axis comes from: a draw, or a default where that is below 0.
type axisSource struct{ draw, value int }

// draw is a name with the values that it takes: an axis, or a help for the expressions below it. It
// has choices, an expression over the names above, or limits.
type draw struct {
	name      string
	choices   []int
	weights   []int // of the choices; nil if all are equal
	value     *expression
	text      string // of the value
	line      int
	low, high int
	multiple  int  // of which the value is one; at least 1
	log       bool // the logarithm is uniform, not the value
}

// condition is a rule that every drawn problem obeys.
type condition struct {
	expression
	text string
	line int
}

// Drawn are problems that were drawn from one seed.
type Drawn struct {
	Shapes  []Shape
	Refused int   // problems that the caller did not accept
	Why     error // of the first of them
}

const (
	// randomStream is the stream of random problems among those of a seed. Those of tensors and
	// arguments have small numbers.
	randomStream = 1 << 20
	// maxDraws is how many draws in a row may give no problem.
	maxDraws = 10_000
)

// Draw draws different problems. Draw i of a seed has its own generator, and its values come in the
// order of the file, so that a smaller count gives the first problems of a larger one. Every machine
// draws the same. A problem for which accept returns an error is counted and left out.
func (r *Random) Draw(count int, seed uint64, accept func(Shape) error) (*Drawn, error) {
	drawn, known, misses := &Drawn{}, map[Shape]bool{}, misses{}
	for i, last := 0, 0; len(drawn.Shapes) < count; i++ {
		if i-last >= maxDraws {
			return nil, r.exhausted(len(drawn.Shapes), misses)
		}
		shape, why, err := r.draw(tensor.Stream(seed, randomStream, i))
		switch {
		case err != nil:
			return nil, err
		case why != "":
		case known[shape]:
			why = "were drawn before"
		default:
			known[shape] = true
			if err := accept(shape); err != nil {
				drawn.Refused++
				if drawn.Why == nil {
					drawn.Why = err
				}
				why = fmt.Sprintf("are refused, such as: %v", drawn.Why)
				break
			}
			drawn.Shapes = append(drawn.Shapes, shape)
			last, misses = i+1, nil
			continue
		}
		misses = misses.with(why)
	}
	return drawn, nil
}

// draw draws one problem, or says why the draw gives none.
func (r *Random) draw(random *rand.PCG) (Shape, string, error) {
	values := make([]int, len(r.draws))
	for i := range r.draws {
		var err error
		if values[i], err = r.draws[i].take(random, values); err != nil {
			d := r.draws[i]
			return nil, "", problem{d.line, fmt.Sprintf("%q in [random.axes] (%q) for %s: %v", d.name, clip(d.text), r.text(values[:i]), err)}
		}
	}
	for _, c := range r.where {
		switch holds, err := c.Holds(values); {
		case err != nil:
			return nil, "", problem{c.line, fmt.Sprintf("%q in [random] (%q) for %s: %v", "where", clip(c.text), r.text(values), err)}
		case !holds:
			return nil, fmt.Sprintf("break the rule %q", clip(c.text)), nil
		}
	}
	axes := make([]int, len(r.axes))
	for i, from := range r.axes {
		if axes[i] = from.value; from.draw >= 0 {
			axes[i] = values[from.draw]
		}
	}
	shape, err := r.shape(axes)
	if err != nil {
		return nil, fmt.Sprintf("are no shape, such as: %v", err), nil
	}
	return shape, "", nil
}

// text lists values by name.
func (r *Random) text(values []int) string {
	names := make([]string, len(values))
	for i := range values {
		names[i] = r.draws[i].name
	}
	return newAxes(names, values).String()
}

// take draws a value. An expression sees the values before it.
func (d *draw) take(random *rand.PCG, values []int) (int, error) {
	switch {
	case d.value != nil:
		return d.value.number(values)
	case d.choices != nil:
		return d.choose(tensor.UniformFloat(random)), nil
	}
	value := 0
	if u := tensor.UniformFloat(random); d.log {
		value = logUniform(u, d.low, d.high)
	} else {
		value = d.low + int(u*float64(d.high-d.low+1))
	}
	return max(value/d.multiple*d.multiple, roundUp(d.low, d.multiple)), nil
}

// choose picks a choice by a number between 0 and 1.
func (d *draw) choose(u float64) int {
	if d.weights == nil {
		return d.choices[int(u*float64(len(d.choices)))]
	}
	total := 0
	for _, w := range d.weights {
		total += w
	}
	at := int(u * float64(total))
	for i, w := range d.weights {
		if at -= w; at < 0 {
			return d.choices[i]
		}
	}
	return d.choices[len(d.choices)-1] // u is below 1
}

// logUniform rounds a number whose logarithm is uniform between those of low and high. It compares
// logarithms instead of computing an exponential, of which machines differ in the last bit.
func logUniform(u float64, low, high int) int {
	from, to := tensor.Logarithm(float64(low)), tensor.Logarithm(float64(high))
	at := from + float64(u*(to-from))
	for low < high {
		if middle := low + (high-low)/2; tensor.Logarithm(float64(middle)+0.5) > at {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// roundUp is the first multiple that is not below n.
func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// misses counts why draws gave no problem, in the order of their first appearance.
type misses []miss

type miss struct {
	why   string
	count int
}

// with adds one draw to the count of its reason. Reasons that differ only in the shape they quote count
// as one.
func (m misses) with(why string) misses {
	kind, _, _ := strings.Cut(why, ", such as")
	if i := slices.IndexFunc(m, func(o miss) bool { return strings.HasPrefix(o.why, kind) }); i >= 0 {
		m[i].count++
		return m
	}
	return append(m, miss{why, 1})
}

// exhausted is the error of ranges that have fewer problems than are wanted.
func (r *Random) exhausted(found int, all misses) error {
	slices.SortStableFunc(all, func(a, b miss) int { return b.count - a.count })
	var reasons []string
	for _, m := range all {
		reasons = append(reasons, fmt.Sprintf("%d %s", m.count, m.why))
	}
	what, remedy := "no problem", "widen the ranges or loosen the rules"
	if found > 0 {
		what, remedy = fmt.Sprintf("no problem after the first %d", found), fmt.Sprintf("ask for at most %d, or widen the ranges", found)
	}
	return problem{r.line, fmt.Sprintf("[random] has %s: of %d draws %s; %s", what, maxDraws, strings.Join(reasons, ", "), remedy)}
}

// attentionAxes are the names of [random.axes] for attention. Heads are those of one sequence, as in
// BxHxSxD.
var attentionAxes = []string{"batch", "heads", "kv_heads", "queries", "keys", "head_dim", "causal"}

// attentionShape makes a shape of attention of the values of its axes.
func attentionShape(axes []int) (Shape, error) {
	text := fmt.Sprintf("%dx%dx%dx%d:kvheads=%d:kv=%d", axes[0], axes[1], axes[3], axes[5], axes[2], axes[4])
	if axes[6] != 0 {
		text += ":causal"
	}
	return tensor.ParseShape(text)
}

// shape makes a shape of a declared kernel of the values of its axes.
func (d *Declaration) shape(axes []int) (Shape, error) {
	for i, value := range axes {
		if value < 0 || value > maxAxis {
			return nil, fmt.Errorf("%s is %d; want 0 to %d", d.Axes[i], value, maxAxis)
		}
	}
	return newAxes(d.Axes, axes), nil
}

// ErrNoRandom is the error of a kernel without ranges to draw problems from.
var ErrNoRandom = errors.New(File + " has no [random] with the ranges of its axes, so no problem can be drawn; " +
	"docs/kernel-toml.md#random-problems explains the section")
