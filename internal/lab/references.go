package lab

import (
	"context"
	"fmt"
	"maps"
	"math"

	"attune/internal/oracle"
	"attune/internal/tensor"
)

// references keeps inputs and right answers of a command, because every variant is held against the same ones.
type references struct {
	kept  map[problem]*reference
	drawn map[problem]*tensor.Inputs // by the problem without a mask, which has the same
	// most is how many multiply-adds an answer may take and still be whole. Whoever only times wants to know that the answers are right, and cannot wait
	// minutes for it; whoever judges waits.
	most float64
}

// problem is one thing to answer.
type problem struct {
	shape  tensor.Shape
	seed   uint64
	inputs tensor.Distribution
}

func (p problem) String() string {
	text := fmt.Sprintf("%s seed %d", p.shape, p.seed)
	if p.inputs != tensor.Normal {
		text += " " + p.inputs.String()
	}
	return text
}

// problems is what a request asks: every shape and seed on normal inputs, and every shape once on inputs with outliers and once on inputs whose
// scores lie far apart. Where a kernel must mask keys, inputs whose last key counts most come as well, and where its last tile of keys is not whole,
// those of which a key that is not there would count most.
func (r Request) problems() []problem {
	var all []problem
	for _, shape := range r.Shapes {
		for _, seed := range r.Seeds {
			all = append(all, problem{shape, seed, tensor.Normal})
		}
		all = append(all, problem{shape, r.Seeds[0], tensor.Outliers}, problem{shape, r.Seeds[0], tensor.Peaked})
		const tile = 64 // of keys; kernels with larger ones mask more
		if shape.Causal || shape.SeqK%tile != 0 {
			all = append(all, problem{shape, r.Seeds[0], tensor.Rising})
		}
		if shape.SeqK%tile != 0 {
			all = append(all, problem{shape, r.Seeds[0], tensor.Low})
		}
	}
	return all
}

type reference struct {
	inputs *tensor.Inputs
	answer *oracle.Reference
}

// newReferences has all answers whole.
func newReferences() *references { return newSampledReferences(math.Inf(1)) }

// newSampledReferences has those that take more multiply-adds on a sample of their rows.
func newSampledReferences(most float64) *references {
	return &references{map[problem]*reference{}, map[problem]*tensor.Inputs{}, most}
}

// forget lets go of all but what the problem has, as far as it is there.
func (r *references) forget(but problem) {
	maps.DeleteFunc(r.kept, func(p problem, _ *reference) bool { return p != but })
	maps.DeleteFunc(r.drawn, func(p problem, _ *tensor.Inputs) bool { return p != but.unmasked() })
}

func (p problem) unmasked() problem {
	p.shape.Causal = false
	return p
}

// inputs draws a problem's inputs, unless they are there already.
func (r *references) inputs(p problem) *tensor.Inputs {
	key := p.unmasked()
	if r.drawn[key] == nil {
		r.drawn[key] = tensor.Draw(key.shape, key.seed, tensor.Options{Distribution: key.inputs})
	}
	return r.drawn[key].Masked(p.shape.Causal)
}

func (r *references) get(ctx context.Context, key problem) (*reference, error) {
	if known := r.kept[key]; known != nil {
		return known, nil
	}
	inputs := r.inputs(key)
	answer, err := oracle.Compute(ctx, inputs, oracle.Sample(key.shape, key.seed, r.most))
	if err != nil {
		return nil, err
	}
	r.kept[key] = &reference{inputs, answer}
	return r.kept[key], nil
}

// checked says how much of an answer is looked at.
func (r *reference) checked() oracle.Checked { return r.answer.Rows.Checked(r.inputs.Shape) }
