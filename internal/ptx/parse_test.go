package ptx

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const prelude = ".version 8.5\n.target sm_90a\n.address_size 64\n"

// frame is the text before a kernel body, which starts in line 6.
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

// plain prints an instruction with the source names of its registers.
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

// checkInstructions requires that the instructions of a body print like this.
func checkInstructions(t *testing.T, body string, want ...string) {
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

// checkUnchanged requires that an instruction prints as it was written.
func checkUnchanged(t *testing.T, body string) {
	t.Helper()
	checkInstructions(t, body, body)
}

func TestOpcodesAndGuards(t *testing.T) {
	checkUnchanged(t, "ret;")
	checkUnchanged(t, "ld.global.L1::no_allocate.L2::128B.v2.u32 {%r1, %r2}, [%rd1];")
	checkUnchanged(t, "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];")
	checkUnchanged(t, "@p ret;")
	checkUnchanged(t, "@!q add.u32 %r1, %r2, %r3;")
	checkInstructions(t, "@ ! q add.u32 %r1, %r2, %r3;", "@!q add.u32 %r1, %r2, %r3;")
	checkInstructions(t, "add .u32 %r1, %r2, %r3;", "add.u32 %r1, %r2, %r3;")
	checkInstructions(t, "a .2d .b .1d::x %r1;", "a.2d.b.1d::x %r1;")
	checkInstructions(t, "add.u32 // one\n\t%r1, /* two\n */ %r2,\r\n%r3\n;", "add.u32 %r1, %r2, %r3;")
	checkInstructions(t, "ret; @p exit; trap;", "ret;", "@p exit;", "trap;")
}

func TestRegisterOperands(t *testing.T) {
	checkUnchanged(t, "mov.b64 {%r1, _}, %rd1;")
	checkUnchanged(t, "mov.b64 %rd1, {1, %r2};")
	checkUnchanged(t, "and.pred p, !q, p;")
	checkUnchanged(t, "setp.eq.and.u32 p|q, %r1, %r2, !p;")
	checkUnchanged(t, "elect.sync _|p, -1;")
	checkInstructions(t, "mov.b32 %r1, v.x; mov.b32 %r1, v.a;", "mov.b32 %r1, v.x;", "mov.b32 %r1, v.w;")
	checkInstructions(t, "ld.v4.b32 v, [%rd1];", "ld.v4.b32 {v.x, v.y, v.z, v.w}, [%rd1];")
	checkInstructions(t, ".reg .v2 .b32 w<2>; mov.b64 w1, %rd1;", "mov.b64 {w1.x, w1.y}, %rd1;")
	checkInstructions(t, ".reg .b32 _x, $y, add, ld1; add.u32 add, _x, $y; ld.u32 ld1, [%rd1];", "add.u32 add, _x, $y;", "ld.u32 ld1, [%rd1];")
	checkInstructions(t, ".reg .b32 z1<3>; mov.b32 z12, z10;", "mov.b32 z12, z10;")
}

func TestAddressOperands(t *testing.T) {
	checkUnchanged(t, "ld.u32 %r1, [%rd1+4];")
	checkUnchanged(t, "ld.u32 %r1, [%rd1+-4];")
	checkInstructions(t, "ld.u32 %r1, [%rd1-4];", "ld.u32 %r1, [%rd1+-4];")
	checkInstructions(t, "ld.u32 %r1, [%rd1 + 4*(2+1) - 2];", "ld.u32 %r1, [%rd1+10];")
	checkInstructions(t, "ld.u32 %r1, [%rd1+WARP_SZ];", "ld.u32 %r1, [%rd1+32];")
	checkUnchanged(t, "ld.shared.u32 %r1, [s];")
	checkUnchanged(t, "ld.shared.u32 %r1, [s+8];")
	checkUnchanged(t, "ld.param.u64 %rd1, [p0];")
	checkUnchanged(t, "ld.local.u32 %r1, [16];")
	checkInstructions(t, "ld.local.u32 %r1, [16+4];", "ld.local.u32 %r1, [20];")
	checkUnchanged(t, "tex.2d.v4.f32.f32 {%f0, %f0, %f1, %f1}, [%rd1, %rd2, {%f1, %f2}];")
	checkInstructions(t, "ld.u32 %r1, [%rd1].unified;", "ld.u32.unified %r1, [%rd1];")
	checkUnchanged(t, "mov.u32 %r1, s+4;")
	checkUnchanged(t, "mov.u64 %rd1, f;")
}

func TestSpecialRegisters(t *testing.T) {
	checkUnchanged(t, "mov.u32 %r1, %tid.x;")
	checkUnchanged(t, "mov.u32 %r1, %envreg31;")
	checkUnchanged(t, "mov.u32 %r1, %pm7_64;")
	checkUnchanged(t, "mov.u32 %r1, %reserved_smem_offset_cap;")
	checkInstructions(t, "mov.u32 %r1, %nctaid.g; mov.u32 %r1, %tid .z;", "mov.u32 %r1, %nctaid.y;", "mov.u32 %r1, %tid.z;")
	checkInstructions(t, "mov.v4.u32 v, %ctaid;", "mov.v4.u32 {v.x, v.y, v.z, v.w}, {%ctaid.x, %ctaid.y, %ctaid.z, %ctaid.w};")
	checkInstructions(t, ".reg .b32 %laneid; mov.u32 %laneid, %smid;", "mov.u32 %laneid, %smid;")
}

func TestBranchesAndLabels(t *testing.T) {
	checkInstructions(t, "L: bra L; bra M; M:", "bra L0;", "bra L2;")
	checkInstructions(t, "A: B: @p bra.uni C; ret; C: ret;", "@p bra.uni L2;", "ret;", "ret;")
	checkInstructions(t, "T :\n .branchtargets A, B, A;\n@p brx.idx %r1, T; A: B:", "T1: .branchtargets L1, L1, L1;\n\t@p brx.idx %r1, T1;")
	checkInstructions(t, "T: .branchtargets L<2>; brx.idx %r1, T; L0: ret; L1: ret;", "T1: .branchtargets L1, L2;\n\tbrx.idx %r1, T1;", "ret;", "ret;")
}

func TestCalls(t *testing.T) {
	checkInstructions(t, ".param .b32 x; call (x), f, (x);", "call (x), f, (x);")
	checkInstructions(t, "call (_), f, (3);", "call (_), f, (3);")
	checkInstructions(t, "P: .callprototype _ (); call %rd1, P; call %rd1, (), P; call (), %rd1, (), P;",
		"T1: .callprototype _ ();\n\tcall %rd1, (), T1;", "T1: .callprototype _ ();\n\tcall %rd1, (), T1;", "T1: .callprototype _ ();\n\tcall %rd1, (), T1;")
	checkInstructions(t, "P: .callprototype (.reg .b32 _) _ (.param .b32 _, .param .align 8 .b8 _[16]) .noreturn; call.uni (%r1), %rd1, (1, s), P;",
		"T1: .callprototype (.reg .b32 _) _ (.param .align 4 .b32 _, .param .align 8 .b8 _[16]);\n\tcall.uni (%r1), %rd1, (1, s), T1;")
	checkInstructions(t, "C: .calltargets f; call (%r1), %rd1, (%r2), C;", "T1: .calltargets f;\n\tcall (%r1), %rd1, (%r2), T1;")
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
		t.Error("the .param of a scope must hide the kernel parameter inside the scope, and only there")
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
		t.Errorf("the text of the index after the code is %q", got)
	}
}

