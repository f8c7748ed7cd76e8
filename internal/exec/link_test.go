package exec

import (
	"strings"
	"testing"

	"attune/internal/ptx"
)

const unitHeader = "//\n// comment with a ; and a {\n//\n.version 8.0\n.target sm_90\n.address_size 64\n"

// TestLink checks that PTX of two units becomes one module, whichever comes first.
func TestLink(t *testing.T) {
	uses := unitHeader + `
.extern .func (.param .b32 r) twice (.param .b32 x);
.extern .global .align 4 .u32 offset;
.weak .func (.param .b32 r) three(.param .b32 x)
{
	ret;
}
.visible .entry k(.param .u64 out)
{
	.reg .b32 %r<3>;
	.loc 1 5 0, function_name $L__info_string0, inlined_at 1 4 2
	ld.global.u32 %r1, [offset];
	{
	.param .b32 a;
	.param .b32 b;
	st.param.b32 [a], %r1;
	call (b), twice, (a);
	}
	ret;
}
.file 1 "a;b.cu"
.section .debug_str
{
$L__info_string0:
.b8 95
}
`
	defines := unitHeader + `
.visible .global .align 4 .u32 offset = 10;
.visible .const .align 4 .b8 table[4] = {0, 1, 2, 3};
.weak .func (.param .b32 r) three(.param .b32 x)
{
	trap;
}
.visible .func (.param .b32 r) twice(.param .b32 x)
{
	.loc 1 7 0
	ret;
}
.file 1 "c.cu"
`
	for _, units := range [][]string{{uses, defines}, {defines, uses}} {
		text := string(linkPTX([][]byte{[]byte(units[0]), []byte(units[1])}))
		module, err := ptx.Parse([]byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if n := strings.Count(text, "three(.param"); n != 1 || len(module.Functions) < 3 {
			t.Errorf("three is defined %d times; %d functions", n, len(module.Functions))
		}
		for _, want := range []string{`.file 1 "`, `.file 2 "`, ".loc 1 ", ".loc 2 "} {
			if !strings.Contains(text, want) {
				t.Errorf("there is no %s in\n%s", want, text)
			}
		}
	}
	alone := []byte("anything")
	if got := linkPTX([][]byte{alone}); &got[0] != &alone[0] {
		t.Error("a single unit is changed")
	}
}

// TestStatements checks that the splitter ends at any text.
func TestStatements(t *testing.T) {
	for _, text := range []string{"", "{", "}", "\"", "//", ".file", "(((", ".global .u32 x = {1, 2};\n.func f() { ret; }", ")}"} {
		for n := range text {
			statements([]byte(text[:n]))
		}
		if got := len(statements([]byte(text))); text != "" && strings.HasPrefix(text, ".global") && got != 2 {
			t.Errorf("%q has %d statements", text, got)
		}
	}
}
