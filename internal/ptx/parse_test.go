package ptx

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const prelude = ".version 8.5\n.target sm_90a\n.address_size 64\n"

// frame is a kernel around a body, which begins in line 6.
const frame = prelude + ".func (.param .b32 r) f(.param .b32 a);\n" +
	".entry k(.param .u64 p0) { .reg .pred p, q; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<3>; .reg .v4 .b32 v; .shared .b32 s[8];\n"

func kernel(t *testing.T, body string) *Function {
	t.Helper()
	module, err := Parse([]byte(frame + body + "\n}\n"))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return module.Functions[1]
}

// plain prints an instruction with the names of the registers.
func plain(f *Function, index int) string {
	w := &writer{names: map[*Variable]string{}}
	for _, v := range append(f.Variables, f.Params...) {
		w.names[v] = v.Name
	}
	w.instruction(&f.Code[index])
	text := strings.TrimSpace(w.String())
	for i := len(f.Registers) - 1; i >= 0; i-- {
		text = strings.ReplaceAll(text, fmt.Sprintf("%%x%d", i), f.Registers[i].Name)
	}
	return strings.ReplaceAll(text, "$$$", "")
}

func TestInstructions(t *testing.T) {
	check := func(body string, want ...string) {
		t.Helper()
		f := kernel(t, body)
		var got []string
		for i := range f.Code {
			got = append(got, plain(f, i))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	same := func(body string) { t.Helper(); check(body, body) }

	// Opcodes and guards.
	same("ret;")
	same("ld.global.L1::no_allocate.L2::128B.v2.u32 {%r1, %r2}, [%rd1];")
	same("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];")
	same("@p ret;")
	same("@!q add.u32 %r1, %r2, %r3;")
	check("@ ! q add.u32 %r1, %r2, %r3;", "@!q add.u32 %r1, %r2, %r3;")
	check("add .u32 %r1, %r2, %r3;", "add.u32 %r1, %r2, %r3;")
	check("a .2d .b .1d::x %r1;", "a.2d.b.1d::x %r1;")
	check("add.u32 // one\n\t%r1, /* two\n */ %r2,\r\n%r3\n;", "add.u32 %r1, %r2, %r3;")
	check("ret; @p exit; trap;", "ret;", "@p exit;", "trap;")

	// Registers, vectors, pairs, sinks.
	same("mov.b64 {%r1, _}, %rd1;")
	same("mov.b64 %rd1, {1, %r2};")
	same("and.pred p, !q, p;")
	same("setp.eq.and.u32 p|q, %r1, %r2, !p;")
	same("elect.sync _|p, -1;")
	check("mov.b32 %r1, v.x; mov.b32 %r1, v.a;", "mov.b32 %r1, v.x;", "mov.b32 %r1, v.w;")
	check("ld.v4.b32 v, [%rd1];", "ld.v4.b32 {v.x, v.y, v.z, v.w}, [%rd1];")
	check(".reg .v2 .b32 w<2>; mov.b64 w1, %rd1;", "mov.b64 {w1.x, w1.y}, %rd1;")
	check(".reg .b32 _x, $y, add, ld1; add.u32 add, _x, $y; ld.u32 ld1, [%rd1];", "add.u32 add, _x, $y;", "ld.u32 ld1, [%rd1];")
	check(".reg .b32 z1<3>; mov.b32 z12, z10;", "mov.b32 z12, z10;")

	// Addresses.
	same("ld.u32 %r1, [%rd1+4];")
	same("ld.u32 %r1, [%rd1+-4];")
	check("ld.u32 %r1, [%rd1-4];", "ld.u32 %r1, [%rd1+-4];")
	check("ld.u32 %r1, [%rd1 + 4*(2+1) - 2];", "ld.u32 %r1, [%rd1+10];")
	check("ld.u32 %r1, [%rd1+WARP_SZ];", "ld.u32 %r1, [%rd1+32];")
	same("ld.shared.u32 %r1, [s];")
	same("ld.shared.u32 %r1, [s+8];")
	same("ld.param.u64 %rd1, [p0];")
	same("ld.local.u32 %r1, [16];")
	check("ld.local.u32 %r1, [16+4];", "ld.local.u32 %r1, [20];")
	same("tex.2d.v4.f32.f32 {%f0, %f0, %f1, %f1}, [%rd1, %rd2, {%f1, %f2}];")
	check("ld.u32 %r1, [%rd1].unified;", "ld.u32.unified %r1, [%rd1];")
	same("mov.u32 %r1, s+4;")
	same("mov.u64 %rd1, f;")

	// Special registers.
	same("mov.u32 %r1, %tid.x;")
	same("mov.u32 %r1, %envreg31;")
	same("mov.u32 %r1, %pm7_64;")
	same("mov.u32 %r1, %reserved_smem_offset_cap;")
	check("mov.u32 %r1, %nctaid.g; mov.u32 %r1, %tid .z;", "mov.u32 %r1, %nctaid.y;", "mov.u32 %r1, %tid.z;")
	check("mov.v4.u32 v, %ctaid;", "mov.v4.u32 {v.x, v.y, v.z, v.w}, {%ctaid.x, %ctaid.y, %ctaid.z, %ctaid.w};")
	check(".reg .b32 %laneid; mov.u32 %laneid, %smid;", "mov.u32 %laneid, %smid;")

	// Branches and labels.
	check("L: bra L; bra M; M:", "bra L0;", "bra L2;")
	check("A: B: @p bra.uni C; ret; C: ret;", "@p bra.uni L2;", "ret;", "ret;")
	check("T :\n .branchtargets A, B, A;\n@p brx.idx %r1, T; A: B:", "T1: .branchtargets L1, L1, L1;\n\t@p brx.idx %r1, T1;")
	check("T: .branchtargets L<2>; brx.idx %r1, T; L0: ret; L1: ret;", "T1: .branchtargets L1, L2;\n\tbrx.idx %r1, T1;", "ret;", "ret;")

	// Calls: always returns, callee, arguments.
	check(".param .b32 x; call (x), f, (x);", "call (x), f, (x);")
	check("call (_), f, (3);", "call (_), f, (3);")
	check("P: .callprototype _ (); call %rd1, P; call %rd1, (), P; call (), %rd1, (), P;",
		"T1: .callprototype _ ();\n\tcall %rd1, (), T1;", "T1: .callprototype _ ();\n\tcall %rd1, (), T1;", "T1: .callprototype _ ();\n\tcall %rd1, (), T1;")
	check("P: .callprototype (.reg .b32 _) _ (.param .b32 _, .param .align 8 .b8 _[16]) .noreturn; call.uni (%r1), %rd1, (1, s), P;",
		"T1: .callprototype (.reg .b32 _) _ (.param .align 4 .b32 _, .param .align 8 .b8 _[16]);\n\tcall.uni (%r1), %rd1, (1, s), T1;")
	check("C: .calltargets f; call (%r1), %rd1, (%r2), C;", "T1: .calltargets f;\n\tcall (%r1), %rd1, (%r2), T1;")
}

func TestConstants(t *testing.T) {
	check := func(text string, number Number, value uint64) {
		t.Helper()
		operand := kernel(t, "mov.b64 %rd1, "+text+";").Code[0].Operands[1]
		if diff := cmp.Diff(Operand{Kind: ImmOperand, Number: number, Value: value}, operand); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	integers := map[string]int64{
		"0": 0, "7": 7, "00": 0, "12": 12, "017": 15, "0x1F": 31, "0XfF": 255, "0b101": 5, "0B11": 3, "12U": 12, "0xFFU": 255,
		"9223372036854775807": 1<<63 - 1, "18446744073709551615": -1, "-9223372036854775808": -1 << 63, "WARP_SZ": 32, "-WARP_SZ+1": -31,
		"-5": -5, "+5": 5, "- -5": 5, "~0": -1, "!3": 0, "!0": 1, "-(3)": -3,
		"1+2*3": 7, "(1+2)*3": 9, "7-2-1": 4, "7/2": 3, "-7/2": -3, "7 % 3": 1, "-7 % 3": -1, "7U/2": 3, "-1/2U": 1<<63 - 1, "-1 % 10U": 5,
		"1<<4": 16, "1<<64": 0, "-16>>2": -4, "-1>>70": -1, "0xFFFFFFFFFFFFFFFF>>63": 1, "1<<2+1": 8,
		"6&3": 2, "6^3": 5, "6|3": 7, "6|3^1&5": 6, "1<2": 1, "2<1": 0, "-1<1U": 0, "2>1": 1, "2<=2": 1, "2>=3": 0, "2==2": 1, "2!=2": 0,
		"1&&0": 0, "1||0": 1, "0||0": 0, "1?2:3": 2, "0?2:3": 3, "0?1:0?2:3": 3, "(.u64)-1 > 0": 1, "(.s64)0xFFFFFFFFFFFFFFFF > 0": 0,
		"1.5<2.5": 1, "1.5>2.5": 0, "1.5<=1.5": 1, "1.5>=2.0": 0, "1.5==1.5": 1, "1.5!=1.5": 0,
	}
	for text, value := range integers {
		check(text, Integer, uint64(value))
	}
	check("0f3F800000", Float32, 0x3F800000)
	check("0Fbf800000", Float32, 0xBF800000)
	check("0d3FF0000000000000", Float64, 0x3FF0000000000000)
	for _, one := range []string{"1.0", "1.", "01.0", "1e0", "10e-1", "0.1E+1", "+1.0", ".5*2.0", ".5+.5", "-(1.5-2.5)", "4.0/4.0"} {
		check(one, Float64, 0x3FF0000000000000)
	}
	check("-1.0", Float64, 0xBFF0000000000000)
	check("1e999", Float64, 0x7FF0000000000000)
}

func TestScopes(t *testing.T) {
	f := kernel(t, `
		mov.u32 %r1, 0;
		{ .reg .b64 %r<2>, x; mov.u64 %r1, x; mov.u32 %r2, 0;
		  { .reg .b16 x; mov.u16 x, 0; .shared .b8 s[2]; mov.u32 %r5, s; }
		  mov.u64 x, 0; mov.u32 %r5, s; }
		{ .reg .b32 x; mov.u32 x, 0; .param .b32 p0; st.param.b32 [p0], x; }
		ld.param.u64 %rd1, [p0];`)
	var got []string
	for i := range f.Code {
		for _, operand := range append(f.Code[i].Operands, f.Code[i].Operands[0].Parts...) {
			switch {
			case operand.Kind == RegOperand:
				r := f.Registers[operand.Register]
				got = append(got, r.Name+" "+r.Type.String())
			case operand.Kind == SymOperand:
				got = append(got, fmt.Sprintf("%s[%d]", operand.Symbol.Variable.Name, operand.Symbol.Variable.Count))
			}
		}
	}
	want := []string{
		"%r1 b32", "%r1 b64", "x b64", "%r2 b32", "x b16", "%r5 b32", "s[2]", "x b64", "%r5 b32", "s[8]", "x b32", "x b32", "p0[1]", "%rd1 b64",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if stored, loaded := f.Code[8].Operands[0].Parts[0].Symbol, f.Code[9].Operands[1].Parts[0].Symbol; stored == loaded || loaded.Variable != f.Params[0] {
		t.Error("the parameter of a scope does not hide that of the kernel, or hides it outside")
	}
}

func TestLabelScopes(t *testing.T) {
	f := kernel(t, `
		{ bra L; mov.u32 %r1, 1; L: mov.u32 %r2, 2; { bra L; bra M; } }
		{ bra L; L: { L: bra L; } }
		L: ret; M:`)
	var got [][]int
	for i := range f.Code {
		got = append(got, f.Code[i].Targets)
	}
	want := [][]int{{2}, nil, nil, {2}, {8}, {6}, {6}, nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := f.Text(f.Code[4].Targets[0]); got != "the end" {
		t.Errorf("the place behind the code is %q", got)
	}
}

func TestVariables(t *testing.T) {
	check := func(text string, want ...*Variable) {
		t.Helper()
		module, err := Parse([]byte(prelude + text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return
		}
		for _, v := range want {
			v.Line, v.Register = 4, -1
			v.Vector = max(v.Vector, 1)
		}
		ignored := []cmp.Option{cmpopts.IgnoreFields(Relocation{}, "Symbol"), cmpopts.EquateEmpty()}
		if diff := cmp.Diff(want, module.Variables, ignored...); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	check(".global .u32 a;", &Variable{Name: "a", Space: Global, Type: U32, Count: 1, Align: 4})
	check(".visible .const .align 16 .b8 a[3];", &Variable{Name: "a", Space: Const, Type: B8, Count: 3, IsArray: true, Align: 16, Visible: true})
	check(".weak .global .u16 a; .common .global .u64 b;",
		&Variable{Name: "a", Space: Global, Type: U16, Count: 1, Align: 2, Visible: true},
		&Variable{Name: "b", Space: Global, Type: U64, Count: 1, Align: 8, Visible: true})
	check(".extern .shared .align 128 .b8 a[];", &Variable{Name: "a", Space: Shared, Type: B8, IsArray: true, Align: 128, Extern: true})
	check(".local .b128 a; .shared .f16x2 b[2][3];", &Variable{Name: "a", Space: Local, Type: B128, Count: 1, Align: 16},
		&Variable{Name: "b", Space: Shared, Type: F16x2, Count: 6, IsArray: true, Align: 4})
	check(".global .attribute(.unified(1, 2)) .v4 .f32 a;", &Variable{Name: "a", Space: Global, Type: F32, Vector: 4, Count: 1, Align: 16})
	check(".global .u8 a<2>, b;", &Variable{Name: "a0", Space: Global, Type: U8, Count: 1, Align: 1},
		&Variable{Name: "a1", Space: Global, Type: U8, Count: 1, Align: 1}, &Variable{Name: "b", Space: Global, Type: U8, Count: 1, Align: 1})
	check(".extern .global .u32 a; .visible .global .u32 a = 3; .extern .global .u32 a;",
		&Variable{Name: "a", Space: Global, Type: U32, Count: 1, Align: 4, Visible: true, Init: []byte{3, 0, 0, 0}})

	scalar := func(kind string, value string, init ...byte) {
		t.Helper()
		parsed, _ := ParseType(kind)
		check(".global ."+kind+" a = "+value+";", &Variable{Name: "a", Space: Global, Type: parsed, Count: 1, Align: len(init), Init: init})
	}
	scalar("u8", "256+7", 7)
	scalar("s16", "-2", 0xFE, 0xFF)
	scalar("b32", "WARP_SZ", 32, 0, 0, 0)
	scalar("b32", "0f3F800000", 0, 0, 0x80, 0x3F)
	scalar("b64", "1.0", 0, 0, 0, 0, 0, 0, 0xF0, 0x3F)
	scalar("f32", "1.0", 0, 0, 0x80, 0x3F)
	scalar("f32", "0d3FF0000000000000", 0, 0, 0x80, 0x3F)
	scalar("f64", "0f3F800000", 0, 0, 0, 0, 0, 0, 0xF0, 0x3F)
	scalar("b128", "-2", 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF)
	scalar("b128", "2", 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

	array := func(text string, count, vector int, init ...byte) {
		t.Helper()
		check(".global .b8 a"+text+";", &Variable{Name: "a", Space: Global, Type: B8, Vector: vector, Count: count, IsArray: true, Align: 1, Init: init})
	}
	array("[4] = {}", 4, 1)
	array("[4] = {1, 2}", 4, 1, 1, 2)
	array("[2][3] = {{1}, {2, 3}}", 6, 1, 1, 0, 0, 2, 3)
	array("[] = {1, 2, 3}", 3, 1, 1, 2, 3)
	array("[][2] = {{1}, {}, {2}}", 6, 1, 1, 0, 0, 0, 2)
	check(".global .v2 .u8 a[2] = {{1, 2}, {3}}, b = {4};",
		&Variable{Name: "a", Space: Global, Type: U8, Vector: 2, Count: 2, IsArray: true, Align: 2, Init: []byte{1, 2, 3}},
		&Variable{Name: "b", Space: Global, Type: U8, Vector: 2, Count: 1, Align: 2, Init: []byte{4}})

	check(".global .u32 b; .func f; .global .u64 a[5] = {b, generic(b)+4, b-4, f};",
		&Variable{Name: "b", Space: Global, Type: U32, Count: 1, Align: 4},
		&Variable{
			Name: "a", Space: Global, Type: U64, Count: 5, IsArray: true, Align: 8, Init: make([]byte, 32),
			Pointed: []Relocation{{Size: 8}, {Offset: 8, Size: 8, Addend: 4, Generic: true}, {Offset: 16, Size: 8, Addend: -4}, {Offset: 24, Size: 8}},
		})
	check(".global .u32 b; .global .u8 a[3] = {7, 0xFF(b), 0xFF00(generic(b)+4)};",
		&Variable{Name: "b", Space: Global, Type: U32, Count: 1, Align: 4},
		&Variable{
			Name: "a", Space: Global, Type: U8, Count: 3, IsArray: true, Align: 1, Init: []byte{7, 0, 0},
			Pointed: []Relocation{{Offset: 1, Size: 1}, {Offset: 2, Size: 1, Shift: 8, Addend: 4, Generic: true}},
		})
	module, err := Parse([]byte(prelude + ".global .u32 b; .func f; .const .u64 a[2] = {b, f};"))
	if err != nil {
		t.Fatal(err)
	}
	pointed := module.Variables[1].Pointed
	if pointed[0].Symbol.Variable != module.Variables[0] || pointed[1].Symbol.Function != module.Functions[0] {
		t.Error("an address points elsewhere")
	}
	if size := module.Variables[1].Size(); size != 16 {
		t.Errorf("the size is %d, not 16", size)
	}
}

func TestFunctions(t *testing.T) {
	module, err := Parse([]byte(`.version 9.0
.target sm_90a, debug, texmode_unified
.pragma "a", "b";
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b) .noreturn;
.func later(.reg .b32 x);
.func (.reg .b32 y, .reg .pred z) both(.reg .b32 x)
{ .reg .b32 r; add.u32 y, x, r; call later, (r); ret; }
.func .attribute(.unified(1, (2))) later(.reg .b32 other) .abi_preserve 8 .abi_preserve_control 4 { }
.visible .entry k(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr b, .param .align 64 .b8 c[128])
.maxntid 256, 2 .reqntid 1,2,3 .minnctapersm 2 .maxnreg 32 .reqnctapercluster 2 .explicitcluster .blocksareclusters
.maxclusterrank 4 .maxnctapersm 2 .pragma "x"; .attribute(.x)
{ .global .b32 g = 1; .const .b32 c2; .pragma "y"; { call later, (1); } }
.entry bare { }
.extern .entry absent();
`))
	if err != nil {
		t.Fatal(err)
	}
	if module.Version != [2]int{9, 0} || module.Target != "sm_90a" {
		t.Errorf("version %v, target %s", module.Version, module.Target)
	}
	names := map[string]*Function{}
	var order []string
	for _, f := range module.Functions {
		names[f.Name] = f
		order = append(order, fmt.Sprint(f.Name, f.Line, f.Entry, f.External, len(f.Params), len(f.Returns), len(f.Registers), len(f.Code)))
	}
	want := []string{
		"vprintf4 false true 2 1 0 0", "later8 false false 1 0 1 0", "both6 false false 1 2 4 3", "k9 true false 3 0 0 1", "bare13 true false 0 0 0 0",
		"absent14 true true 0 0 0 0",
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	k := names["k"]
	if k.MaxThreads != [3]int{256, 2, 1} || k.RequiredThreads != [3]int{1, 2, 3} || k.MinBlocks != 2 || k.MaxRegisters != 32 ||
		k.ClusterBlocks != [3]int{2, 1, 1} || !k.ExplicitCluster {
		t.Errorf("the directives of k: %+v", k)
	}
	if c := k.Params[2]; c.Size() != 128 || c.Align != 64 || c.Space != Param {
		t.Errorf("the parameter c: %+v", c)
	}
	both := names["both"]
	if diff := cmp.Diff([]Register{{"y", B32}, {"z", Pred}, {"x", B32}, {"r", B32}}, both.Registers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if both.Returns[1].Register != 1 || both.Params[0].Register != 2 {
		t.Error("the registers of parameters are wrong")
	}
	if both.Code[1].Operands[1].Symbol.Function != names["later"] || k.Code[0].Operands[1].Symbol.Function != names["later"] {
		t.Error("a call reaches another function")
	}
}

func TestLocations(t *testing.T) {
	module, err := Parse([]byte(prelude + `.file 1 "a.cu"
.file 2 "b c.h", 12, 34
.entry k { ret; .loc 1 5 3
 ret; ret;
 .loc 2 9 1, function_name $f+2, inlined_at 1 5 3
 .loc 1 7 2, function_name $g, inlined_at 2 9 1
 ret; .loc 1 1 1, inlined_at 8 8 8
 ret; }
.entry other { ret; }
.section .debug_abbrev { .b8 1 L: .b64 k .b32 .debug_str .b32 L-L }
.section .debug_str { $f: .b8 120, 121
.b8 102, 0
$g: .b8 103 }
`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]string{1: "a.cu", 2: "b c.h"}, module.Files); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	code := module.Functions[0].Code
	first := &Location{File: 1, Line: 5, Column: 3}
	inner := &Location{File: 2, Line: 9, Column: 1, Function: "f", Inlined: first}
	want := []*Location{
		nil, first, first,
		{File: 1, Line: 7, Column: 2, Function: "g", Inlined: inner},
		{File: 1, Line: 1, Column: 1, Inlined: &Location{File: 8, Line: 8, Column: 8}},
	}
	var got []*Location
	for i := range code {
		got = append(got, code[i].Location)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if code[1].Location != code[2].Location || module.Functions[1].Code[0].Location != nil {
		t.Error("a location is not shared, or reaches the next function")
	}
}

func TestLinesAndText(t *testing.T) {
	f := kernel(t, "/* a\nb */ @p // guard\n  add.u32\n %r1, %r2,\t%r3 ; L:\n\nret; exit;\nbra\nL;")
	var got []string
	for i := range f.Code {
		got = append(got, fmt.Sprintf("%d %s", f.Code[i].Line, f.Text(i)))
	}
	want := []string{"8 @p add.u32 %r1, %r2, %r3", "11 ret", "11 exit", "12 bra L"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTypes(t *testing.T) {
	for kind := Pred; int(kind) < len(types); kind++ {
		if parsed, ok := ParseType(kind.String()); parsed != kind || !ok {
			t.Errorf("%s is read as %s", kind, parsed)
		}
		if kind != Pred && kind.Size()*8 != kind.Bits() {
			t.Errorf("%s has %d bytes and %d bits", kind, kind.Size(), kind.Bits())
		}
		if kind.Signed() != (kind.String()[0] == 's' && kind != S16x2) {
			t.Errorf("%s: signed %v", kind, kind.Signed())
		}
	}
	if _, ok := ParseType("none"); ok {
		t.Error("none is read as a type")
	}
}

func TestEndings(t *testing.T) {
	for _, text := range []string{prelude + "\x00\x00", ".version 8.5\n.target sm_90a", prelude + "// no end of line", prelude + "/* c */"} {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestErrors has texts that are refused. What stands in the body of a kernel begins in line 6.
func TestErrors(t *testing.T) {
	refuse := func(text, want string) {
		t.Helper()
		module, err := Parse([]byte(text))
		if err == nil {
			t.Errorf("%s: accepted, not refused with %s", text, want)
			return
		}
		var syntax *SyntaxError
		if module != nil || !errors.As(err, &syntax) || err.Error() != want {
			t.Errorf("%s:\n%v\nnot\n%s", text, err, want)
		}
	}
	body := func(text, message string) {
		t.Helper()
		refuse(frame+text+"\n}\n", (&SyntaxError{Line: 6, Text: text, Msg: message}).Error())
	}
	module := func(text, message string) {
		t.Helper()
		refuse(prelude+text+"\n", (&SyntaxError{Line: 4, Text: text, Msg: message}).Error())
	}

	refuse("", `line 1: a module begins with .version (in "")`)
	refuse(".target sm_90a", `line 1: a module begins with .version (in ".target sm_90a")`)
	refuse(".version 8\n", `line 1: expected a version such as 9.0, not '8' (in ".version 8")`)
	refuse(".version 8.x\n", `line 1: 8.x is no number (in ".version 8.x")`)
	refuse(".version\n", `line 1: expected a version such as 9.0 at the end of the line (in ".version")`)
	refuse(".version 8.5\n", `line 1: expected .target at the end of the line (in ".version 8.5")`)
	refuse(".version 8.5 .target 90", `line 1: expected a target such as sm_90a, not '90' (in ".version 8.5 .target 90")`)
	refuse(".version 8.5\n.target sm_90a,\n", `line 2: expected a target at the end of the line (in ".target sm_90a,")`)
	refuse(".version 8.5\n.target sm_90\n.address_size 32", `line 3: addresses of 32 bits are not read, only those of 64 (in ".address_size 32")`)

	module("ret;", "expected a directive, not 'ret'")
	module(";", "expected a directive, not ';'")
	module(".visible", "expected a declaration at the end of the line")
	module(".reg .b32 r;", "a register outside of a function")
	module(".alias f, g;", ".alias is not read")
	module(".tex .u32 t;", "unknown directive .tex")
	module("#define x", "a character that PTX does not have: '#'")
	module("/* no end", "a comment without its end")
	module(`.pragma "no end;`, "a string without its end")
	module(".pragma nounroll;", "expected a string, not 'nounroll'")
	module(`.pragma "x"`, "expected ';' at the end of the line")
	module(`.file x "y"`, "expected the number of a file, not 'x'")
	module(".file 1 y", "expected the name of a file, not 'y'")
	module(`.file 99999999999 "x"`, "the number of a file has to be an integer from 0 to 2147483647")
	module(".section debug", "expected the name of a section, not 'debug'")
	module(".section .debug_str { x: .b8 256 }", "a byte has to be an integer from 0 to 255")
	module(".section .debug_str { x: .b8 1", "expected '}' at the end of the line")

	module(".global a;", "a declaration without a type that a variable can have")
	module(".global .pred a;", "a declaration without a type that a variable can have")
	module(".global .u33 a;", "unknown type .u33")
	module(".global .u32 .b32 a;", "a declaration with two types, .u32 and .b32")
	module(".global .v3 .f32 a;", "unknown type .v3")
	module(".global .texref t;", "textures, samplers and surfaces (.texref) are not read")
	module(".global .align 3 .u32 a;", "an alignment has to be a power of two")
	module(".global .attribute(.managed .u32 a;", "expected ')' at the end of the line")
	module(".global .u32 a[", "expected the size of an array at the end of the line")
	module(".global .u32 a[];", "the array a has no size")
	module(".shared .u32 a[0];", "the array a has no size")
	module(".global .u32 a[2][];", "expected the size of an array, not ']'")
	module(".global .u32 a[2][0];", "only the first size of an array may be left out")
	module(".global .u32 a[1][1][1][1][1][1][1][1][1];", "an array of more than 8 dimensions")
	module(".global .b8 a[1073741825];", "the size of an array has to be an integer from 0 to 1073741824")
	module(".global .u64 a[1073741824];", "the array a has more than 1073741824 bytes")
	module(".global .u64 a[65536][65536];", "the array a has more than 1073741824 bytes")
	module(".global .u64 a[][1073741824] = {};", "the array a has more than 1073741824 bytes")
	module(".global .u64 a[][134217728] = {{}, {}};", "the array a has more than 1073741824 bytes")
	module(".global .b8 a[2][536870912] = {{1}, {1}};", "initialisers of more than 67108864 bytes")
	module(".global .u32 a; .const .u32 a;", "a is declared twice")
	module(".func f; .global .u32 f;", "f is declared twice")
	module(".shared .u32 a = 1;", "a variable of space shared, or an external one, takes no value")
	module(".global .u32 a = 1.5;", "no value of this kind for type u32")
	module(".global .f32 a = 1;", "no value of this kind for type f32")
	module(".global .f16 a = 1.5;", "no value of this kind for type f16")
	module(".global .u32 a = {1};", "expected a constant, not '{'")
	module(".global .u32 a[2] = 1;", "expected '{', not '1'")
	module(".global .u32 a[2] = {1, 2, 3};", "more values than the 2 that a has room for")
	module(".global .u32 a[2][2] = {{1, 2, 3}};", "more values than the 2 that a has room for")
	module(".global .u32 a[2] = {1,};", "expected a value, not '}'")
	module(".global .u32 a[2] = {1", "expected ',' at the end of the line")
	module(".global .u32 a[2] = {", "a value without its closing brace")
	module(".global .u64 a = b;", "unknown name b")
	module(".global .u32 b; .global .u8 a = b;", "an address does not fit into type u8")
	module(".global .u32 b; .global .u8 a = 0xFF0(b);", "a mask has to select one byte, for an element of one byte")
	module(".global .u32 b; .global .u64 a = b + b;", "an offset has to be a constant, not b")
	module(".global .u32 b; .global .u64 a = b + 1.5;", "an offset has to be an integer")

	module(".func f() {ret;} .func f() {ret;}", "the function f is defined twice")
	module(".global .u32 f; .func f() {ret;}", "f is declared twice")
	module(".func f(.param .b32 a); .func f(.param .b64 a) {ret;}", "the function f was declared with other parameters in line 4")
	module(".func f(.param .b32 a); .func f() {ret;}", "the function f was declared with other parameters in line 4")
	module(".extern .func f() {ret;}", "the function f is external and has a body")
	module(".func f(.shared .b32 a);", "expected a parameter, .param or .reg, not '.shared'")
	module(".func f(.param .b32 a .param .b32 b);", "expected ',', not '.param'")
	module(".func f(.reg .b32 a[2]);", "the parameter a is a register; it has to have a single value")
	module(".func f(.param .b32 a, .param .b32 a);", "a is declared twice in this scope")
	module(".entry k(.reg .b32 a) {ret;}", "the parameter a of a kernel cannot be a register")
	module(".entry (.param .b32 a) k() {ret;}", "expected the name of a function, not '('")
	module(".entry k() .maxntid x {ret;}", "expected the number of this directive, not 'x'")
	module(".entry k() .fast {ret;}", "unknown directive .fast")
	module(".entry k()", "expected ';' at the end of the line")
	module(".entry k() { ret;", "the function k has no end")

	body("add.u32 %r9, %r1, 1;", "unknown register %r9")
	body("add.u32 %r01, %r1, 1;", "unknown register %r01")
	body("add.u32 x, %r1, 1;", "unknown name x")
	body("@x ret;", "unknown register x")
	body("@%r1 ret;", "%r1 is no predicate")
	body("@s ret;", "s is no predicate")
	body("@1 ret;", "expected a predicate, not '1'")
	body("@p { ret; }", "expected an instruction, not '{'")
	body("@p", "expected an instruction at the end of the line")
	body("mov.pred p, !%r1;", "%r1 is no predicate")
	body("add.u32 %r1, %r2, -%r3;", "expected a constant, not '%r3'")
	body("add.u32 %r1, %r2,;", "expected an operand, not ';'")
	body("add.u32 %r1 %r2;", "expected ';', not '%r2'")
	body("add.u32 %r1, 1", "expected ';' at the end of the line")
	body("add.u32 %r1, 1 mov.u32 %r1, 2;", "expected ';', not 'mov'")
	body("add..u32 %r1, 1;", "a dot without a word after it in add..u32")
	body(";", "expected an instruction, not ';'")
	body("vadd.u32 %r1, %r2.b0, %r3;", "%r2.b0: selectors of bytes and halves are not read")
	body("mov.u32 %r1, s[3];", "the form s[i] is not read; write [s+offset]")
	body("mov.b32 %r1, v.q;", "a vector register of 4 parts has no part .q")
	body("mov.b32 %r1, v.xy;", "a vector register of 4 parts has no part .xy")
	body("mov.b32 %r1, %tid.q;", "the special register %tid has no part .q")
	body("mov.b32 %r1, %nosuch;", "unknown register %nosuch")
	body("mov.b64 {}, %rd1;", "expected a part of a vector, not '}'")
	body("mov.b64 {{%r1}, %r2}, %rd1;", "expected a part of a vector, not '{'")
	body("mov.b64 {%r1, %r2, %rd1;", "expected '}', not ';'")
	body("setp.eq.u32 p|1, %r1, 1;", "expected a register, not '1'")
	body("setp.eq.u32 p|q|p, %r1, 1;", "expected ';', not '|'")
	body("ld.u32 %r1, [%rd1+%rd2];", "an offset has to be a constant, not %rd2")
	body("ld.u32 %r1, [4+%rd2];", "expected a constant, not '%rd2'")
	body("ld.u32 %r1, [%rd1;", "expected ']', not ';'")
	body("ld.u32 %r1, [[%rd1]];", "expected an address, not '['")
	body("ld.u32 %r1, [%rd1, [%rd2]];", "expected a register or a vector, not '['")
	body("ld.u32 %r1, [_];", "an address is a register, a name or a number")

	body("bra L; { L: ret; }", "unknown label L")
	body("bra %r1;", "unknown label %r1")
	body("bra;", "expected a label, not ';'")
	body("bra L, M; L: M:", "expected ';', not ','")
	body("L: ret; L: ret;", "the label L stands twice in this scope")
	body("brx.idx %r1, T; T: .branchtargets A; A:", "T is no list of .branchtargets")
	body("T: .branchtargets ; A:", "expected a label, not ';'")
	body("T: .branchtargets A; T: .branchtargets A; A:", "T is declared twice in this scope")
	body("mov.u32 %r1, T; T: .branchtargets A; A:", "unknown name T")
	body("T: .branchtargets L<0>;", "a list without labels")
	body(".branchtargets A;", ".branchtargets without a label before it")
	body("call g;", "unknown name g")
	body("call s;", "a call needs a function, or a register with a list or a prototype")
	body("call %rd1;", "a call needs a function, or a register with a list or a prototype")
	body("call %rd1, (%r1), P;", "P is no list of .calltargets and no .callprototype")
	body("call f, (%r1);", "a call with 1 arguments and 0 returns of a function that has 1 and 1")
	body("call (%r1), f, (%r1, [%r2]);", "expected a parameter, not '['")
	body("call (%r1), f, (%r1", "expected ')' at the end of the line")
	body("P: .calltargets g;", "unknown function g")
	body("P: .callprototype g ();", "a prototype has _ in the place of a name")

	body(".reg .b32 %r<4>;", "%r<n> is declared twice in this scope")
	body(".reg .b32 %r4;", "%r4 is declared twice in this scope")
	body(".reg .b32 %z3; .reg .b32 %z<4>;", "%z3 is declared twice in this scope")
	body(".reg .b32 p0;", "p0 is declared twice in this scope")
	body(".reg .b32 %x<4000000000>;", "the number of registers has to be an integer from 0 to 1048576")
	body(".reg .v4 .b32 %x<1048576>;", "more than 1048576 registers")
	body(".reg .b32 %x<1048000>; .reg .b32 %y<1000>;", "more than 1048576 registers")
	body(".shared .b32 x<1048576>;", "more than 1048576 registers")
	body("T: .branchtargets L<1048576>;", "more than 1048576 registers")
	body(".reg .b32 %x<2+1>;", "expected '>', not '+'")
	body(".reg .v2 .pred z;", "a declaration without a type that a variable can have")
	body(".reg .b32 z[3];", "expected ';', not '['")
	body(".reg .b32 3;", "expected the name of a register, not '3'")
	body(".shared .b32;", "expected the name of a variable, not ';'")
	body(".extern .shared .b32 x[];", "unknown directive .extern")
	body(".loc 1 2 x", "expected a column, not 'x'")
	body(".loc 1 2 3, is_stmt 1", "unknown part of .loc: is_stmt")
	body(".loc 1 2 3, function_name f+1 ret;", "unknown place f+1 in .debug_str")
	body(strings.Repeat("{", 101), "nested deeper than 100 levels")

	constant := func(text, message string) { t.Helper(); body("mov.b64 %rd1, "+text+";", message) }
	constant("0x", "0x is no number")
	constant("0x1g", "0x1g is no number")
	constant("018", "018 is no number")
	constant("0b2", "0b2 is no number")
	constant("12u", "12u is no number")
	constant("1.5f", "1.5f is no number")
	constant("1.5U", "1.5U is no number")
	constant("1e", "1e is no number")
	constant("1_000", "1_000 is no number")
	constant("0o7", "0o7 is no number")
	constant("0f3f80", "0f3f80 is no number: 0f takes 8 hexadecimal digits")
	constant("0d3f80", "0d3f80 is no number: 0d takes 16 hexadecimal digits")
	constant("'a'", `a character that PTX does not have: '\''`)
	constant("18446744073709551616", "18446744073709551616 does not fit into 64 bits")
	constant("1/0", "a division by zero")
	constant("1%(1-1)", "a division by zero")
	constant("1.5*2", "the operator * does not apply to constants of these types")
	constant("0f3F800000+0f3F800000", "the operator + does not apply to constants of these types")
	constant("1.5%1", "expected ';', not '%1'")
	constant("1.5 % 1.5", "the operator % does not apply to floating-point constants")
	constant("-0f3F800000", "the operator - does not apply to this constant")
	constant("~1.5", "the operator ~ does not apply to this constant")
	constant("!1.5", "the operator ! does not apply to this constant")
	constant("1 ? 1.5 : 2.5", "the operands of ?: have to be integers")
	constant("1 ? 2", "expected ':', not ';'")
	constant("(.s32) 1", "no cast of this constant to .s32; there are .s64 and .u64, of integers")
	constant("(.u64) 1.5", "no cast of this constant to .u64; there are .s64 and .u64, of integers")
	constant("(1", "expected ')', not ';'")
	constant("(%r1)", "expected a constant, not '%r1'")
	constant(strings.Repeat("-", 200)+"1", "nested deeper than 100 levels")
	constant(strings.Repeat("(.u64)", 30)+strings.Repeat("(", 80)+"1", "nested deeper than 100 levels")
	constant(strings.Repeat("1?1:", 150)+"1", "nested deeper than 100 levels")
}

func TestLongErrors(t *testing.T) {
	_, err := Parse([]byte(prelude + strings.Repeat("x ", 1000)))
	want := "line 4: expected a directive, not 'x' (in \"" + strings.Repeat("x ", 100) + " ...\")"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nnot\n%s", err, want)
	}
	_, err = Parse(make([]byte, maxText+1))
	var syntax *SyntaxError
	if !errors.As(err, &syntax) || syntax.Msg != "a text of 16777217 bytes; the limit is 16777216" {
		t.Errorf("a text that is too long: %.200v", err)
	}
}
