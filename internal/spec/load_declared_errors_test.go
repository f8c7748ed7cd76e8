package spec

import (
	"strings"
	"testing"
)

func TestDeclaredFileErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`name = "rmsnorm"`, "name = \"rmsnorm\"\nproblem = \"declard\"",
		`kernel.toml:2: unknown problem "declard"; did you mean "declared"?`)
	swap(`name = "rmsnorm"`, "name = \"rmsnorm\"\nproblem = \"attention\"",
		`kernel.toml:1: the file has no "about"`,
		`kernel.toml:1: the file has no "stage"`,
		`kernel.toml:1: the file has no "run"`,
		`kernel.toml:3: unknown key "source" in the file; there are problem, name, about, allow, knob, constraint, retired, shapes, stage, selection, run, tolerance, random`,
		`kernel.toml:4: unknown key "entry" in the file; there are problem, name, about, allow, knob, constraint, retired, shapes, stage, selection, run, tolerance, random`,
		`kernel.toml:5: unknown key "flags" in the file; there are problem, name, about, allow, knob, constraint, retired, shapes, stage, selection, run, tolerance, random`,
		`kernel.toml:7: "shapes" in the file is a table; want an array of tables, each under [[shapes]]`,
		`kernel.toml:12: unknown key "arg" in the file; there are problem, name, about, allow, knob, constraint, retired, shapes, stage, selection, run, tolerance, random`,
		`kernel.toml:36: unknown key "launch" in the file; there are problem, name, about, allow, knob, constraint, retired, shapes, stage, selection, run, tolerance, random`,
		`kernel.toml:41: unknown key "reference" in the file; there are problem, name, about, allow, knob, constraint, retired, shapes, stage, selection, run, tolerance, random`,
		`kernel.toml:46: [tolerance] has no "max_err"`,
		`kernel.toml:46: [tolerance] has no "mean_err"`,
		`kernel.toml:46: [tolerance] has no "atol"`,
		`kernel.toml:46: [tolerance] has no "rtol"`,
		`kernel.toml:46: [tolerance] has no "bad_fraction"`,
		`kernel.toml:47: unknown key "y" in [tolerance]; there are max_err, mean_err, atol, rtol, bad_fraction`,
		`kernel.toml:49: unknown key "work" in the file; there are problem, name, about, allow, knob, constraint, retired, shapes, stage, selection, run, tolerance, random`,
		`kernel.toml:53: [[knob]] has no "layer"`,
		`kernel.toml:53: [[knob]] has no "about"`)
	swap(`name = "rmsnorm"`, `nmae = "rmsnorm"`,
		`kernel.toml:1: the file has no "name"`,
		`kernel.toml:1: unknown key "nmae" in the file; did you mean "name"?`)
	swap(`source = "rmsnorm.cu"`, `source = "rmsnrm.cu"`,
		`kernel.toml:2: "source" in the file: there is no file rmsnrm.cu beside kernel.toml; did you mean "rmsnorm.cu"?`)
	swap(`source = "rmsnorm.cu"`, `source = ""`, `kernel.toml:2: "source" in the file is empty`)
	swap(`name = "rmsnorm"`, `name = "other-one"`, none)
	swap("name = \"rmsnorm\"\nsource = \"rmsnorm.cu\"", `name = "rms"`, `kernel.toml:1: the file has no "source", and there is no file rms.cu beside kernel.toml`)
	swap(`source = "rmsnorm.cu"`, `source = "../rmsnorm.cu"`,
		`kernel.toml:2: "source" in the file is "../rmsnorm.cu"; want a path below the directory of kernel.toml`)
	swap(`source = "rmsnorm.cu"`, `source = "./rmsnorm.cu"`, none)
	swap(`source = "rmsnorm.cu"`, `source = "expected"`,
		`kernel.toml:2: "source" in the file: expected is no file`)
	swap(`entry = "rmsnorm"`, `entry = "rms norm"`,
		`kernel.toml:3: "entry" in the file is "rms norm"; want a letter or _, then letters, digits or _`)
	const known = "sm_75, sm_80, sm_86, sm_87, sm_88, sm_89, sm_90, sm_90a, sm_100, sm_100a, sm_103, sm_103a, sm_110, sm_110a, sm_120, sm_120a, sm_121, sm_121a"
	swap(`entry = "rmsnorm"`, `archs = ["sm_100a", "sm_99", "sm_89a", "sm_70"]`,
		`kernel.toml:3: "archs" in the file: the compiler does not know sm_99; it knows `+known,
		`kernel.toml:3: "archs" in the file: the compiler does not know sm_89a; it knows `+known,
		`kernel.toml:3: "archs" in the file: the compiler does not know sm_70; it knows `+known)
	swap(`flags = ["-I../include"]`, `flags = "-O3"`,
		`kernel.toml:4: "flags" in the file is a string; want an array of strings`)
	swap(`flags = ["-I../include"]`, `flags = ["-I", "a", "-I", "", 3]`,
		`kernel.toml:4: "flags" in the file: a flag is empty`,
		`kernel.toml:4: "flags" in the file: an item is an integer; want a string`)
	swap(`flags = ["-I../include"]`, `flags = ["-O3 -lineinfo", "-I include", "-I../with a space", "-DTEXT=a b"]`,
		`kernel.toml:4: "flags" in the file: "-O3 -lineinfo" is more than one word of a command line; split it: "-O3", "-lineinfo"`,
		`kernel.toml:4: "flags" in the file: "-I include" is more than one word of a command line; split it: "-I", "include"`)
}

func TestDeclaredShapeErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`[shapes]`, `[[shapes]]`,
		`kernel.toml:6: "shapes" in the file is an array; want a table [shapes] with lines such as small = { n = 256 }`,
		`kernel.toml:14: "shape" in [[arg]] "x" is "rows": unknown axis or knob "rows"; there are THREADS; [shapes] declares no axis`,
		`kernel.toml:14: "shape" in [[arg]] "x" is "n": unknown axis or knob "n"; there are THREADS; [shapes] declares no axis`)
	swap(`[shapes]`, `[shape]`,
		`kernel.toml:6: unknown key "shape" in the file; did you mean "shapes"?`,
		`kernel.toml:14: "shape" in [[arg]] "x" is "rows": unknown axis or knob "rows"; there are THREADS; [shapes] declares no axis`,
		`kernel.toml:14: "shape" in [[arg]] "x" is "n": unknown axis or knob "n"; there are THREADS; [shapes] declares no axis`)
	swap(`small = { rows = 8, n = 256 }`, `small = { rows = 8 }`,
		`kernel.toml:7: shape "small" has no axis "n", which shape "main" has`)
	swap(`small = { rows = 8, n = 256 }`, `small = { row = 8, n = 256 }`,
		`kernel.toml:7: shape "small" has no axis "rows", which shape "main" has`,
		`kernel.toml:8: shape "main" has no axis "row", which shape "small" has`)
	swap(`small = { rows = 8, n = 256 }`, `small = { rows = 0, n = 256 }`,
		`kernel.toml:14: "shape" in [[arg]] "x" ("rows") for rows=0,n=256: it is 0; want 1 to 2147483647`,
		`kernel.toml:24: "shape" in [[arg]] "y" ("rows") for rows=0,n=256: it is 0; want 1 to 2147483647`,
		`kernel.toml:36: "grid" in [launch] ("rows") for rows=0,n=256: it is 0; want 1 to 2147483647`)
	swap(`small = { rows = 8, n = 256 }`, `small = { rows = -8, n = 256.5 }`,
		`kernel.toml:7: "rows" in shape "small" is -8; want an integer from 0 to 2147483647`,
		`kernel.toml:7: "n" in shape "small" is a float; want an integer`)
	swap("small = { rows = 8, n = 256 }\nmain = { rows = 4096, n = 4096 }\n", "", `kernel.toml:6: [shapes] has no shape; write one such as small = { n = 256 }`,
		`kernel.toml:7: "benchmark" in [shapes]: unknown shape "main"; there are none`,
		`kernel.toml:12: "shape" in [[arg]] "x" is "rows": unknown axis or knob "rows"; there are THREADS; [shapes] declares no axis`,
		`kernel.toml:12: "shape" in [[arg]] "x" is "n": unknown axis or knob "n"; there are THREADS; [shapes] declares no axis`)
	swap(`small = { rows = 8, n = 256 }`, `small = 8`,
		`kernel.toml:7: "small" in [shapes] is an integer; want a table`)
	swap(`small = { rows = 8, n = 256 }`, `"sm all" = { rows = 8, n = 256 }`,
		`kernel.toml:7: "sm all" in [shapes] is no name of a shape; want letters, digits, _ and -`)
	swap(`small = { rows = 8, n = 256 }`, `small = { rows = 8, n = 256, THREADS = 1, for = 2, max = 1, inf = 2, "a b" = 1, True = 1 }`,
		`kernel.toml:7: axis "THREADS" in shape "small" has the name of a knob; choose another name`,
		`kernel.toml:7: axis "for" in shape "small" has the name of a Starlark keyword; choose another name`,
		`kernel.toml:7: axis "max" in shape "small" has the name of a function; choose another name`,
		`kernel.toml:7: axis "inf" in shape "small" has the name of a constant; choose another name`,
		`kernel.toml:7: axis "a b" in shape "small" is no name of an axis; want a letter, then letters, digits or _`,
		`kernel.toml:7: axis "True" in shape "small" has the name of a constant; choose another name`,
		`kernel.toml:8: shape "main" has no axis "THREADS", which shape "small" has`,
		`kernel.toml:8: shape "main" has no axis "for", which shape "small" has`,
		`kernel.toml:8: shape "main" has no axis "max", which shape "small" has`,
		`kernel.toml:8: shape "main" has no axis "inf", which shape "small" has`,
		`kernel.toml:8: shape "main" has no axis "a b", which shape "small" has`,
		`kernel.toml:8: shape "main" has no axis "True", which shape "small" has`)
}

func TestDeclaredRunErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`benchmark = ["main"]`, `benchmark = ["mian", 3]`,
		`kernel.toml:9: "benchmark" in [shapes]: unknown shape "mian"; did you mean "main"?`,
		`kernel.toml:9: "benchmark" in [shapes]: an item is an integer; want a string`)
	swap(`benchmark = ["main"]`, `benchmark = []`,
		`kernel.toml:9: "benchmark" in [shapes] is empty; want shapes`)
	swap(`[work]`, "[run]\nshapes = [\"main\", \"smal\"]\nbenchmark = [\"small\"]\nsim_shapes = [\"rows=1\"]\nseeds = [-1]\nsim_seeds = [\"a\"]\nquick = 3\nquik = 1\n[work]",
		`kernel.toml:49: "shapes" in [run]: unknown shape "smal"; did you mean "small"?`,
		`kernel.toml:50: "benchmark" is in [shapes] and in [run]; remove one`,
		`kernel.toml:51: "sim_shapes" in [run]: shape "rows=1" has no n; the axes are rows, n`,
		`kernel.toml:52: "seeds" in [run]: seed -1 is below 0`,
		`kernel.toml:53: "sim_seeds" in [run]: an item is a string; want an integer`,
		`kernel.toml:54: "quick" in [run] is an integer; want an array of shapes`,
		`kernel.toml:55: unknown key "quik" in [run]; did you mean "quick"?`)
	swap(`[work]`, "[run]\nshapes = [\"small\", \"rows=0,n=256\", \"main\"]\n[work]",
		`kernel.toml:14: "shape" in [[arg]] "x" ("rows") for rows=0,n=256: it is 0; want 1 to 2147483647`,
		`kernel.toml:24: "shape" in [[arg]] "y" ("rows") for rows=0,n=256: it is 0; want 1 to 2147483647`,
		`kernel.toml:36: "grid" in [launch] ("rows") for rows=0,n=256: it is 0; want 1 to 2147483647`)
	swap(`[work]`, "[run]\nshapes = \"small\"\nquick = \"smal\"\n[work]",
		`kernel.toml:9: "benchmark" in [shapes]: shape main is not among the "shapes" of a run`,
		`kernel.toml:50: "quick" in [run]: unknown shape "smal"; did you mean "small"?`)
}

func TestDeclaredArgErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`type = "f16"`, `type = "fp16"`,
		`kernel.toml:13: unknown type "fp16" in [[arg]] "x"; did you mean "f16"? There are f64, f32, f16, bf16, e4m3, e5m2, i8, u8, i32, u32, i64, u64`)
	swap(`type = "i32"`, `type = "int"`,
		`kernel.toml:28: unknown type "int" in [[arg]] "n"; did you mean "i32"? There are f64, f32, f16, bf16, e4m3, e5m2, i8, u8, i32, u32, i64, u64`)
	swap("type = \"i32\"\nvalue = \"n\" ", "type = \"u64\"\nvalue = \"18446744073709551615\" ", none)
	swap("type = \"i32\"\nvalue = \"n\" ", "type = \"u64\"\nvalue = \"18446744073709551616\" ",
		`kernel.toml:29: "value" in [[arg]] "n" ("18446744073709551616") for rows=8,n=256: it is 18446744073709551616; u64 has 0 to 18446744073709551615`)
	swap("type = \"i32\"\nvalue = \"n\" ", "type = \"u64\"\nvalue = \"n - 257\" ",
		`kernel.toml:29: "value" in [[arg]] "n" ("n - 257") for rows=8,n=256: it is -1; u64 has 0 to 18446744073709551615`)
	swap("type = \"i32\"\nvalue = \"n\" ", "type = \"u64\"\nvalue = \"n // (n - 256)\" ",
		`kernel.toml:29: "value" in [[arg]] "n" ("n // (n - 256)") for rows=8,n=256: floored division by zero`)
	swap("type = \"i32\"\nvalue = \"n\" ", "type = \"u64\"\nvalue = \"n > 3\" ", none)
	swap("type = \"i32\"\nvalue = \"n\" ", "type = \"i32\"\nvalue = \"n ** 2\" ",
		`kernel.toml:29: "value" in [[arg]] "n" is "n ** 2": column 3: there is no power operator **; multiply, or shift as in 1 << n`)
	swap("type = \"i32\"\nvalue = \"n\" ", "type = \"i32\"\nvalue = \"m"+strings.Repeat(" + n", 30)+"\" ",
		`kernel.toml:29: "value" in [[arg]] "n" is "m`+strings.Repeat(" + n", 19)+` +…": unknown axis or knob "m"; there are rows, n, THREADS`)
	swap(`type = "f16"`, `type = "'bf16' if THREADS > 64 else ('f16')"`, none)
	swap(`type = "f16"`, `type = "('f16')"`, none)
	swap(`type = "f16"`, `type = "'f16' if n > 64 else 'bf16'"`,
		`kernel.toml:13: "type" in [[arg]] "x" is "'f16' if n > 64 else 'bf16'": a type depends on knobs only, and n is an axis`)
	swap(`type = "f16"`, `type = "'f16' if THREADS > 64 else 'i8'"`,
		`kernel.toml:13: "type" in [[arg]] "x" is "'f16' if THREADS > 64 else 'i8'": f16 and i8; want floating-point types or integer types, not both`)
	swap(`type = "f16"`, `type = "'f16' if THREADS > 64 else 8"`,
		`kernel.toml:13: "type" in [[arg]] "x": want types in quotes, such as "'bf16' if USE_BF16 else 'f16'"`)
	swap(`type = "f16"`, `type = "'f16' if THREAD > 64 else 'bf16'"`,
		`kernel.toml:13: "type" in [[arg]] "x" is "'f16' if THREAD > 64 else 'bf16'": unknown axis or knob "THREAD"; did you mean "THREADS"?`)
	swap(`type = "f16"`, `typ = "f16"`,
		`kernel.toml:11: [[arg]] "x" has no "type"`,
		`kernel.toml:13: unknown key "typ" in [[arg]] "x"; did you mean "type"?`)
	swap(`shape = ["rows", "n"]`, `shape = ["row", "n / 2"]`,
		`kernel.toml:14: "shape" in [[arg]] "x" is "row": unknown axis or knob "row"; did you mean "rows"?`,
		`kernel.toml:14: "shape" in [[arg]] "x" ("n / 2") for rows=8,n=256: the result is a float; want a boolean or an integer (// divides without a fraction)`)
	swap(`shape = ["rows", "n"]`, `shape = []`,
		`kernel.toml:14: "shape" in [[arg]] "x" has 0 expressions; want 1 to 32`)
	swap(`shape = ["rows", "n"]`, `shape = ["rows // (rows - 8)", "n"]`,
		`kernel.toml:14: "shape" in [[arg]] "x" ("rows // (rows - 8)") for rows=8,n=256: floored division by zero`)
	swap(`shape = ["rows", "n"]`, `shape = [true, { a = 1 }]`,
		`kernel.toml:14: "shape" in [[arg]] "x" is a boolean; want an expression or a number`,
		`kernel.toml:14: "shape" in [[arg]] "x" is a table; want an expression or a number`)
	swap(`shape = ["rows", "n"]`, `shape = ["rows *", "'x'"]`,
		`kernel.toml:14: "shape" in [[arg]] "x" is "rows *": column 7: got end of file, want primary expression`,
		`kernel.toml:14: "shape" in [[arg]] "x" is "'x'": column 1: an expression may contain only axes, knobs, numbers, operators, min, max, abs, int, float, ceil, floor, sqrt, and lists after "in"`)
	swap(`shape = ["rows", "n"]`, `shape = ["rows * rows", "n * n"]`,
		`kernel.toml:14: "shape" in [[arg]] "x" for rows=4096,n=4096: it has more than 2147483648 elements: 16777216 x 16777216`)
	swap(`out = true`, `out = 1`,
		`kernel.toml:25: "out" in [[arg]] "y" is an integer; want true or false`,
		`kernel.toml:30: no [[arg]] is an output; add out = true or inout = true to one`)
	swap(`out = true`, "out = true\nfill = \"zeros\"",
		`kernel.toml:26: "fill" in [[arg]] "y": an output has no initial contents; use inout = true for a buffer that is updated in place`)
	swap(`out = true`, "out = true\ninout = true",
		`kernel.toml:26: [[arg]] "y" has both "out" and "inout"; an argument has one role`)
	swap(`out = true`, `out = false`,
		`kernel.toml:30: no [[arg]] is an output; add out = true or inout = true to one`)
	swap(`name = "w"`, `name = "x"`,
		`kernel.toml:17: [[arg]] "x" is declared twice`)
	swap(`name = "w"`, `name = "w w"`,
		`kernel.toml:17: "name" in [[arg]] is "w w"; want a letter or _, then letters, digits or _`)
	swap(`value = "n"`, `value = "m"`,
		`kernel.toml:29: "value" in [[arg]] "n" is "m": unknown axis or knob "m"; there are rows, n, THREADS`)
	swap(`value = "n"`, "value = \"n\"\nshape = [\"n\"]",
		`kernel.toml:30: "shape" in [[arg]] "n": an argument with a "value" is a scalar; remove the key`)
	swap(`value = "n"`, `vale = "n"`,
		`kernel.toml:26: [[arg]] "n" has no "shape"; a buffer needs it, and a scalar needs a "value"`,
		`kernel.toml:29: unknown key "vale" in [[arg]] "n"; did you mean "value"?`)
	swap(`value = "n"`, `value = "n / 2"`,
		`kernel.toml:29: "value" in [[arg]] "n" ("n / 2") for rows=8,n=256: the result is a float; want a boolean or an integer (// divides without a fraction)`)
	swap(`value = "n"`, `value = "n * n * n"`,
		`kernel.toml:29: "value" in [[arg]] "n" ("n * n * n") for rows=4096,n=4096: it is 68719476736; i32 has -2147483648 to 2147483647`)
	swap(`value = "1e-5"`, `value = " "`, `kernel.toml:33: "value" in [[arg]] "eps" is empty`)
	swap(`value = "1e-5"`, `value = inf`, none)
	swap(`value = "1e-5"`, `value = nan`, none)
	swap(`value = "1e-5"`, `value = "min"`, `kernel.toml:33: "value" in [[arg]] "eps" is "min": unknown axis or knob "min"; there are rows, n, THREADS`)
	swap(`value = "1e-5"`, `value = "min(1, 2, key = 3)"`,
		`kernel.toml:33: "value" in [[arg]] "eps" is "min(1, 2, key = 3)": column 11: an expression may contain only `+
			`axes, knobs, numbers, operators, min, max, abs, int, float, ceil, floor, sqrt, and lists after "in"`)
	swap(`value = "1e-5"`, `value = "float(int)"`,
		`kernel.toml:33: "value" in [[arg]] "eps" is "float(int)": unknown axis or knob "int"; there are rows, n, THREADS`)
	swap(`value = "1e-5"`, `value = "sqrt(-1)"`, none)
	swap(`value = "1e-5"`, `value = 1e300`,
		`kernel.toml:33: "value" in [[arg]] "eps" ("1e+300") for rows=8,n=256: it is 1e+300; the largest f32 is 3.4028e+38`)
	swap(`value = "1e-5"`, `value = true`,
		`kernel.toml:33: "value" in [[arg]] "eps" is a boolean; want an expression or a number`)
	swap(`[[arg]]`, `[[args]]`,
		`kernel.toml:11: unknown key "args" in the file; did you mean "arg"?`)
	swap(`type = "f16"`, `type = "__half"`,
		`kernel.toml:13: unknown type "__half" in [[arg]] "x"; did you mean "f16"? There are f64, f32, f16, bf16, e4m3, e5m2, i8, u8, i32, u32, i64, u64`)
	swap(`type = "f16"`, `type = "int32_t"`,
		`kernel.toml:13: unknown type "int32_t" in [[arg]] "x"; did you mean "i32"? There are f64, f32, f16, bf16, e4m3, e5m2, i8, u8, i32, u32, i64, u64`)
	swap(`type = "f16"`, `type = "u8"`,
		`kernel.toml:15: "fill" in [[arg]] "x" is "normal": normal draws real numbers, and u8 is an integer type; use integers(a, b)`)
}

func TestDeclaredFillErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`fill = "normal"`, `fill = "nromal"`,
		`kernel.toml:15: "fill" in [[arg]] "x" is "nromal": unknown fill "nromal"; did you mean "normal"?`)
	swap(`fill = "normal"`, `fill = "normal(0, 1)"`,
		`kernel.toml:15: "fill" in [[arg]] "x" is "normal(0, 1)": normal takes no numbers`)
	swap(`fill = "normal"`, `fill = "uniform"`,
		`kernel.toml:15: "fill" in [[arg]] "x" is "uniform": uniform takes two numbers, such as uniform(0, 10)`)
	swap(`fill = "normal"`, `fill = "uniform(1, 0)"`,
		`kernel.toml:15: "fill" in [[arg]] "x" for rows=8,n=256: uniform(1, 0): the first number is above the second`)
	swap(`fill = "normal"`, `fill = "uniform(-1, rowz)"`,
		`kernel.toml:15: "fill" in [[arg]] "x" is "uniform(-1, rowz)": unknown axis or knob "rowz"; did you mean "rows"?`)
	swap(`fill = "normal"`, `fill = "uniform(0, 1e9)"`,
		`kernel.toml:15: "fill" in [[arg]] "x" for rows=8,n=256: uniform(0, 1000000000): f16 has -65504 to 65504`)
	swap(`fill = "normal"`, `fill = "1 + 2"`,
		`kernel.toml:15: "fill" in [[arg]] "x" is "1 + 2": want one of normal, uniform, zeros, ones, iota, integers, offsets`)
	swap(`fill = "normal"`, `fill = "uniform(0, 1"`,
		`kernel.toml:15: "fill" in [[arg]] "x" is "uniform(0, 1": column 13: got end of file, want ')'`)
	swap(`fill = "normal"`, `fill = "iota"`,
		`kernel.toml:14: "shape" in [[arg]] "x" for rows=4096,n=4096: iota ends at 16777215; the largest f16 is 65504`)
	swap(`fill = "normal"`, `fill = 0`,
		`kernel.toml:15: "fill" in [[arg]] "x" is an integer; want a string such as "normal" or "integers(0, 10)"`)
	swap(`fill = "normal"`, "fill = \"normal\"\nfile = \"x.npy\"",
		`kernel.toml:16: [[arg]] "x" has both "fill" and "file"; choose one`)
	swap(`fill = "normal"`, `file = "y.npy"`,
		`kernel.toml:15: "file" in [[arg]] "x": there is no file y.npy beside kernel.toml; did you mean "x.npy"?`)
	swap(`fill = "normal"`, `file = "x.bin"`,
		`kernel.toml:15: "file" in [[arg]] "x" is "x.bin"; want a .npy or a .safetensors file`)
	swap(`fill = "normal"`, `file = "../x.npy"`,
		`kernel.toml:15: "file" in [[arg]] "x" is "../x.npy"; want a path below the directory of kernel.toml`)
	swap(`fill = "normal"`, `file = "x.npy#t"`,
		`kernel.toml:15: "file" in [[arg]] "x" is "x.npy#t"; want x.npy, x.safetensors or x.safetensors#tensor`)
	swap(`fill = "uniform(0.5, 1.5)"`, `fill = "integers(0, 2.5)"`,
		`kernel.toml:20: "fill" in [[arg]] "w" for rows=8,n=256: integers(0, 2.5): want two integers, the first below the second`)
	swap(`fill = "uniform(0.5, 1.5)"`, `fill = "integers(n, n)"`,
		`kernel.toml:20: "fill" in [[arg]] "w" for rows=8,n=256: integers(256, 256): want two integers, the first below the second`)
	swap(`fill = "uniform(0.5, 1.5)"`, `fill = "integers(-THREADS * 1000, n)"`,
		`kernel.toml:20: "fill" in [[arg]] "w" for rows=8,n=256 with THREADS=256: integers(-256000, 256): f16 has -65504 to 65504`)
	swap(`fill = "uniform(0.5, 1.5)"`, `fill = "integers(0, 1 // 0)"`,
		`kernel.toml:20: "fill" in [[arg]] "w" ("1 // 0") for rows=8,n=256: floored division by zero`)
	swap(`fill = "uniform(0.5, 1.5)"`, `fill = "f.g(1, 2)"`,
		`kernel.toml:20: "fill" in [[arg]] "w" is "f.g(1, 2)": want one of normal, uniform, zeros, ones, iota, integers, offsets`)
	swap(`fill = "uniform(0.5, 1.5)"`, `fill = ""`,
		`kernel.toml:20: "fill" in [[arg]] "w" is empty`)
	swap(`fill = "uniform(0.5, 1.5)"`, `file = ""`,
		`kernel.toml:20: "file" in [[arg]] "w" is empty`)
}

func TestDeclaredLaunchErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`grid = ["rows"]`, `grid = []`,
		`kernel.toml:36: "grid" in [launch] has 0 expressions; want 1 to 3`)
	swap(`grid = ["rows"]`, `grid = [1, 2, 3, 4]`,
		`kernel.toml:36: "grid" in [launch] has 4 expressions; want 1 to 3`)
	swap(`grid = ["rows"]`, `grid = ["rows", "n * 1024"]`,
		`kernel.toml:36: "grid" in [launch] ("n * 1024") for rows=8,n=256: it is 262144; want 1 to 65535`)
	swap(`grid = ["rows"]`, `gird = ["rows"]`,
		`kernel.toml:35: [launch] has no "grid"`,
		`kernel.toml:36: unknown key "gird" in [launch]; did you mean "grid"?`)
	swap(`block = ["THREADS"]`, `block = ["THREADS", 8]`,
		`kernel.toml:37: "block" in [launch] for rows=8,n=256 with THREADS=256: a block has 256 x 8 x 1 threads; want at most 1024`)
	swap(`block = ["THREADS"]`, "block = [\"THREADS\"]\ncluster = [3, 1, 1]",
		`kernel.toml:38: "cluster" in [launch] for rows=8,n=256: a grid of 8 x 1 x 1 is no multiple of a cluster of 3 x 1 x 1`)
	swap(`block = ["THREADS"]`, "block = [\"THREADS\"]\ncluster = [8, 4, 1]\ncooperative = 1",
		`kernel.toml:38: "cluster" in [launch] for rows=8,n=256: a cluster has 8 x 4 x 1 blocks; want at most 16`,
		`kernel.toml:39: "cooperative" in [launch] is an integer; want true or false`)
	swap(`"THREADS // 32 * 4"`, `"THREADS * 1024"`,
		`kernel.toml:38: "shared" in [launch] ("THREADS * 1024") for rows=8,n=256 with THREADS=256: it is 262144; want 0 to 232448`)
	swap(`"THREADS // 32 * 4"`, `"THREADS // 32 *"`,
		`kernel.toml:38: "shared" in [launch] is "THREADS // 32 *": column 16: got end of file, want primary expression`)
	swap(`[launch]`, `[lunch]`,
		`kernel.toml:1: the file has no "launch"`,
		`kernel.toml:35: unknown key "lunch" in the file; did you mean "launch"?`)
}

func TestDeclaredReferenceErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`python = "reference.py"`, `python = "referense.py"`,
		`kernel.toml:41: "python" in [reference]: there is no file referense.py beside kernel.toml; did you mean "reference.py"?`)
	swap(`python = "reference.py"`, ``,
		`kernel.toml:40: [reference] needs exactly one of python, source, files; it has none of them`)
	swap(`python = "reference.py"`, "python = \"reference.py\"\nfiles = \"expected\"",
		`kernel.toml:40: [reference] needs exactly one of python, source, files; it has python and files`)
	swap(`python = "reference.py"`, "python = \"reference.py\"\ngrid = 1",
		`kernel.toml:42: "grid" in [reference] is only for a "source"; remove it`)
	swap(`python = "reference.py"`, "source = \"naive.cu\"\nentry = \"naive kernel\"\nblock = \"THREADS * 8\"",
		`kernel.toml:42: "entry" in [reference] is "naive kernel"; want a letter or _, then letters, digits or _`,
		`kernel.toml:43: "block" in [reference] ("THREADS * 8") for rows=8,n=256 with THREADS=256: it is 2048; want 1 to 1024`)
	swap(`python = "reference.py"`, `files = "."`, none)
	swap(`python = "reference.py"`, `python = "../shared/./reference.py"`, none)
	swap(`python = "reference.py"`, `python = ".."`,
		`kernel.toml:41: "python" in [reference] is ".."; want a path below the directory of kernel.toml`)
	swap(`python = "reference.py"`, `python = "/reference.py"`,
		`kernel.toml:41: "python" in [reference] is "/reference.py"; want a path below the directory of kernel.toml`)
	swap(`python = "reference.py"`, `source = "../naive.cu"`,
		`kernel.toml:41: "source" in [reference] is "../naive.cu"; want a path below the directory of kernel.toml`)
	swap(`python = "reference.py"`, `python = "."`,
		`kernel.toml:41: "python" in [reference] is "."; want a path below the directory of kernel.toml`)
	swap(`python = "reference.py"`, `python = ""`, `kernel.toml:41: "python" in [reference] is empty`)
	swap(`python = "reference.py"`, `files = "reference.py"`,
		`kernel.toml:41: "files" in [reference]: reference.py is no folder`)
	swap(`python = "reference.py"`, `pyton = "reference.py"`,
		`kernel.toml:40: [reference] needs exactly one of python, source, files; it has none of them`,
		`kernel.toml:41: unknown key "pyton" in [reference]; did you mean "python"?`)
	swap(`y = { abs`, `z = { abs`,
		`kernel.toml:46: unknown output "z" in [tolerance]; there are y`)
	swap(`y = { abs`, `x = { abs`,
		`kernel.toml:46: "x" in [tolerance] is no output; there are y`)
	swap(`y = { abs = 2e-3, rel = 1e-3 }`, `y = 3`,
		`kernel.toml:46: "y" in [tolerance] is an integer; want a table`)
	swap(`y = { abs = 2e-3, rel = 1e-3 }`, `y = { abs = -1, rell = 2, bad_fraction = 2 }`,
		`kernel.toml:46: "abs" in y of [tolerance] is -1; want a number of at least 0`,
		`kernel.toml:46: "bad_fraction" in y of [tolerance] is 2; want a number from 0 to 1`,
		`kernel.toml:46: unknown key "rell" in y of [tolerance]; did you mean "rel"?`)
	swap(`bytes = "2 * (2 * rows * n + n)"`, `bytes = "-rows"`,
		`kernel.toml:49: "bytes" in [work] ("-rows") for rows=8,n=256: it is -8; want a number of at least 0`)
	swap(`flops =`, `flop =`,
		`kernel.toml:50: unknown key "flop" in [work]; did you mean "flops"?`)
	swap(`[[knob]]`, "[[peer]]\npython = \"peers.py\"\n[[peer]]\npython = \"pers.py:f\"\nname = 'F F'\n[[knob]]",
		`kernel.toml:53: "python" in [[peer]] is "peers.py"; want a file and a function of it, such as peers.py:torch_sum`,
		`kernel.toml:55: "python" in [[peer]]: there is no file pers.py beside kernel.toml; did you mean "peers.py"?`,
		`kernel.toml:56: "name" in [[peer]] is "F F"; want a lower-case letter, then lower-case letters, digits, _ or -`)
}

func TestDeclaredStageErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`[[knob]]`, "[[constraint]]\nrule = \"rows > THREADS\"\n[[knob]]",
		`kernel.toml:53: rule "rows > THREADS": unknown knob "rows"; there are THREADS`)
	swap(`[[knob]]`, "[[constraint]]\nrule = \"THREADS < 256\"\n[[knob]]",
		`kernel.toml:1: rmsnorm breaks the rule "THREADS < 256" with THREADS=256`)
	swap(`[[knob]]`, "[[stage]]\nname = \"a\"\narchs = [\"sm_80\"]\nerror_share = 1\n[[stage]]\nname = \"b\"\nsource = \"b.cu\"\nparent = \"c\"\nbudget = { registers = 300 }\n[[knob]]",
		`kernel.toml:55: unknown key "error_share" in [[stage]]; there are name, source, knobs, hypothesis, budget, archs, allow, parent, speedup`,
		`kernel.toml:58: "source" in [[stage]]: there is no file b.cu beside kernel.toml`,
		`kernel.toml:59: "parent" in [[stage]]: unknown stage "c"; there are a, b`,
		`kernel.toml:60: "registers" in budget of [[stage]] is 300; want an integer from 1 to 255`)
	swap(`name = "rmsnorm"`, "name = \"rmsnorm\"\nstage = [{ name = \"a\", archs = [\"sm_90a\"], speedup = 2 }, { name = \"b\", source = \"../b.cu\", parent = \"a\", speedup = 0 }]\narchs = [\"sm_80\"]",
		`kernel.toml:2: "archs" in [[stage]]: sm_90a is not among the architectures of the kernel, sm_80`,
		`kernel.toml:2: "source" in [[stage]] is "../b.cu"; want a path below the directory of kernel.toml`,
		`kernel.toml:2: [[stage]] has a "speedup" but no "parent" to compare with`,
		`kernel.toml:2: "speedup" in [[stage]] is 0; want a number above 0`)
	swap(`[[knob]]`, "[[stage]]\nsource = \"other.cu\"\n[[knob]]\nname = \"TILE\"\nvalues = [0, 2048]\ndefault = 3\nlayer = \"mikro\"\n[[knob]]",
		`kernel.toml:52: [[stage]] has no "name"`,
		`kernel.toml:57: the default of TILE is 3; allowed are 0, 2048`,
		`kernel.toml:58: unknown layer "mikro" in [[knob]]; did you mean "micro"?`)
	swap(`[[knob]]`, "[[stage]]\nname = \"wide\"\nknobs = { THREADS = 512, TILE = 4 }\n[[knob]]\nname = \"TILE\"\nvalues = [1, 4]\ndefault = 1\n[[knob]]", none)
	swap(`name = "rmsnorm"`, "name = \"rmsnorm\"\narchs = [\"sm90\"]\nabout = 3",
		`kernel.toml:2: "archs" in the file: "sm90" is not an architecture; want one such as sm_89 or sm_90a`,
		`kernel.toml:3: "about" in the file is an integer; want a string`)
}

func TestDeclaredTensorMapErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`value = "n"`, `tensormap = 3`,
		`kernel.toml:28: "type" in [[arg]] "n": a tensor map takes it from its argument; remove the key`,
		`kernel.toml:29: "tensormap" in [[arg]] "n" is an integer; want a table`)
	swap(`value = "n"`, `tensormap = { arg = "x", box = ["n", 1] }`,
		`kernel.toml:28: "type" in [[arg]] "n": a tensor map takes it from its argument; remove the key`,
		`kernel.toml:29: "box" in tensormap of [[arg]] "n" ("n") for rows=4096,n=4096: it is 4096; want 1 to 256`)
	swap("type = \"i32\"\nvalue = \"n\" ", `tensormap = { arg = "xx", box = [64, 1], swizzle = "16B", oob = "one", bx = 1 } `,
		`kernel.toml:28: "arg" in tensormap of [[arg]] "n" is "xx", which is no buffer; there are x, w, y`,
		`kernel.toml:28: unknown swizzle "16B" in tensormap of [[arg]] "n"; there are none, 32B, 64B, 128B`,
		`kernel.toml:28: unknown oob "one" in tensormap of [[arg]] "n"; there are zero, nan`,
		`kernel.toml:28: unknown key "bx" in tensormap of [[arg]] "n"; did you mean "box"?`)
	swap("type = \"i32\"\nvalue = \"n\" ", `tensormap = { arg = "eps" } `,
		`kernel.toml:28: "arg" in tensormap of [[arg]] "n" is "eps", which is no buffer; there are x, w, y`,
		`kernel.toml:28: tensormap of [[arg]] "n" has no "box"`)
	swap("type = \"i32\"\nvalue = \"n\" ", `tensormap = { arg = "x", box = [64] } `,
		`kernel.toml:28: "box" in tensormap of [[arg]] "n" has 1 extents; x has 2 dimensions`)
	swap("type = \"i32\"\nvalue = \"n\" ", `tensormap = { arg = "x", box = [128, 8], swizzle = "128B" } `,
		`kernel.toml:28: [[arg]] "n" for rows=8,n=256: the driver rejects the tensor map: a row of its box has 256 bytes, which is more than the swizzle's 128`)
	swap("type = \"i32\"\nvalue = \"n\" ", `tensormap = { arg = "x", box = [64, "THREADS // 8"], swizzle = "128B" } `, none)
}

func TestDeclaredSwizzleBytesErrors(t *testing.T) {
	swap := declaredSwap(t)
	const scalar = "type = \"i32\"\nvalue = \"n\" "
	swap(scalar, `tensormap = { arg = "x", box = [32, 8], swizzle_bytes = "THREADS // 4" } `, none)
	swap(scalar, `tensormap = { arg = "x", box = [32, 8], swizzle_bytes = 0 } `, none)
	swap(scalar, `tensormap = { arg = "x", box = [64, 8], swizzle_bytes = "THREADS // 4" } `,
		`kernel.toml:28: [[arg]] "n" for rows=8,n=256: the driver rejects the tensor map: a row of its box has 128 bytes, which is more than the swizzle's 64`)
	swap(scalar, `tensormap = { arg = "x", box = [8, 8], swizzle_bytes = 16 } `,
		`kernel.toml:28: [[arg]] "n" for rows=8,n=256: the driver rejects the tensor map: its swizzle is "16B", want one of ["none" "32B" "64B" "128B"]`)
	swap(scalar, `tensormap = { arg = "x", box = [8, 8], swizzle_bytes = "n / 4" } `,
		`kernel.toml:28: "swizzle_bytes" in tensormap of [[arg]] "n" ("n / 4") for rows=8,n=256: the result is a float; want a boolean or an integer (// divides without a fraction)`)
	swap(scalar, `tensormap = { arg = "x", box = [32, 8], swizzle = "64B", swizzle_bytes = 64 } `,
		`kernel.toml:28: tensormap of [[arg]] "n" has both "swizzle" and "swizzle_bytes"; choose one`)
}

