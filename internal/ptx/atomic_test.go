package ptx

import (
	"strings"
	"testing"
)

func TestUnorderedSums(t *testing.T) {
	const module = `.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
	.reg .b16 %h<2>;
	.reg .f32 %f<2>;
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	.shared .align 16 .b8 s[16];
	ld.param.u64 %rd1, [out];
	INSTRUCTION
	ret;
}
`
	for text, want := range map[string]bool{
		"atom.global.add.f32 %f1, [%rd1], %f1;":                                       true,
		"red.relaxed.gpu.global.add.f32 [%rd1], %f1;":                                 true,
		"red.global.add.noftz.f16 [%rd1], %h1;":                                       true,
		"atom.global.add.u32 %r1, [%rd1], 1;":                                         false,
		"atom.global.max.s32 %r1, [%rd1], 1;":                                         false,
		"add.f32 %f1, %f1, %f1;":                                                      false,
		"st.global.f32 [%rd1], %f1;":                                                  false,
		"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [s], 16;": true,
		"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [s], 16;": false,
	} {
		m, err := Parse([]byte(strings.Replace(module, "INSTRUCTION", text, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if m.UnorderedSums() != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}