// checkVariables requires that the text, line 4 of a module, declares exactly these variables.
func checkVariables(t *testing.T, text string, want ...*Variable) {
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

func TestVariables(t *testing.T) {
	checkVariables(t, ".global .u32 a;", &Variable{Name: "a", Space: Global, Type: U32, Count: 1, Align: 4})
	checkVariables(t, ".visible .const .align 16 .b8 a[3];", &Variable{Name: "a", Space: Const, Type: B8, Count: 3, IsArray: true, Align: 16, Visible: true})
	checkVariables(t, ".weak .global .u16 a; .common .global .u64 b;",
		&Variable{Name: "a", Space: Global, Type: U16, Count: 1, Align: 2, Visible: true},
		&Variable{Name: "b", Space: Global, Type: U64, Count: 1, Align: 8, Visible: true})
	checkVariables(t, ".extern .shared .align 128 .b8 a[];", &Variable{Name: "a", Space: Shared, Type: B8, IsArray: true, Align: 128, Extern: true})
	checkVariables(t, ".local .b128 a; .shared .f16x2 b[2][3];", &Variable{Name: "a", Space: Local, Type: B128, Count: 1, Align: 16},
		&Variable{Name: "b", Space: Shared, Type: F16x2, Count: 6, IsArray: true, Align: 4})
	checkVariables(t, ".global .attribute(.unified(1, 2)) .v4 .f32 a;", &Variable{Name: "a", Space: Global, Type: F32, Vector: 4, Count: 1, Align: 16})
	checkVariables(t, ".global .u8 a<2>, b;", &Variable{Name: "a0", Space: Global, Type: U8, Count: 1, Align: 1},
		&Variable{Name: "a1", Space: Global, Type: U8, Count: 1, Align: 1}, &Variable{Name: "b", Space: Global, Type: U8, Count: 1, Align: 1})
	checkVariables(t, ".extern .global .u32 a; .visible .global .u32 a = 3; .extern .global .u32 a;",
		&Variable{Name: "a", Space: Global, Type: U32, Count: 1, Align: 4, Visible: true, Init: []byte{3, 0, 0, 0}})
}

func TestScalarInitialisers(t *testing.T) {
	scalar := func(kind string, value string, init ...byte) {
		t.Helper()
		parsed, _ := ParseType(kind)
		checkVariables(t, ".global ."+kind+" a = "+value+";", &Variable{Name: "a", Space: Global, Type: parsed, Count: 1, Align: len(init), Init: init})
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
}

func TestArrayInitialisers(t *testing.T) {
	array := func(text string, count, vector int, init ...byte) {
		t.Helper()
		checkVariables(t, ".global .b8 a"+text+";", &Variable{Name: "a", Space: Global, Type: B8, Vector: vector, Count: count, IsArray: true, Align: 1, Init: init})
	}
	array("[4] = {}", 4, 1)
	array("[4] = {1, 2}", 4, 1, 1, 2)
	array("[2][3] = {{1}, {2, 3}}", 6, 1, 1, 0, 0, 2, 3)
	array("[] = {1, 2, 3}", 3, 1, 1, 2, 3)
	array("[][2] = {{1}, {}, {2}}", 6, 1, 1, 0, 0, 0, 2)
	checkVariables(t, ".global .v2 .u8 a[2] = {{1, 2}, {3}}, b = {4};",
		&Variable{Name: "a", Space: Global, Type: U8, Vector: 2, Count: 2, IsArray: true, Align: 2, Init: []byte{1, 2, 3}},
		&Variable{Name: "b", Space: Global, Type: U8, Vector: 2, Count: 1, Align: 2, Init: []byte{4}})
}

func TestRelocations(t *testing.T) {
	checkVariables(t, ".global .u32 b; .func f; .global .u64 a[5] = {b, generic(b)+4, b-4, f};",
		&Variable{Name: "b", Space: Global, Type: U32, Count: 1, Align: 4},
		&Variable{
			Name: "a", Space: Global, Type: U64, Count: 5, IsArray: true, Align: 8, Init: make([]byte, 32),
			Relocations: []Relocation{{Size: 8}, {Offset: 8, Size: 8, Addend: 4, Generic: true}, {Offset: 16, Size: 8, Addend: -4}, {Offset: 24, Size: 8}},
		})
	checkVariables(t, ".global .u32 b; .global .u8 a[3] = {7, 0xFF(b), 0xFF00(generic(b)+4)};",
		&Variable{Name: "b", Space: Global, Type: U32, Count: 1, Align: 4},
		&Variable{
			Name: "a", Space: Global, Type: U8, Count: 3, IsArray: true, Align: 1, Init: []byte{7, 0, 0},
			Relocations: []Relocation{{Offset: 1, Size: 1}, {Offset: 2, Size: 1, Shift: 8, Addend: 4, Generic: true}},
		})
	module, err := Parse([]byte(prelude + ".global .u32 b; .func f; .const .u64 a[2] = {b, f};"))
	if err != nil {
		t.Fatal(err)
	}
	pointed := module.Variables[1].Relocations
	if pointed[0].Symbol.Variable != module.Variables[0] || pointed[1].Symbol.Function != module.Functions[0] {
		t.Error("an address in an initialiser refers to the wrong symbol")
	}
	if size := module.Variables[1].Size(); size != 16 {
		t.Errorf("got size %d, want 16", size)
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
		t.Errorf("wrong directives of k: %+v", k)
	}
	if c := k.Params[2]; c.Size() != 128 || c.Align != 64 || c.Space != Param {
		t.Errorf("wrong parameter c: %+v", c)
	}
	both := names["both"]
	if diff := cmp.Diff([]Register{{"y", B32}, {"z", Pred}, {"x", B32}, {"r", B32}}, both.Registers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if both.Returns[1].Register != 1 || both.Params[0].Register != 2 {
		t.Error("register parameters have wrong indexes")
	}
	if both.Code[1].Operands[1].Symbol.Function != names["later"] || k.Code[0].Operands[1].Symbol.Function != names["later"] {
		t.Error("a call refers to the wrong function")
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
		t.Error("instructions must share a location, and it must not extend into the next function")
	}
}

// The lines of inlined functions come before those of the calls.
func TestSourceLines(t *testing.T) {
	module := &Module{Files: map[int]string{1: "k.cu", 2: "../lib/a.cuh", 3: "cuda/b.h"}}
	kernel := &Location{File: 1, Line: 30, Column: 7}
	helper := &Location{File: 2, Line: 5, Inlined: kernel}
	header := &Location{File: 3, Line: 7, Inlined: helper}
	for _, c := range []struct {
		at     *Location
		place  string
		frames []Frame
	}{
		{nil, "ptx:9", nil},
		{kernel, "k.cu:30 (ptx:9)", []Frame{{File: "k.cu", Line: 30, Column: 7}}},
		{&Location{File: 2, Line: 6, Inlined: helper}, "../lib/a.cuh:6 (ptx:9, called from ../lib/a.cuh:5, k.cu:30)", []Frame{{File: "../lib/a.cuh", Line: 6}, {File: "../lib/a.cuh", Line: 5}, {File: "k.cu", Line: 30, Column: 7}}},
		{helper, "../lib/a.cuh:5 (ptx:9, called from k.cu:30)", []Frame{{File: "../lib/a.cuh", Line: 5}, {File: "k.cu", Line: 30, Column: 7}}},
		{header, "../lib/a.cuh:5 (ptx:9, called from k.cu:30)", []Frame{{File: "../lib/a.cuh", Line: 5}, {File: "k.cu", Line: 30, Column: 7}}},
		{&Location{File: 3, Line: 7}, "cuda/b.h:7 (ptx:9)", nil},
	} {
		if key := module.LineKey(c.at); key == "" != (c.at == nil) || c.at == header && key == module.LineKey(helper) {
			t.Errorf("the key of %s is %q", c.place, key)
		}
		if got := Place(module.SourceLine(c.at), 9); got != c.place {
			t.Errorf("%q; want %q", got, c.place)
		}
		if got := module.Frames(c.at); !slices.Equal(got, c.frames) {
			t.Errorf("the frames of %s are %v, want %v", c.place, got, c.frames)
		}
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
			t.Errorf("ParseType(%s) = %s", kind, parsed)
		}
		if kind != Pred && kind.Size()*8 != kind.Bits() {
			t.Errorf("%s has %d bytes and %d bits", kind, kind.Size(), kind.Bits())
		}
		if kind.Signed() != (kind.String()[0] == 's' && kind != S16x2) {
			t.Errorf("%s: signed %v", kind, kind.Signed())
		}
	}
	if _, ok := ParseType("none"); ok {
		t.Error("ParseType accepts none")
	}
}

func TestTextEndings(t *testing.T) {
	for _, text := range []string{prelude + "\x00\x00", ".version 8.5\n.target sm_90a", prelude + "// no end of line", prelude + "/* c */"} {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// checkError requires that Parse rejects the text with exactly this message.
func checkError(t *testing.T, text, want string) {
	t.Helper()
	module, err := Parse([]byte(text))
	if err == nil {
		t.Errorf("%s: Parse accepted the text, want the error %s", text, want)
		return
	}
	var syntax *SyntaxError
	if module != nil || !errors.As(err, &syntax) || err.Error() != want {
		t.Errorf("%s:\n%v\nwant\n%s", text, err, want)
	}
}

// checkModuleError requires an error in a declaration of module scope, line 4 of the text.
func checkModuleError(t *testing.T, text, message string) {
	t.Helper()
	checkError(t, prelude+text+"\n", (&SyntaxError{Line: 4, Text: text, Msg: message}).Error())
}

// checkBodyError requires an error in the body of a kernel, line 6 of the text.
func checkBodyError(t *testing.T, text, message string) {
	t.Helper()
	checkError(t, frame+text+"\n}\n", (&SyntaxError{Line: 6, Text: text, Msg: message}).Error())
}

func TestHeaderErrors(t *testing.T) {
	checkError(t, "", `line 1: expected .version as the first directive, found the end of the line (in "")`)
	checkError(t, ".target sm_90a", `line 1: expected .version as the first directive, found '.target' (in ".target sm_90a")`)
	checkError(t, ".version 8\n", `line 1: expected a version such as 9.0, found '8' (in ".version 8")`)
	checkError(t, ".version 8.x\n", `line 1: 8.x is not a valid number (in ".version 8.x")`)
	checkError(t, ".version\n", `line 1: expected a version such as 9.0, found the end of the line (in ".version")`)
	checkError(t, ".version 8.5\n", `line 1: expected .target, found the end of the line (in ".version 8.5")`)
	checkError(t, ".version 8.5 .target 90", `line 1: expected a target such as sm_90a, found '90' (in ".version 8.5 .target 90")`)
	checkError(t, ".version 8.5\n.target sm_90a,\n", `line 2: expected a target, found the end of the line (in ".target sm_90a,")`)
	checkError(t, ".version 8.5\n.target sm_90\n.address_size 32", `line 3: 32-bit addresses are not supported; use .address_size 64 (in ".address_size 32")`)
}

func TestDirectiveErrors(t *testing.T) {
	checkModuleError(t, "ret;", "expected a directive, found 'ret'")
	checkModuleError(t, ";", "expected a directive, found ';'")
	checkModuleError(t, ".visible", "expected a declaration, found the end of the line")
	checkModuleError(t, ".reg .b32 r;", ".reg outside a function; declare registers in a function body")
	checkModuleError(t, ".alias f, g;", ".alias is not supported; call the function by its own name")
	checkModuleError(t, ".tex .u32 t;", "unknown directive .tex at module scope")
	checkModuleError(t, "#define x", "PTX has no token that starts with '#'")
	checkModuleError(t, "/* no end", "unterminated comment; close it with */")
	checkModuleError(t, `.pragma "no end;`, "unterminated string; close it with a quote")
	checkModuleError(t, ".pragma nounroll;", "expected a string, found 'nounroll'")
	checkModuleError(t, `.pragma "x"`, "expected ';', found the end of the line")
	checkModuleError(t, `.file x "y"`, "expected a file index, found 'x'")
	checkModuleError(t, ".file 1 y", "expected a quoted file name, found 'y'")
	checkModuleError(t, `.file 99999999999 "x"`, "expected a file index from 0 to 2147483647, found 99999999999")
	checkModuleError(t, ".section debug", "expected a section name such as .debug_str, found 'debug'")
	checkModuleError(t, ".section .debug_str { x: .b8 256 }", "expected a byte from 0 to 255, found 256")
	checkModuleError(t, ".section .debug_str { x: .b8 1", "expected '}', found the end of the line")
}

func TestVariableErrors(t *testing.T) {
	checkModuleError(t, ".global a;", "the declaration has no type; add one such as .b32")
	checkModuleError(t, ".global .pred a;", "only scalar registers can have type .pred; use an integer type")
	checkModuleError(t, ".global .u33 a;", "unknown type .u33; expected one such as .b32")
	checkModuleError(t, ".global .u32 .b32 a;", "a declaration has one type, found .u32 and .b32")
	checkModuleError(t, ".global .v3 .f32 a;", "unknown type .v3; expected one such as .b32")
	checkModuleError(t, ".global .texref t;", ".texref is not supported: textures, samplers and surfaces; use global memory")
	checkModuleError(t, ".global .align 3 .u32 a;", "expected an alignment that is a power of two, found 3")
	checkModuleError(t, ".global .attribute(.managed .u32 a;", "expected ')', found the end of the line")
	checkModuleError(t, ".global .u32 a[", "expected an array size, found the end of the line")
	checkModuleError(t, ".global .u32 a[];", "array a has no size; give one or declare the array .extern")
	checkModuleError(t, ".shared .u32 a[0];", "array a has no size; give one or declare the array .extern")
	checkModuleError(t, ".global .u32 a[2][];", "expected an array size, found ']'")
	checkModuleError(t, ".global .u32 a[2][0];", "only the first dimension of an array may be empty or 0")
	checkModuleError(t, ".global .u32 a[1][1][1][1][1][1][1][1][1];", "array a has more than 8 dimensions")
	checkModuleError(t, ".global .b8 a[1073741825];", "expected an array size from 0 to 1073741824, found 1073741825")
	checkModuleError(t, ".global .u64 a[1073741824];", "array a is larger than 1073741824 bytes")
	checkModuleError(t, ".global .u64 a[65536][65536];", "array a is larger than 1073741824 bytes")
	checkModuleError(t, ".global .u64 a[][1073741824] = {};", "array a is larger than 1073741824 bytes")
	checkModuleError(t, ".global .u64 a[][134217728] = {{}, {}};", "array a is larger than 1073741824 bytes")
	checkModuleError(t, ".global .b8 a[2][536870912] = {{1}, {1}};", "the module has more than 67108864 bytes of initialisers")
	checkModuleError(t, ".global .u32 a; .const .u32 a;", "a is already declared in line 4")
	checkModuleError(t, ".func f; .global .u32 f;", "f is already declared in line 4")
	checkModuleError(t, ".shared .u32 a = 1;", "a in .shared cannot have an initialiser; only .global and .const can")
	checkModuleError(t, ".extern .global .u32 a = 1;", "a is .extern and has an initialiser; remove one of the two")
	checkModuleError(t, ".global .u32 a = 1.5;", "cannot initialise type .u32 with a floating-point constant")
	checkModuleError(t, ".global .f32 a = 1;", "cannot initialise type .f32 with an integer constant")
	checkModuleError(t, ".global .f16 a = 1.5;", "cannot initialise type .f16 with a floating-point constant")
	checkModuleError(t, ".global .u32 a = {1};", "expected a constant, found '{'")
	checkModuleError(t, ".global .u32 a[2] = 1;", "expected '{', found '1'")
	checkModuleError(t, ".global .u32 a[2] = {1, 2, 3};", "too many values for a: this dimension has size 2")
	checkModuleError(t, ".global .u32 a[2][2] = {{1, 2, 3}};", "too many values for a: this dimension has size 2")
	checkModuleError(t, ".global .u32 a[2] = {1,};", "expected a value, found '}'")
	checkModuleError(t, ".global .u32 a[2] = {1", "expected ',', found the end of the line")
	checkModuleError(t, ".global .u32 a[2] = {", "unterminated initialiser; close it with '}'")
	checkModuleError(t, ".global .u64 a = b;", "unknown name b; declare it before its use")
	checkModuleError(t, ".global .u32 b; .global .u8 a = b;", "an address does not fit into type .u8; use a 4-byte or 8-byte type")
	checkModuleError(t, ".global .u32 b; .global .u8 a = 0xFF0(b);", "an address mask must select one byte, such as 0xFF00, for a 1-byte element")
	checkModuleError(t, ".global .u32 b; .global .u64 a = b + b;", "expected a constant offset, found b; compute the address in a register")
	checkModuleError(t, ".global .u32 b; .global .u64 a = b + 1.5;", "expected an integer offset, found a floating-point constant")
}

func TestFunctionErrors(t *testing.T) {
	checkModuleError(t, ".func f() {ret;} .func f() {ret;}", "function f is already defined in line 4")
	checkModuleError(t, ".global .u32 f; .func f() {ret;}", "f is already declared in line 4")
	checkModuleError(t, ".func f(.param .b32 a); .func f(.param .b64 a) {ret;}", "the parameters of function f differ from its declaration in line 4")
	checkModuleError(t, ".func f(.param .b32 a); .func f() {ret;}", "the parameters of function f differ from its declaration in line 4")
	checkModuleError(t, ".extern .func f() {ret;}", "function f is .extern and has a body; remove one of the two")
	checkModuleError(t, ".func f(.shared .b32 a);", "expected a parameter (.param or .reg), found '.shared'")
	checkModuleError(t, ".func f(.param .b32 a .param .b32 b);", "expected ',', found '.param'")
	checkModuleError(t, ".func f(.reg .b32 a[2]);", "register parameter a must not be an array; use .param for arrays")
	checkModuleError(t, ".func f(.param .b32 a, .param .b32 a);", "a is already declared in this scope")
	checkModuleError(t, ".entry k(.reg .b32 a) {ret;}", "parameter a of an .entry cannot be a register; use .param")
	checkModuleError(t, ".entry (.param .b32 a) k() {ret;}", "expected a function name, found '('")
	checkModuleError(t, ".entry k() .maxntid x {ret;}", "expected an integer, found 'x'")
	checkModuleError(t, ".entry k() .fast {ret;}", "unknown directive .fast of a function")
	checkModuleError(t, ".entry k()", "expected ';', found the end of the line")
	checkModuleError(t, ".entry k() { ret;", "function k has no closing brace")
}

func TestOperandErrors(t *testing.T) {
	checkBodyError(t, "add.u32 %r9, %r1, 1;", "unknown register %r9; declare it with .reg")
	checkBodyError(t, "add.u32 %r01, %r1, 1;", "unknown register %r01; declare it with .reg")
	checkBodyError(t, "add.u32 x, %r1, 1;", "unknown name x; declare it before its use")
	checkBodyError(t, "@x ret;", "unknown register x; declare it with .reg")
	checkBodyError(t, "@%r1 ret;", "expected a predicate register, found %r1")
	checkBodyError(t, "@s ret;", "expected a predicate register, found s")
	checkBodyError(t, "@1 ret;", "expected a predicate, found '1'")
	checkBodyError(t, "@p { ret; }", "expected an instruction, found '{'")
	checkBodyError(t, "@p", "expected an instruction, found the end of the line")
	checkBodyError(t, "mov.pred p, !%r1;", "expected a predicate register, found %r1")
	checkBodyError(t, "add.u32 %r1, %r2, -%r3;", "expected a constant, found '%r3'")
	checkBodyError(t, "add.u32 %r1, %r2,;", "expected an operand, found ';'")
	checkBodyError(t, "add.u32 %r1 %r2;", "expected ';', found '%r2'")
	checkBodyError(t, "add.u32 %r1, 1", "expected ';', found the end of the line")
	checkBodyError(t, "add.u32 %r1, 1 mov.u32 %r1, 2;", "expected ';', found 'mov'")
	checkBodyError(t, "add..u32 %r1, 1;", "expected a modifier after the dot in add..u32")
	checkBodyError(t, ";", "expected an instruction, found ';'")
	checkBodyError(t, "vadd.u32 %r1, %r2.b0, %r3;", "%r2.b0: byte and halfword selectors are not supported; extract the part with bfe")
	checkBodyError(t, "mov.u32 %r1, s[3][1];", "the array s has 1 dimensions")
	checkBodyError(t, "mov.u32 %r1, s[%r2];", "an index in a register is not supported; add it to the address of s")
	checkBodyError(t, "mov.b32 %r1, v.q;", "a vector register of 4 components has no component .q")
	checkBodyError(t, "mov.b32 %r1, v.xy;", "a vector register of 4 components has no component .xy")
	checkBodyError(t, "mov.b32 %r1, %tid.q;", "the special register %tid has no component .q")
	checkBodyError(t, "mov.b32 %r1, %nosuch;", "unknown register %nosuch; declare it with .reg")
	checkBodyError(t, "mov.b64 {}, %rd1;", "expected a vector component, found '}'")
	checkBodyError(t, "mov.b64 {{%r1}, %r2}, %rd1;", "expected a vector component, found '{'")
	checkBodyError(t, "mov.b64 {%r1, %r2, %rd1;", "expected '}', found ';'")
	checkBodyError(t, "setp.eq.u32 p|1, %r1, 1;", "expected a register, found '1'")
	checkBodyError(t, "setp.eq.u32 p|q|p, %r1, 1;", "expected ';', found '|'")
	checkBodyError(t, "ld.u32 %r1, [%rd1+%rd2];", "expected a constant offset, found %rd2; compute the address in a register")
	checkBodyError(t, "ld.u32 %r1, [4+%rd2];", "expected a constant, found '%rd2'")
	checkBodyError(t, "ld.u32 %r1, [%rd1;", "expected ']', found ';'")
	checkBodyError(t, "ld.u32 %r1, [[%rd1]];", "expected an address, found '['")
	checkBodyError(t, "ld.u32 %r1, [%rd1, [%rd2]];", "expected a register or a vector, found '['")
	checkBodyError(t, "ld.u32 %r1, [_];", "expected a register, a symbol or an integer as the address")
}

func TestBranchAndCallErrors(t *testing.T) {
	checkBodyError(t, "bra L; { L: ret; }", "unknown label L; no scope around the branch defines it")
	checkBodyError(t, "bra %r1;", "unknown label %r1; no scope around the branch defines it")
	checkBodyError(t, "bra;", "expected a label, found ';'")
	checkBodyError(t, "bra L, M; L: M:", "expected ';', found ','")
	checkBodyError(t, "L: ret; L: ret;", "label L is already defined in this scope")
	checkBodyError(t, "brx.idx %r1, T; T: .branchtargets A; A:", "T is not a .branchtargets list; declare the list before brx.idx")
	checkBodyError(t, "T: .branchtargets ; A:", "expected a label, found ';'")
	checkBodyError(t, "T: .branchtargets A; T: .branchtargets A; A:", "T is already declared in this scope")
	checkBodyError(t, "mov.u32 %r1, T; T: .branchtargets A; A:", "unknown name T; declare it before its use")
	checkBodyError(t, "T: .branchtargets L<0>;", "expected at least one label in .branchtargets")
	checkBodyError(t, ".branchtargets A;", ".branchtargets has no label; write it as NAME: .branchtargets ...;")
	checkBodyError(t, "call g;", "unknown name g; declare it before its use")
	checkBodyError(t, "call s;", "expected a function, or a register with a .calltargets list or a .callprototype")
	checkBodyError(t, "call %rd1;", "expected a function, or a register with a .calltargets list or a .callprototype")
	checkBodyError(t, "call %rd1, (%r1), P;", "P is not a .calltargets list or .callprototype; declare it before the call")
	checkBodyError(t, "call f, (%r1);", "the call has 1 arguments and 0 return values; the function has 1 and 1")
	checkBodyError(t, "call (%r1), f, (%r1, [%r2]);", "expected a call argument, found '['")
	checkBodyError(t, "call (%r1), f, (%r1", "expected ')', found the end of the line")
	checkBodyError(t, "P: .calltargets g;", "unknown function g; declare it before its use")
	checkBodyError(t, "P: .callprototype g ();", "expected _ in place of the function name, found g")
}

func TestBodyDeclarationErrors(t *testing.T) {
	checkBodyError(t, ".reg .b32 %r<4>;", "%r<n> is already declared in this scope")
	checkBodyError(t, ".reg .b32 %r4;", "%r4 is already declared in this scope")
	checkBodyError(t, ".reg .b32 %z3; .reg .b32 %z<4>;", "%z3 is already declared in this scope")
	checkBodyError(t, ".reg .b32 p0;", "p0 is already declared in this scope")
	checkBodyError(t, ".reg .b32 %x<4000000000>;", "expected a register count from 0 to 1048576, found 4000000000")
	checkBodyError(t, ".reg .v4 .b32 %x<1048576>;", "the module declares more than 1048576 registers and numbered names")
	checkBodyError(t, ".reg .b32 %x<1048000>; .reg .b32 %y<1000>;", "the module declares more than 1048576 registers and numbered names")
	checkBodyError(t, ".shared .b32 x<1048576>;", "the module declares more than 1048576 registers and numbered names")
	checkBodyError(t, "T: .branchtargets L<1048576>;", "the module declares more than 1048576 registers and numbered names")
	checkBodyError(t, ".reg .b32 %x<2+1>;", "expected '>', found '+'")
	checkBodyError(t, ".reg .v2 .pred z;", "only scalar registers can have type .pred; use an integer type")
	checkBodyError(t, ".reg .b32 z[3];", "expected ';', found '['")
	checkBodyError(t, ".reg .b32 3;", "expected a register name, found '3'")
	checkBodyError(t, ".shared .b32;", "expected a variable name, found ';'")
	checkBodyError(t, ".extern .shared .b32 x[];", "unknown directive .extern in a function body")
	checkBodyError(t, ".loc 1 2 x", "expected a column number, found 'x'")
	checkBodyError(t, ".loc 1 2 3, is_stmt 1", "unknown .loc attribute is_stmt; expected function_name or inlined_at")
	checkBodyError(t, ".loc 1 2 3, function_name f+1 ret;", "function_name f+1 is not in .debug_str")
	checkBodyError(t, strings.Repeat("{", 101), "scopes and expressions are nested deeper than 100 levels")
}

func TestConstantErrors(t *testing.T) {
	constant := func(text, message string) {
		t.Helper()
		checkBodyError(t, "mov.b64 %rd1, "+text+";", message)
	}
	constant("0x", "0x is not a valid number")
	constant("0x1g", "0x1g is not a valid number")
	constant("018", "018 is not a valid number")
	constant("0b2", "0b2 is not a valid number")
	constant("12u", "12u is not a valid number")
	constant("1.5f", "1.5f is not a valid number")
	constant("1.5U", "1.5U is not a valid number")
	constant("1e", "1e is not a valid number")
	constant("1_000", "1_000 is not a valid number")
	constant("0o7", "0o7 is not a valid number")
	constant("0f3f80", "0f3f80 is not a valid number: 0f takes 8 hexadecimal digits")
	constant("0d3f80", "0d3f80 is not a valid number: 0d takes 16 hexadecimal digits")
	constant("'a'", `PTX has no token that starts with '\''`)
	constant("18446744073709551616", "18446744073709551616 does not fit into 64 bits")
	constant("1/0", "division by zero in a constant expression")
	constant("1%(1-1)", "division by zero in a constant expression")
	constant("1.5*2", "operator * needs two integers or two decimal fractions")
	constant("0f3F800000+0f3F800000", "operator + needs two integers or two decimal fractions")
	constant("1.5%1", "expected ';', found '%1'")
	constant("1.5 % 1.5", "operator % does not apply to floating-point constants")
	constant("-0f3F800000", "operator - does not apply to this floating-point constant")
	constant("~1.5", "operator ~ does not apply to this floating-point constant")
	constant("!1.5", "operator ! does not apply to this floating-point constant")
	constant("1 ? 1.5 : 2.5", "expected integer operands of ?:, found a floating-point constant")
	constant("1 ? 2", "expected ':', found ';'")
	constant("(.s32) 1", "cannot cast this constant to .s32; integers can be cast to .s64 and .u64")
	constant("(.u64) 1.5", "cannot cast this constant to .u64; integers can be cast to .s64 and .u64")
	constant("(1", "expected ')', found ';'")
	constant("(%r1)", "expected a constant, found '%r1'")
	constant(strings.Repeat("-", 200)+"1", "scopes and expressions are nested deeper than 100 levels")
	constant(strings.Repeat("(.u64)", 30)+strings.Repeat("(", 80)+"1", "scopes and expressions are nested deeper than 100 levels")
	constant(strings.Repeat("1?1:", 150)+"1", "scopes and expressions are nested deeper than 100 levels")
}

func TestLongErrors(t *testing.T) {
	_, err := Parse([]byte(prelude + strings.Repeat("x ", 1000)))
	want := "line 4: expected a directive, found 'x' (in \"" + strings.Repeat("x ", 100) + " ...\")"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
	_, err = Parse(make([]byte, maxText+1))
	var syntax *SyntaxError
	if !errors.As(err, &syntax) || syntax.Msg != fmt.Sprintf("the text has %d bytes; the limit is %d bytes", maxText+1, maxText) {
		t.Errorf("wrong error for a text beyond the limit: %.200v", err)
	}
}
