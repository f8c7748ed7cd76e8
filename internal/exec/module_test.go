package exec

import (
	"slices"
	"strings"
	"testing"

	"attune/internal/ptx"
)

// TestRoundOldMads checks that mad of floats gets the rounding to nearest where PTX of version 3.1 or
// before has none, and nowhere else.
func TestRoundOldMads(t *testing.T) {
	for _, c := range []struct{ version, mad, want string }{
		{"1.4", "mad.f32", "mad.rn.f32"},
		{"3.1", "mad.ftz.sat.f32", "mad.rn.ftz.sat.f32"},
		{"3.1", "mad.f64", "mad.rn.f64"},
		{"3.1", "mad.rz.f32", "mad.rz.f32"},
		{"3.1", "mad.lo.s32", "mad.lo.s32"},
		{"3.2", "mad.f32", "mad.f32"},
		{"4.0", "mad.f32", "mad.f32"},
	} {
		register := "%" + c.mad[len(c.mad)-3:]
		m, err := ptx.Parse([]byte(".version " + c.version + "\n.target sm_20\n.address_size 64\n" +
			".entry k()\n{\n.reg .f32 %f32;\n.reg .f64 %f64;\n.reg .s32 %s32;\n" +
			strings.ReplaceAll(c.mad+" R, R, R, R;", "R", register) + "\nret;\n}\n"))
		if err != nil {
			t.Fatalf("%s in version %s: %v", c.mad, c.version, err)
		}
		roundOldMads(m)
		in := m.Functions[0].Code[0]
		if got := strings.Join(slices.Concat([]string{in.Opcode}, in.Modifiers), "."); got != c.want {
			t.Errorf("%s in version %s is %s, want %s", c.mad, c.version, got, c.want)
		}
	}
}
