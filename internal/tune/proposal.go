package tune

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"attune/internal/spec"
)

// Measured is what a table of a selection is proposed from: the costs of several forms on several
// shapes, measured together.
type Measured struct {
	Selection *spec.Selection
	Shapes    []spec.Shape
	Holdout   []bool // shapes that only test the table
	Forms     []spec.Variant
	Costs     [][]float64 // of each form, on each shape; NaN or infinite where it cannot take the shape
}

// Proposal is a table for a selection, and how it compares with the present one.
type Proposal struct {
	Selection    string        `json:"selection"`
	Tolerance    float64       `json:"tolerance"`
	Choices      []TableChoice `json:"choices"`
	Forms        int           `json:"forms"`
	PresentForms int           `json:"present_forms"` // that the present table chooses for these shapes
	Fewest       bool          `json:"fewest"`        // no fewer forms are within the tolerance
	// Dropped are forms of the present table that take none of the shapes, and are not in the proposed one.
	Dropped []string        `json:"dropped"`
	Shapes  []ProposedShape `json:"shapes"`
	// Speedup is the geometric mean over the shapes of the present form's cost over the proposed one's;
	// nil if a table has no form for some shape.
	Speedup *float64 `json:"speedup"`
}

// TableChoice is one line of a proposed table.
type TableChoice struct {
	When    string `json:"when,omitempty"` // empty in the last line
	Variant string `json:"variant"`
	Why     string `json:"why"`
	Kept    bool   `json:"kept,omitempty"` // of the present table, for shapes that were not tuned
}

// ProposedShape is one shape under the present and the proposed table.
type ProposedShape struct {
	Shape    string   `json:"shape"`
	Holdout  bool     `json:"holdout"`
	Best     FormCost `json:"best"`
	Present  FormCost `json:"present"`
	Proposed FormCost `json:"proposed"`
	// Loss is the cost of the proposed form over the best, minus 1; nil if it cannot take the shape or
	// was not measured.
	Loss *float64 `json:"loss"`
}

// FormCost is a form and its cost on a shape, nil if it was not measured.
type FormCost struct {
	Variant string   `json:"variant"`
	Cost    *float64 `json:"cost"`
}

// Propose derives a table from the shapes that are not held out, and tests it on those that are.
func Propose(m Measured) (*Proposal, error) {
	tuned, costs := m.tuned()
	if len(tuned) == 0 {
		return nil, fmt.Errorf("%s: every shape is held out; none is left to derive a table from", m.Selection.Name)
	}
	for i, shape := range tuned {
		if !slices.ContainsFunc(costs, func(row []float64) bool { return usable(row[i]) }) {
			return nil, fmt.Errorf("%s: no form has a cost on %s", m.Selection.Name, m.Shapes[shape])
		}
	}
	cover, err := FewestForms(costs, Tolerance)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Selection.Name, err)
	}
	choices, err := m.table(tuned, costs, cover)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Selection.Name, err)
	}
	p := &Proposal{Selection: m.Selection.Name, Tolerance: Tolerance, Fewest: cover.Exact}
	var parsed []spec.Choice
	for _, c := range choices {
		parsed = append(parsed, c.Choice)
		p.Choices = append(p.Choices, TableChoice{c.When, c.Variant.String(), c.Why, c.kept})
	}
	table, err := m.Selection.WithChoices(parsed)
	if err != nil {
		return nil, err
	}
	if err := p.compare(m, table); err != nil {
		return nil, err
	}
	p.drop(m.Selection)
	return p, nil
}

// drop lists the forms that only shapes outside of the measurement need.
func (p *Proposal) drop(present *spec.Selection) {
	p.Dropped = []string{}
	for _, v := range present.Variants() {
		name := v.String()
		kept := slices.ContainsFunc(p.Choices, func(c TableChoice) bool { return c.Variant == name })
		taken := slices.ContainsFunc(p.Shapes, func(s ProposedShape) bool { return s.Present.Variant == name })
		if !kept && !taken {
			p.Dropped = append(p.Dropped, name)
		}
	}
}

// tuned returns the indices of the shapes that are not held out, and the forms' costs on them.
func (m *Measured) tuned() (tuned []int, costs [][]float64) {
	for i := range m.Shapes {
		if !m.Holdout[i] {
			tuned = append(tuned, i)
		}
	}
	for _, row := range m.Costs {
		var kept []float64
		for _, i := range tuned {
			kept = append(kept, row[i])
		}
		costs = append(costs, kept)
	}
	return tuned, costs
}

// tableLine is a line of a table under construction.
type tableLine struct {
	spec.Choice
	kept bool
}

// sizes are values of the axes that forms are built for, such as a head dim. It is empty if the forms
// take all shapes.
type sizes []int

