package lab

import (
	"attune/internal/spec"
	"attune/internal/tensor"
)

// AttentionShapes converts the shapes of an attention kernel, for requests that hold these only. It
// passes an error through, so that it can wrap a call of Kernel.Shapes.
func AttentionShapes(shapes []spec.Shape, err error) ([]tensor.Shape, error) {
	if err != nil {
		return nil, err
	}
	all := make([]tensor.Shape, len(shapes))
	for i, shape := range shapes {
		all[i] = shape.(tensor.Shape)
	}
	return all, nil
}
