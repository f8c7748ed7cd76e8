package form

import (
	"errors"
	"io/fs"

	"attune/internal/device"
)

// PortableTable has the forms of portable kernels for a device of any architecture from PortableArch on.
// It chooses by the libraries' rule, whatever selection was measured there.
func PortableTable(portable []fs.FS, facts device.Facts) (*Table, error) {
	t := &Table{facts: facts, arch: PortableArch}
	for _, folder := range portable {
		forms, err := Declared(folder, PortableArch)
		if err != nil {
			return nil, err
		}
		t.declared = append(t.declared, forms...)
	}
	return t, nil
}

// Candidates are the forms that compute a problem, each planned as if it were the only one. Forms for
// more columns than another form of their kind needs are left out.
func (t *Table) Candidates(p Problem) ([]*Call, error) {
	var all []*Call
	for _, f := range t.declared {
		alone := *t
		alone.measured, alone.declared = nil, []*Form{f}
		c, err := alone.Plan(p)
		switch {
		case errors.Is(err, ErrUnsupported):
			continue
		case err != nil:
			return nil, err
		}
		all = append(all, c)
	}
	var kept []*Call
	for _, c := range all {
		if !c.Form.isWiderThanOne(all) {
			kept = append(kept, c)
		}
	}
	return kept, nil
}

// isWiderThanOne reports whether another form of the same kind has fewer columns.
func (f *Form) isWiderThanOne(all []*Call) bool {
	for _, c := range all {
		sameKind := c.Form.HasOptions == f.HasOptions && c.Form.PacksHeads == f.PacksHeads || !c.Form.HasOptions && !f.PacksHeads
		if sameKind && c.Form.HeadDim < f.HeadDim {
			return true
		}
	}
	return false
}

// Splits are the blocks that divide the keys of a tile.
func (c *Call) Splits() int { return max(1, c.problem.splits) }
