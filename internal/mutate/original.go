package mutate

import "context"

// Assemble gives the hash of the machine code that the compiler makes of PTX.
type Assemble func(ctx context.Context, ptx []byte) (string, error)

// Original is a kernel as it was before it was broken, for mutants to be held against.
type Original struct {
	assemble     Assemble
	entry        string
	params       map[string]Range
	code, simple string // hashes of its machine code, and of what is left of it within its ranges
}

// NewOriginal assembles a kernel. Its 32-bit parameters have the ranges that every launch keeps; those that are not named may have any value.
func NewOriginal(ctx context.Context, assemble Assemble, text []byte, entry string, params map[string]Range) (*Original, error) {
	o := &Original{assemble: assemble, entry: entry, params: params}
	var err error
	if o.code, err = assemble(ctx, text); err != nil {
		return nil, err
	}
	if o.simple, err = o.simplified(ctx, text); err != nil {
		return nil, err
	}
	return o, nil
}

// Is says whether a mutant is shown to be the same: the compiler makes the same machine code of both as they are, or of both within their ranges.
func (o *Original) Is(ctx context.Context, text []byte) bool {
	if o == nil {
		return false
	}
	if hash, err := o.assemble(ctx, text); err != nil || hash == o.code {
		return err == nil
	}
	hash, err := o.simplified(ctx, text)
	return err == nil && hash == o.simple
}

func (o *Original) simplified(ctx context.Context, text []byte) (string, error) {
	simple, err := simplify(text, o.entry, o.params)
	if err != nil {
		return "", err
	}
	return o.assemble(ctx, simple)
}
