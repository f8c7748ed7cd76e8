package accuracy

import (
	"context"
	"fmt"

	"attune/internal/oracle"
	"attune/internal/tensor"
)

// Answerer computes attention over quantised inputs, and gives these rows of it: [row, dim].
type Answerer struct {
	Name   string
	Answer func(ctx context.Context, in *tensor.Inputs, rows oracle.Rows) ([]float64, error)
}

// Request is what to measure: every recipe on every kind of inputs of every shape, the seeds taken together.
type Request struct {
	Inputs  []tensor.Distribution
	Shapes  []tensor.Shape
	Seeds   []uint64
	Recipes []tensor.Recipe
	// MostWork is how many multiply-adds a right answer may take before all errors are those of a sample of the query rows; usually oracle.MostWork.
	MostWork float64
}

// Row is the error of one answerer with one recipe on one shape, over all seeds.
type Row struct {
	Variant        string `json:"variant"`
	Inputs         string `json:"inputs"`
	Recipe         string `json:"recipe"`
	Shape          string `json:"shape"`
	oracle.Checked        // of each seed

	RecipeError Errors `json:"recipe_error"` // against the inputs before they were quantised
	KernelError Errors `json:"kernel_error"` // against the inputs as the kernel gets them
	BF16Error   Errors `json:"bf16_error"`   // of BF16 attention on the host, against the inputs as they were
}

// Watcher is told what is being done, so many steps of so many being finished.
type Watcher func(doing string, done, total int)

// Measure gives the rows of one kind of inputs after the other to done: by answerer, recipe and shape, in the order
// of the request.
func Measure(ctx context.Context, r Request, answerers []Answerer, watch Watcher, done func([]Row)) error {
	total := len(r.Inputs) * len(r.Shapes) * len(r.Seeds) * len(r.Recipes) * len(answerers)
	answered := 0
	tell := func(doing string) { watch(doing, answered, total) }
	for _, inputs := range r.Inputs {
		t := newTable(r, answerers)
		for s, shape := range r.Shapes {
			for _, seed := range r.Seeds {
				p := &problem{inputs: tensor.Draw(shape, seed, tensor.Options{Distribution: inputs}), rows: oracle.Sample(shape, seed, r.MostWork)}
				t.checked[s] = p.rows.Checked(shape)
				if err := t.measure(ctx, p, s, tell, &answered); err != nil {
					return err
				}
			}
		}
		done(t.rows(inputs))
	}
	return nil
}

// measure adds one problem, which is of shape number s, with all recipes and answerers to the table.
func (t *table) measure(ctx context.Context, p *problem, s int, tell func(string), answered *int) error {
	tell("float64 and BF16 of " + p.String())
	if err := p.solve(ctx); err != nil {
		return err
	}
	dims := p.inputs.Shape.HeadDim
	t.bf16[s].add(p.bf16, p.want, dims)
	for i, recipe := range t.request.Recipes {
		tell(fmt.Sprintf("float64 of %s %s", p, recipe))
		given, quantized, err := p.quantize(ctx, recipe)
		if err != nil {
			return err
		}
		for j, a := range t.answerers {
			tell(fmt.Sprintf("%s: %s %s", a.Name, p, recipe))
			got, err := a.Answer(ctx, given, p.rows)
			if err != nil {
				return err
			}
			t.cells[j][i][s].recipe.add(got, p.want, dims)
			t.cells[j][i][s].kernel.add(got, quantized, dims)
			*answered++
		}
	}
	return nil
}

// problem is one set of inputs, with what every recipe on it is held against.
type problem struct {
	inputs *tensor.Inputs
	rows   oracle.Rows // that are looked at
	want   []float64
	bf16   []float64
}

func (p *problem) String() string {
	return fmt.Sprintf("%s %s seed %d", p.inputs.Options.Distribution, p.inputs.Shape, p.inputs.Seed)
}

// solve computes the right answer to the inputs as they are, and BF16's.
func (p *problem) solve(ctx context.Context) (err error) {
	if p.want, err = oracle.Original(ctx, p.inputs, p.rows); err != nil {
		return err
	}
	p.bf16, err = BF16(ctx, p.inputs, p.rows)
	return err
}

// quantize gives the inputs by a recipe, and the right answer to them.
func (p *problem) quantize(ctx context.Context, recipe tensor.Recipe) (*tensor.Inputs, []float64, error) {
	given := recipe.Apply(p.inputs)
	quantized, err := oracle.Quantized(ctx, given, p.rows)
	return given, quantized, err
}

// table holds the tallies of one kind of inputs.
type table struct {
	request   Request
	answerers []Answerer
	checked   []oracle.Checked // by shape
	bf16      []tally          // by shape
	cells     [][][]cell       // by answerer, recipe, shape
}

type cell struct{ recipe, kernel tally }

func newTable(r Request, answerers []Answerer) *table {
	t := &table{request: r, answerers: answerers, checked: make([]oracle.Checked, len(r.Shapes)), bf16: make([]tally, len(r.Shapes))}
	for range answerers {
		byRecipe := make([][]cell, len(r.Recipes))
		for i := range byRecipe {
			byRecipe[i] = make([]cell, len(r.Shapes))
		}
		t.cells = append(t.cells, byRecipe)
	}
	return t
}

func (t *table) rows(inputs tensor.Distribution) []Row {
	var rows []Row
	for j, a := range t.answerers {
		for i, recipe := range t.request.Recipes {
			for s, shape := range t.request.Shapes {
				c := &t.cells[j][i][s]
				rows = append(rows, Row{
					Variant: a.Name, Inputs: inputs.String(), Recipe: recipe.String(), Shape: shape.String(), Checked: t.checked[s],
					RecipeError: c.recipe.errors(), KernelError: c.kernel.errors(), BF16Error: t.bf16[s].errors(),
				})
			}
		}
	}
	return rows
}
