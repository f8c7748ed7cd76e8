package declared

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"attune/internal/array"
	"attune/internal/problem"
)

// readFiles reads the right outputs of an instance from <shape>-<seed>.safetensors.
func (r *references) readFiles(i problem.Instance, arrays []*array.Array) (map[string]*array.Array, error) {
	name, err := r.find(i, path.Join(r.Reference.Path, "{shape}-{seed}.safetensors"))
	if err != nil {
		return nil, &problem.ReferenceError{Why: err.Error(), Do: "save the outputs by name, or leave the shape or the seed out", Err: err}
	}
	tensors := map[string]*array.Array{}
	for n, a := range r.Args {
		if !isOutput(a) || arrays[n] == nil {
			continue
		}
		right, err := array.ReadFile(r.folder, name, a.Name, arrays[n].Shape)
		if other, ok := errors.AsType[*array.ShapeError](err); ok {
			return nil, &problem.ReferenceError{Why: name + ": " + notDeclared(a.Name, other.Has, arrays[n].Shape)}
		}
		if err != nil {
			return nil, &problem.ReferenceError{Why: err.Error()}
		}
		if dtype := arrays[n].Type; dtype.Bytes() == 1 && dtype.Float() && right.Type == array.U8 { // codes
			if right, err = right.Convert(dtype); err != nil {
				return nil, &problem.ReferenceError{Why: fmt.Sprintf("%s: %q: %v", name, a.Name, err)}
			}
		}
		if !slices.Equal(right.Shape, arrays[n].Shape) {
			return nil, &problem.ReferenceError{Why: name + ": " + notDeclared(a.Name, right.Shape, arrays[n].Shape)}
		}
		tensors[a.Name] = right
	}
	r.hash(name)
	return tensors, nil
}
