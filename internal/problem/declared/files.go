package declared

import (
	"bytes"
	"fmt"
	"io/fs"
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
	text, err := fs.ReadFile(r.folder, name)
	if err != nil {
		return nil, &problem.ReferenceError{Why: err.Error()}
	}
	tensors, err := array.ReadSafetensors(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return nil, &problem.ReferenceError{Why: fmt.Sprintf("%s: %v", name, err)}
	}
	for n, a := range r.Args {
		if !isOutput(a) || arrays[n] == nil {
			continue
		}
		right := tensors[a.Name]
		if right == nil {
			return nil, &problem.ReferenceError{Why: fmt.Sprintf("%s: it has no tensor %q", name, a.Name)}
		}
		if a.Type.Bytes() == 1 && a.Type.Float() && right.Type == array.U8 { // codes
			if right, err = right.Convert(a.Type); err != nil {
				return nil, &problem.ReferenceError{Why: fmt.Sprintf("%s: %q: %v", name, a.Name, err)}
			}
			tensors[a.Name] = right
		}
		if !slices.Equal(right.Shape, arrays[n].Shape) {
			return nil, &problem.ReferenceError{Why: name + ": " + notDeclared(a.Name, right.Shape, arrays[n].Shape)}
		}
	}
	r.hash(name)
	return tensors, nil
}
