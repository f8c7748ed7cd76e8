package accuracy

import (
	"context"
	"fmt"

	"attune/internal/oracle"
	"attune/internal/tensor"
)

// Implementation is an implementation of attention. Answer computes the given rows over quantised inputs:
// [row, dim].
type Implementation struct {
	Name    string
	Compute func(ctx context.Context, in *tensor.Inputs, rows oracle.Rows) ([]float64, error)
}

// Request selects what to measure: every recipe on every distribution and shape. The errors of all
// seeds are accumulated.
type Request struct {
	Inputs  []tensor.Distribution
	Shapes  []tensor.Shape
	Seeds   []uint64
	Recipes []tensor.Recipe
	// MaxWork is the number of multiply-adds of a reference above which the errors cover only a
	// sample of the query rows; usually oracle.MaxWork.
	MaxWork float64
	// SampleSeed picks the rows of a sample. It is an oracle.RandomSeed unless a study is repeated.
	SampleSeed uint64
}

// Row holds the errors of one implementation with one recipe on one shape, over all seeds.
type Row struct {
	Variant         string `json:"variant"`
	Inputs          string `json:"inputs"`
	Recipe          string `json:"recipe"`
	Shape           string `json:"shape"`
	oracle.Coverage        // for each seed

	RecipeError Errors `json:"recipe_error"` // against attention over the original values
	KernelError Errors `json:"kernel_error"` // against attention over the quantised inputs
	BF16Error   Errors `json:"bf16_error"`   // of BF16 on the host, against the original values
}

// Progress is called before each step with a description of it and the number of outputs so far.
type Progress func(step string, done, total int)

// Measure calls done with the rows of each distribution, ordered by implementation, recipe and
// shape as in the request.
func Measure(ctx context.Context, r Request, implementations []Implementation, progress Progress, done func([]Row)) error {
	total := len(r.Inputs) * len(r.Shapes) * len(r.Seeds) * len(r.Recipes) * len(implementations)
	computed := 0
	report := func(step string) { progress(step, computed, total) }
	for _, inputs := range r.Inputs {
		t := newTable(r, implementations)
		for s, shape := range r.Shapes {
			for _, seed := range r.Seeds {
				p := &problem{
					inputs: tensor.Draw(shape, seed, tensor.Options{Distribution: inputs}),
					rows:   oracle.Sample(shape, r.SampleSeed, r.MaxWork),
				}
				t.checked[s] = p.rows.Coverage(shape)
				if err := t.measure(ctx, p, s, report, &computed); err != nil {
					return err
				}
			}
		}
		done(t.rows(inputs))
	}
	return nil
}

// measure adds a problem of the s-th shape, with all recipes and implementations, to the table.
func (t *table) measure(ctx context.Context, p *problem, s int, report func(string), computed *int) error {
	report("float64 and BF16 of " + p.String())
	if err := p.solve(ctx); err != nil {
		return err
	}
	dims := p.inputs.Shape.HeadDim
	t.bf16[s].add(p.bf16, p.want, dims)
	for i, recipe := range t.request.Recipes {
		report(fmt.Sprintf("float64 of %s %s", p, recipe))
		inputs, reference, err := p.quantize(ctx, recipe)
		if err != nil {
			return err
		}
		for j, a := range t.implementations {
			report(fmt.Sprintf("%s: %s %s", a.Name, p, recipe))
			got, err := a.Compute(ctx, inputs, p.rows)
			if err != nil {
				return err
			}
			t.cells[j][i][s].recipe.add(got, p.want, dims)
			t.cells[j][i][s].kernel.add(got, reference, dims)
			*computed++
		}
	}
	return nil
}

// problem is one set of inputs with the references that all recipes share.
type problem struct {
	inputs *tensor.Inputs
	rows   oracle.Rows // the rows that are compared
	want   []float64   // attention over the original values
	bf16   []float64   // the same in BF16
}

func (p *problem) String() string {
	return fmt.Sprintf("%s %s seed %d", p.inputs.Options.Distribution, p.inputs.Shape, p.inputs.Seed)
}

// solve computes attention over the original values, in float64 and in BF16.
func (p *problem) solve(ctx context.Context) (err error) {
	if p.want, err = oracle.Original(ctx, p.inputs, p.rows); err != nil {
		return err
	}
	p.bf16, err = BF16(ctx, p.inputs, p.rows)
	return err
}

// quantize returns the inputs quantised by a recipe, and attention over them in float64.
func (p *problem) quantize(ctx context.Context, recipe tensor.Recipe) (*tensor.Inputs, []float64, error) {
	inputs := recipe.Apply(p.inputs)
	reference, err := oracle.Quantized(ctx, inputs, p.rows)
	return inputs, reference, err
}

// table holds the tallies of one distribution.
type table struct {
	request         Request
	implementations []Implementation
	checked         []oracle.Coverage // by shape
	bf16            []tally           // by shape
	cells           [][][]cell        // by implementation, recipe, shape
}

type cell struct{ recipe, kernel tally }

func newTable(r Request, implementations []Implementation) *table {
	t := &table{
		request: r, implementations: implementations,
		checked: make([]oracle.Coverage, len(r.Shapes)), bf16: make([]tally, len(r.Shapes)),
	}
	for range implementations {
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
	for j, a := range t.implementations {
		for i, recipe := range t.request.Recipes {
			for s, shape := range t.request.Shapes {
				c := &t.cells[j][i][s]
				rows = append(rows, Row{
					Variant: a.Name, Inputs: inputs.String(), Recipe: recipe.String(), Shape: shape.String(), Coverage: t.checked[s],
					RecipeError: c.recipe.errors(), KernelError: c.kernel.errors(), BF16Error: t.bf16[s].errors(),
				})
			}
		}
	}
	return rows
}
