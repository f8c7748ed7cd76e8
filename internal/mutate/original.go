package mutate

import "context"

// Assemble returns the hash of the machine code that the compiler makes of PTX.
type Assemble func(ctx context.Context, ptx []byte) (string, error)

// Original is an unmodified kernel with which mutants are compared.
type Original struct {
	assemble             Assemble
	entry                string
	params               map[string]Range
	code, simplifiedCode string // hashes of its machine code, as is and simplified
}

// NewOriginal assembles a kernel. params bounds its 32-bit parameters on every launch; parameters
// without an entry may have any value.
func NewOriginal(ctx context.Context, assemble Assemble, text []byte, entry string, params map[string]Range) (*Original, error) {
	o := &Original{assemble: assemble, entry: entry, params: params}
	var err error
	if o.code, err = assemble(ctx, text); err != nil {
		return nil, err
	}
	if o.simplifiedCode, err = o.simplified(ctx, text); err != nil {
		return nil, err
	}
	return o, nil
}

// IsEquivalent reports whether a mutant is equivalent: the compiler makes the same machine code of mutant and
// original, either as they are or simplified with the ranges. It is false for a nil Original.
func (o *Original) IsEquivalent(ctx context.Context, text []byte) bool {
	if o == nil {
		return false
	}
	if hash, err := o.assemble(ctx, text); err != nil || hash == o.code {
		return err == nil
	}
	hash, err := o.simplified(ctx, text)
	return err == nil && hash == o.simplifiedCode
}

func (o *Original) simplified(ctx context.Context, text []byte) (string, error) {
	simple, err := simplify(text, o.entry, o.params)
	if err != nil {
		return "", err
	}
	return o.assemble(ctx, simple)
}