// table derives the lines of all sizes by themselves, because a form is built for one. Sizes without
// a tuned shape keep the lines that they have. Those of the present table's last line come last
// again, so that other shapes get a form of the same sizes as before.
func (m *Measured) table(tuned []int, costs [][]float64, cover *Cover) ([]tableLine, error) {
	loss, err := losses(costs, Tolerance)
	if err != nil {
		return nil, err
	}
	var lines []tableLine
	axes, all := m.sizes(tuned)
	for _, of := range all {
		var own []int // positions in tuned
		for i, shape := range tuned {
			if slices.Equal(sizesOf(m.Shapes[shape], axes), of) {
				own = append(own, i)
			}
		}
		if own == nil {
			lines = append(lines, m.keptLines(axes, of)...)
			continue
		}
		derived, err := m.derive(own, tuned, loss, cover.Forms)
		if err != nil {
			return nil, err
		}
		for i := range derived {
			derived[i].When = of.condition(axes, derived[i].When)
		}
		lines = append(lines, derived...)
	}
	lines[len(lines)-1].When = ""
	return lines, nil
}

// words are the names in a condition.
var words = regexp.MustCompile(`[A-Za-z_]\w*`)

// derive returns the lines for some of the tuned shapes.
func (m *Measured) derive(own, tuned []int, loss [][]float64, forms []int) ([]tableLine, error) {
	used := map[string]bool{}
	for _, c := range m.Selection.Choices {
		for _, word := range words.FindAllString(c.When, -1) {
			used[word] = true
		}
	}
	var terms []term
	var examples []example
	for _, i := range own {
		names, values, axes, err := m.Selection.Terms(m.Shapes[tuned[i]])
		if err != nil {
			return nil, err
		}
		e := example{values: values}
		for _, form := range forms {
			e.loss = append(e.loss, loss[form][i])
		}
		examples = append(examples, e)
		terms = terms[:0]
		for j, name := range names {
			terms = append(terms, term{name, j < axes, used[name]})
		}
	}
	derived, err := deriveTable(terms, examples)
	if err != nil {
		return nil, err
	}
	var lines []tableLine
	for _, l := range derived {
		worst := 1.0
		var shapes []string
		for _, e := range l.takes {
			worst = max(worst, examples[e].loss[l.form])
			shapes = append(shapes, m.Shapes[tuned[own[e]]].String())
		}
		lines = append(lines, tableLine{Choice: spec.Choice{When: l.when, Variant: m.Forms[forms[l.form]], Why: reason(worst, shapes)}})
	}
	return lines, nil
}

// reason says why a form was chosen.
func reason(worst float64, shapes []string) string {
	text := "the best form measured on "
	if worst > 1 {
		text = fmt.Sprintf("at most %.1f %% over the best form measured on ", math.Ceil(1000*(worst-1)-1e-6)/10)
	}
	const most = 4
	if more := len(shapes) - most; more > 0 {
		return fmt.Sprintf("%s%s and %d more", text, strings.Join(shapes[:most], ", "), more)
	}
	return text + strings.Join(shapes, ", ")
}

// keptLines are the lines of the present table for sizes.
func (m *Measured) keptLines(axes []string, of sizes) []tableLine {
	var lines []tableLine
	for _, c := range m.Selection.Choices {
		if _, own := c.Variant.BuiltFor(); slices.Equal(own, of) {
			lines = append(lines, tableLine{spec.Choice{When: of.condition(axes, c.When), Variant: c.Variant, Why: c.Why}, true})
		}
	}
	return lines
}

// sizes returns the axes that the forms are built for, and the sizes of the table: those of the tuned
// shapes, and those that the present table has forms for.
func (m *Measured) sizes(tuned []int) (axes []string, all []sizes) {
	axes, _ = m.Forms[0].BuiltFor()
	add := func(of sizes) {
		if !slices.ContainsFunc(all, func(known sizes) bool { return slices.Equal(known, of) }) {
			all = append(all, of)
		}
	}
	for _, i := range tuned {
		add(sizesOf(m.Shapes[i], axes))
	}
	var last sizes
	for _, c := range m.Selection.Choices {
		if _, last = c.Variant.BuiltFor(); len(last) == len(axes) {
			add(last)
		}
	}
	slices.SortStableFunc(all, func(a, b sizes) int {
		return cmp.Or(yes(slices.Equal(a, last))-yes(slices.Equal(b, last)), slices.Compare(a, b))
	})
	return axes, all
}

// sizesOf are those of a shape.
func sizesOf(shape spec.Shape, axes []string) sizes {
	var of sizes
	names, values := shape.Axes()
	for _, axis := range axes {
		of = append(of, values[slices.Index(names, axis)]) // the kernel's shapes have the axes of its knobs
	}
	return of
}