func TestDeclaredOrderErrors(t *testing.T) {
	swap := declaredSwap(t)
	const scalar = "type = \"i32\"\nvalue = \"n\" "
	swap(scalar, `tensormap = { arg = "x", box = [32, 8], order = [0, "THREADS // 256"] } `, none)
	swap(scalar, `tensormap = { arg = "x", box = [32, 8], order = [0] } `,
		`kernel.toml:28: "order" in tensormap of [[arg]] "n" has 1 dimensions; "box" has 2`)
	swap(scalar, `tensormap = { arg = "x", box = [32, 8], order = [1, 0] } `,
		`kernel.toml:28: "order" in tensormap of [[arg]] "n" ("1") for rows=8,n=256: the order of the dimensions is [1 0]; want 0 and then the others of 0 to 1`)
	swap(scalar, `tensormap = { arg = "x", box = [32, 8], order = [0, "n // 128"] } `,
		`kernel.toml:28: "order" in tensormap of [[arg]] "n" ("n // 128") for rows=8,n=256: it is 2; want 0 to 1`)
	swap(scalar, `tensormap = { arg = "x", box = [32, 8], order = [] } `,
		`kernel.toml:28: "order" in tensormap of [[arg]] "n" has 0 expressions; want 1 to 32`)
}

func TestDeclaredOffsetsErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`fill = "uniform(0.5, 1.5)"`, `fill = "offsets(0, n)"`,
		`kernel.toml:20: "fill" in [[arg]] "w" is "offsets(0, n)": offsets are integers, and f16 is a floating-point type`)
	const old = "type = \"f16\"\nshape = [\"n\"]\nfill = \"uniform(0.5, 1.5)\""
	integers := func(fill string) string {
		return "type = \"i8\"\nshape = [\"n\"]\nfill = \"" + fill + "\""
	}
	swap(old, integers("offsets(-128, n // 64)"), none)
	swap(old, integers("offsets(0, n)"), `kernel.toml:20: "fill" in [[arg]] "w" for rows=8,n=256: offsets(0, 256): i8 has -128 to 127`)
	swap(old, integers("offsets(0, 0.5)"), `kernel.toml:20: "fill" in [[arg]] "w" for rows=8,n=256: offsets(0, 0.5): want two integers`)
	swap(old, integers("offsets(1, 0)"), `kernel.toml:20: "fill" in [[arg]] "w" for rows=8,n=256: offsets(1, 0): the first number is above the second`)
	swap(old, integers("offsets(1)"), `kernel.toml:20: "fill" in [[arg]] "w" is "offsets(1)": offsets takes two numbers, such as offsets(0, 10)`)
}

func TestDeclaredConditionErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`fill = "normal"`, `when = "n > 256"`, none)
	// What only holds where the buffer is there is not checked in other shapes.
	swap("shape = [\"n\"]\nfill = \"uniform(0.5, 1.5)\"", "shape = [\"n - 256\"]\nfill = \"uniform(256, n - 1)\"\nwhen = \"n > 256\"", none)
	swap(`fill = "normal"`, `when = "nn"`,
		`kernel.toml:15: "when" in [[arg]] "x" is "nn": unknown axis or knob "nn"; there are rows, n, THREADS`)
	swap(`fill = "normal"`, `when = "n / 2"`,
		`kernel.toml:15: "when" in [[arg]] "x" ("n / 2") for rows=8,n=256: the result is a float; want a boolean or an integer (// divides without a fraction)`)
	swap("out = true ", "out = true\nwhen = \"n > 256\" ",
		`kernel.toml:26: "when" in [[arg]] "y" ("n > 256") for rows=8,n=256: no output is left; want one in every shape`)
	swap(`value = "1e-5"`, "value = \"1e-5\"\nwhen = 1",
		`kernel.toml:34: "when" in [[arg]] "eps": an argument with a "value" is a scalar; remove the key`)
	swap("type = \"i32\"\nvalue = \"n\" ", "tensormap = { arg = \"x\", box = [64, 8] }\nwhen = 1 ",
		`kernel.toml:29: "when" in [[arg]] "n": only a buffer can be a null pointer; remove the key`)
	swap("fill = \"normal\" ", "when = \"n > 0\"\n[[arg]]\nname = \"x_map\"\ntensormap = { arg = \"x\", box = [64, 8] } ",
		`kernel.toml:18: "arg" in tensormap of [[arg]] "x_map" is "x", which has a "when"; a tensor map needs a buffer in every shape`)
}

func TestDeclaredSelectionErrors(t *testing.T) {
	swap := declaredSwap(t)
	swap(`name = "rmsnorm"`, "name = \"rmsnorm\"\nselection = [{ name = \"best\", predicate = [{ name = \"rows\", rule = \"1 // n\" }], choice = [{ when = \"batch\", variant = \"rmsnorm\" }, { variant = \"rmsnorm+THREADS=3\" }] }]",
		`kernel.toml:2: [[selection.predicate]] "rows" has the name of an axis; choose another name`,
		`kernel.toml:2: "when" in [[selection.choice]] is "batch": unknown axis or predicate "batch"; there are rows, n, rows`,
		`kernel.toml:2: "variant" in [[selection.choice]]: THREADS=3 in "rmsnorm+THREADS=3" is not allowed; allowed are 64, 128, 256, 512`)
	swap(`name = "rmsnorm"`, "name = \"rmsnorm\"\nselection = [{ name = \"best\", choice = [{ when = \"n < 1 // (rows - 8)\", variant = \"rmsnorm\" }, { variant = \"rmsnorm\" }] }]",
		`kernel.toml:2: best: "n < 1 // (rows - 8)" cannot be evaluated for rows=8,n=256: floored division by zero`)
	swap(`name = "rmsnorm"`, "name = \"rmsnorm\"\nselection = [{ name = \"rmsnorm\", choice = [{ variant = \"rmsnorm\" }] }]",
		`kernel.toml:2: [[selection]] "rmsnorm" has the name of a stage; choose another name`)
}