// condition restricts a condition to sizes.
func (of sizes) condition(axes []string, when string) string {
	var all []string
	for i, axis := range axes {
		all = append(all, fmt.Sprintf("%s == %d", axis, of[i]))
	}
	own := strings.Join(all, " and ")
	either := slices.Contains(strings.Fields(when), "or")
	switch {
	case own == "" || when == own || strings.HasPrefix(when, own+" and ") && !either:
		return when
	case when == "":
		return own
	case either:
		return own + " and (" + when + ")"
	}
	return own + " and " + when
}

// compare fills in the shapes under both tables.
func (p *Proposal) compare(m Measured, table *spec.Selection) error {
	used := map[string]bool{}
	logs, known := 0.0, true
	for i, shape := range m.Shapes {
		present, err := m.Selection.Choose(shape)
		if err != nil {
			return err
		}
		proposed, err := table.Choose(shape)
		if err != nil {
			return err
		}
		row := ProposedShape{
			Shape: shape.String(), Holdout: m.Holdout[i],
			Present: m.cost(present.Variant, i), Proposed: m.cost(proposed.Variant, i), Best: m.best(i),
		}
		if row.Proposed.Cost != nil {
			row.Loss = new(*row.Proposed.Cost / *row.Best.Cost - 1)
		}
		if row.Proposed.Cost == nil || row.Present.Cost == nil {
			known = false
		} else {
			logs += math.Log(*row.Present.Cost / *row.Proposed.Cost)
		}
		used[row.Present.Variant] = true
		p.Shapes = append(p.Shapes, row)
	}
	p.PresentForms = len(used)
	p.Forms = len(p.proposedForms())
	if known {
		p.Speedup = new(math.Exp(logs / float64(len(p.Shapes))))
	}
	return nil
}

func (p *Proposal) proposedForms() map[string]bool {
	used := map[string]bool{}
	for _, row := range p.Shapes {
		used[row.Proposed.Variant] = true
	}
	return used
}

// cost returns the measured cost of a variant on a shape.
func (m *Measured) cost(v spec.Variant, shape int) FormCost {
	c := FormCost{Variant: v.String()}
	for form, other := range m.Forms {
		if other.String() == c.Variant && usable(m.Costs[form][shape]) {
			c.Cost = new(m.Costs[form][shape])
		}
	}
	return c
}

// best returns the best form of a shape. A shape that no form takes has none.
func (m *Measured) best(shape int) FormCost {
	var best FormCost
	for form, v := range m.Forms {
		if cost := m.Costs[form][shape]; usable(cost) && (best.Cost == nil || cost < *best.Cost) {
			best = FormCost{v.String(), new(cost)}
		}
	}
	return best
}

// WorstLoss returns the shape that loses most against its best form, among those that are held out or
// among the others; nil if there is none. A shape whose form cannot take it is the worst.
func (p *Proposal) WorstLoss(holdout bool) *ProposedShape {
	var worst *ProposedShape
	for i := range p.Shapes {
		row := &p.Shapes[i]
		if row.Holdout == holdout && (worst == nil || row.lossOr() > worst.lossOr()) {
			worst = row
		}
	}
	return worst
}

func (s *ProposedShape) lossOr() float64 {
	if s.Loss == nil {
		return math.Inf(1)
	}
	return *s.Loss
}

// WorstChange returns the shape whose cost changes least to the better, or most to the worse, from
// the present table to the proposed one; nil if no shape has both costs.
func (p *Proposal) WorstChange() *ProposedShape {
	var worst *ProposedShape
	change := func(s *ProposedShape) float64 { return *s.Proposed.Cost / *s.Present.Cost }
	for i := range p.Shapes {
		row := &p.Shapes[i]
		if row.Present.Cost != nil && row.Proposed.Cost != nil && (worst == nil || change(row) > change(worst)) {
			worst = row
		}
	}
	return worst
}

// Holds reports whether the table is within the tolerance on every shape that was held out.
func (p *Proposal) Holds() bool {
	worst := p.WorstLoss(true)
	return worst == nil || worst.lossOr() <= p.Tolerance
}

// TOML returns the choices as kernel.toml has them.
func (p *Proposal) TOML() string {
	var out strings.Builder
	for i, c := range p.Choices {
		if i > 0 {
			out.WriteString("\n")
		}
		out.WriteString("[[selection.choice]]\n")
		if c.When != "" {
			fmt.Fprintf(&out, "when = %s\n", strconv.Quote(c.When))
		}
		fmt.Fprintf(&out, "variant = %s\nwhy = %s\n", strconv.Quote(c.Variant), strconv.Quote(c.Why))
	}
	return out.String()
}

// Holdout marks every nth of some shapes as held out, none if n is 0. At least one is left.
func Holdout(shapes, every int) []bool {
	held := make([]bool, shapes)
	for i := every - 1; every > 1 && i < shapes; i += every {
		held[i] = true
	}
	return held
}
