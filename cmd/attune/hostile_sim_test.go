//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// copyPTX is a kernel with one buffer.
const copyPTX = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<2>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, 7;
	st.global.u32 [%rd1], %r1;
	ret;
}
`

// launchCase is a case of copyPTX with text of it replaced.
func launchCase(oldNew ...string) string {
	return strings.NewReplacer(oldNew...).Replace(`{"name": "c", "ptx": "k.ptx", "arch": "sm_80", "entry": "k", "grid": [1, 1, 1], "block": [1, 1, 1],
 "args": [{"bytes": 16}], "expect": {"args": {}, "findings": []}}`)
}

func caseAttacks() []attack {
	text := func(name string, exit int, want string, oldNew ...string) attack {
		return attack{kind: "input", name: name, exit: exit, want: want, stage: func(a *arena) []string {
			a.write("k.ptx", copyPTX)
			a.write("c.json", strings.ReplaceAll(launchCase(oldNew...), "OUTSIDE", a.outside))
			return []string{"sim", "c.json", "--timeout", "2s"}
		}}
	}
	file := func(name, victim, want string, put func(a *arena, file string)) attack {
		return attack{kind: "file", name: name, exit: 1, want: want, stage: func(a *arena) []string {
			a.write("k.ptx", copyPTX)
			a.write("c.json", launchCase())
			put(a, victim)
			return []string{"sim", "c.json"}
		}}
	}
	// The line of a finding is in a file that the PTX names.
	named := func(name string, put func(a *arena) string) attack {
		return attack{kind: "file", name: name, exit: exitCorrectness, want: "out-of-bounds", stage: func(a *arena) []string {
			located := strings.Replace(copyPTX, "st.global.u32 [%rd1]", ".loc 1 1 1\n\tst.global.u32 [%rd1+4096]", 1)
			a.write("k.ptx", located+fmt.Sprintf(".file 1 %q\n", put(a)))
			return []string{"sim", "k.ptx", "--grid", "1", "--block", "1", "--arg", "u32:out:4"}
		}}
	}
	slow := func(k attack) attack { k.with.slow = true; return k }
	const args = `[{"bytes": 16}]`
	return []attack{
		file("a case is a pipe", "c.json", "it is not a regular file", func(a *arena, file string) { a.pipe(file) }),
		file("a case has 3 GB", "c.json", "c.json", func(a *arena, file string) { a.sparse(file, launchCase(), 3<<30) }),
		file("a case is a file outside", "c.json", "c.json", func(a *arena, file string) { a.link(file, filepath.Join(a.outside, "secret.txt")) }),
		file("a case nests a million lists", "c.json", "c.json", func(a *arena, file string) { a.write(file, strings.Repeat("[", 1_000_000)) }),
		file("PTX is a pipe", "k.ptx", "it is not a regular file", func(a *arena, file string) { a.pipe(file) }),
		file("PTX has 3 GB", "k.ptx", "k.ptx", func(a *arena, file string) { a.sparse(file, copyPTX, 3<<30) }),
		named("PTX names a source outside", func(a *arena) string { return a.relative("secret.txt") }),
		named("PTX names a source that links outside", func(a *arena) string { return a.link("l.cu", filepath.Join(a.outside, "secret.txt")) }),
		named("PTX names a source that is a pipe", func(a *arena) string { return a.pipe("p.cu") }),
		named("PTX names a source that links to an endless device", func(a *arena) string { return a.link("z.cu", "/dev/zero") }),
		named("PTX names a source of 3 GB", func(a *arena) string { return a.sparse("s.cu", "x", 3<<30) }),
		text("PTX of a case is an endless device", 1, "it is not a regular file", `"k.ptx"`, `"/dev/zero"`),
		text("PTX of a case is a file outside", 1, "is no PTX", `"k.ptx"`, `"OUTSIDE/secret.txt"`),
		text("an array of a case is a file outside", 1, "c", args, `[{"npy": "OUTSIDE/secret.txt", "dtype": "f32"}]`),
		text("a buffer of a petabyte", 1, "c", args, `[{"bytes": 1125899906842624}]`),
		text("a buffer of 6 GB", 1, "c", args, `[{"bytes": 6000000000}]`),
		slow(text("a thousand buffers of 100 MB", 1, "the limit is 671088640 (640 MiB); --memory MIB sets another", args, "["+strings.Repeat(`{"bytes": 100000000},`, 999)+`{"bytes": 16}]`)),
		{kind: "flag", name: "memory of a simulation without a size", exit: 2, want: "--memory 0", stage: func(a *arena) []string {
			a.write("k.ptx", copyPTX)
			return []string{"sim", a.write("c.json", launchCase()), "--memory", "0"}
		}},
		text("a buffer below zero bytes", 1, "c", args, `[{"bytes": -1}]`),
		text("half a byte", 1, "c", args, `[{"hex": "abc"}]`),
		slow(text("200,000 arguments", 1, "the kernel takes 1 parameters", args, "["+strings.Repeat(`{"u32": 1},`, 200_000)+`{"bytes": 16}]`)),
		text("an argument with two values", 1, "c", args, `[{"bytes": 16, "u32": 5}]`),
		text("a number beyond its type", 1, "c", args, `[{"u32": 4294967296}]`),
		text("a tensor map of itself by a case", 1, "c", args, `[{"tensormap": {"arg": 0, "dtype": "u8", "dims": [16], "strides": [], "box": [16], "swizzle": "none"}}]`),
		text("a tensor map of no argument", 1, "c", args, `[{"bytes": 16}, {"tensormap": {"arg": -7, "dtype": "u8", "dims": [16], "strides": [], "box": [16], "swizzle": "none"}}]`),
		text("a tensor map that overflows", 1, "c", args, `[{"bytes": 16}, {"tensormap": {"arg": 0, "dtype": "u8", "dims": [4294967295, 4294967295, 4294967295], "strides": [9223372036854775792, 9223372036854775792], "box": [1, 1, 1], "swizzle": "none"}}]`),
		text("a grid of 2**60 blocks in a case", 22, "c", `"grid": [1, 1, 1]`, `"grid": [2147483647, 65535, 65535]`),
		text("a block without threads", 1, "c", `"block": [1, 1, 1]`, `"block": [0, 1, 1]`),
		text("a block of 2**31 threads", 1, "c", `"block": [1, 1, 1]`, `"block": [2147483647, 1, 1]`),
		text("a cluster of 1,000 blocks", 1, "c", `"entry"`, `"cluster": [1000, 1, 1], "entry"`),
		text("dynamic shared memory of an exabyte", 1, "c", `"entry"`, `"shared": 1152921504606846976, "entry"`),
		text("an output of no argument", 1, "c", `"args": {}, `, `"args": {"99999999999999999999": {"hex": "00"}}, `),
		text("an unknown kind of finding", 1, "c", `"findings": []`, `"findings": ["`+strings.Repeat("x", 100_000)+`"]`),
		text("a case's name has terminal escapes", 0, "1 of 1 cases pass", `"c"`, `"\u001b]0;owned\u0007\u009b31m\u202ec"`),
		text("an architecture of the future", 1, "c", `"sm_80"`, `"sm_999999999999"`),
		text("an entry function with escapes", 1, "c", `"entry": "k"`, `"entry": "\u001b[2Jk"`),
		text("a key twice", 1, "given twice", `"arch"`, `"name": "second", "arch"`),
		text("a number without an end", 1, "c.json", `"bytes": 16`, `"bytes": `+strings.Repeat("9", 1_000_000)),
	}
}

// ptxKernel is copyPTX with instructions before the last one.
func ptxKernel(declarations, instructions string) string {
	return strings.NewReplacer(".reg .b32 %r<2>;", ".reg .b32 %r<2>;\n"+declarations, "\tret;", instructions+"\n\tret;").Replace(copyPTX)
}

func ptxAttacks() []attack {
	ptx := func(name string, exit int, want, text string) attack {
		return attack{kind: "kernel", name: name, exit: exit, want: want, stage: func(a *arena) []string {
			a.write("k.ptx", strings.ReplaceAll(text, "OUTSIDE", a.outside))
			a.write("c.json", launchCase())
			return []string{"sim", "c.json", "--timeout", "4s"}
		}}
	}
	slow := func(k attack) attack {
		plain := k.stage
		k.with.slow, k.stage = true, func(a *arena) []string { return append(plain(a), "--timeout", "30s") }
		return k
	}
	var functions, labels strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&functions, ".func f%d() { ret; }\n", i)
		fmt.Fprintf(&labels, "L%d: bra L%d;\n", i, (i+1)%50_000)
	}
	top := func(text string) string { return strings.Replace(copyPTX, ".visible", text+"\n.visible", 1) }
	return []attack{
		ptx("4 billion registers", 1, "k.ptx", ptxKernel(".reg .b32 %q<4000000000>;", "")),
		ptx("registers of a million names", 1, "k.ptx", ptxKernel(".reg .b32 %z<100000>;\n"+".reg .b64 %y<4000000>;", "")),
		ptx("a local array of a terabyte", 1, "k.ptx", ptxKernel(".local .b8 big[1099511627776];", "")),
		ptx("a shared array of a terabyte", 1, "k.ptx", ptxKernel(".shared .b8 big[1099511627776];", "")),
		ptx("a module array of a terabyte", 1, "k.ptx", top(".global .b8 big[1099511627776];")),
		ptx("a module array of 3 GB", 1, "k.ptx", top(".global .b8 big[3000000000];")),
		ptx("an array whose size overflows", 1, "k.ptx", top(".global .b64 big[4294967296][4294967296][16];")),
		ptx("an alignment of 3", 1, "k.ptx", top(".global .align 3 .b8 big[8];")),
		ptx("blocks nested 200,000 deep", 1, "k.ptx", ptxKernel(strings.Repeat("{", 200_000)+strings.Repeat("}", 200_000), "")),
		ptx("an initial value nested 200,000 deep", 1, "k.ptx", top(".global .b32 big[2] = "+strings.Repeat("{", 200_000)+"1"+strings.Repeat("}", 200_000)+";")),
		ptx("an operand of 200,000 brackets", 1, "k.ptx", ptxKernel("", "mov.u32 %r1, "+strings.Repeat("(", 200_000)+"1"+strings.Repeat(")", 200_000)+";")),
		ptx("a string without an end", 1, "k.ptx", top(`.file 1 "abc`)),
		ptx("a comment without an end", 1, "k.ptx", top("/* abc")),
		ptx("a line of 20 MB", 1, "k.ptx", top("// "+strings.Repeat("x", 20<<20))+"\x00"),
		ptx("a name of 5 MB", 1, "k.ptx", ptxKernel("", "bra "+strings.Repeat("x", 5<<20)+";")),
		ptx("an unknown instruction with escapes", 1, "k.ptx", ptxKernel("", "\x1b]0;owned\x07.u32 %r1;")),
		ptx("a line table that names a file outside", 11, "c", strings.Replace(ptxKernel("", ".loc 1 1 0\n\tst.global.u32 [%rd1+64], %r1;"), ".visible", ".file 1 \"OUTSIDE/secret.txt\"\n.visible", 1)),
		ptx("a line table with escapes", 1, "c", strings.Replace(ptxKernel("", ".loc 1 4000000000 0\n\tst.global.u32 [%rd1+64], %r1;"), ".visible", ".file 1 \"\x1b]0;owned\x07.cu\"\n.visible", 1)),
		slow(ptx("50,000 functions", 0, "pass", top(functions.String()))),
		slow(ptx("50,000 jumps in a circle", 11, "deadlock", ptxKernel("", labels.String()))),
		ptx("a jump table of 100,000 labels", 11, "deadlock", ptxKernel("", "T: .branchtargets "+strings.Repeat("L, ", 100_000)+"L;\nL:\n\tbrx.idx %r1, T;")),
		ptx("a function that calls itself", 1, "c", strings.Replace(ptxKernel("", "call f;"), ".visible", ".func f() { call f; ret; }\n.visible", 1)),
		ptx("an endless loop", 11, "deadlock", ptxKernel("", "L: bra.uni L;")),
		ptx("an endless loop of writes to new addresses", 22, "no result within", ptxKernel("", "L: add.u64 %rd1, %rd1, 4096;\n\tst.global.u32 [%rd1], %r1;\n\tbra.uni L;")),
		ptx("a barrier that one thread never reaches", 11, "deadlock", ptxKernel(".reg .pred %p;", "setp.eq.u32 %p, %r1, 7;\n@%p bra E;\nbar.sync 0;\nE: bar.sync 1, 64;")),
		ptx("a wait for a barrier that nobody completes", 11, "deadlock", ptxKernel(".reg .pred %p; .shared .align 8 .b64 m;", "mbarrier.init.shared.b64 [m], 5;\nL: mbarrier.test_wait.parity.shared.b64 %p, [m], 0;\n@!%p bra L;")),
		ptx("a write before the start of memory", 11, "out-of-bounds", ptxKernel("", "st.global.u32 [%rd1+-1099511627776], %r1;")),
		ptx("an address without a buffer", 11, "out-of-bounds", ptxKernel("", "mov.u64 %rd1, 0x7fffffffffffffff;\nst.global.u32 [%rd1], %r1;")),
		ptx("an immediate beyond 64 bits", 1, "k.ptx", ptxKernel("", "mov.u32 %r1, 0x"+strings.Repeat("f", 100_000)+";")),
		ptx("a vector of 100,000 registers", 14, "k.ptx", ptxKernel("", "ld.global.v4.u32 {"+strings.Repeat("%r1, ", 100_000)+"%r1}, [%rd1];")),
		ptx("PTX of version 999", 1, "k.ptx", strings.Replace(copyPTX, ".version 8.0", ".version 999999999999999999999.0", 1)),
		ptx("no PTX at all", 1, "k.ptx", strings.Repeat("\xff\xfe\x00", 100_000)),
		ptx("parameters of a terabyte", 1, "k.ptx", strings.Replace(copyPTX, ".param .u64 out", ".param .u64 out, .param .b8 big[1099511627776]", 1)),
		slow(ptx("700,000 instructions", 0, "pass", ptxKernel("", strings.Repeat("add.u32 %r1, %r1, 1;\n", 700_000)))),
		ptx("PTX that prints without end", 11, "", printingPTX),
		{kind: "kernel", name: "60 million writes to a buffer of 250 MB", exit: 1, want: "the limit is 640 MiB", with: attackOptions{slow: true}, stage: func(a *arena) []string {
			a.write("k.ptx", strings.NewReplacer("%r<2>", "%r<4>", "%rd<2>", "%rd<4>", "\tmov.u32 %r1, 7;\n",
				"\tmov.u32 %r1, %ctaid.x;\n\tmov.u32 %r2, %tid.x;\n\tmad.lo.u32 %r3, %r1, 1024, %r2;\n\tmul.wide.u32 %rd2, %r3, 4;\n\tadd.u64 %rd1, %rd1, %rd2;\n").Replace(copyPTX))
			a.write("c.json", launchCase(`"grid": [1, 1, 1], "block": [1, 1, 1]`, `"grid": [60000, 1, 1], "block": [1024, 1, 1]`, `"bytes": 16`, `"bytes": 250000000`))
			return []string{"sim", "c.json"}
		}},
		ptx("a kernel that sleeps without end", 11, "deadlock", ptxKernel("", "L: nanosleep.u32 4000000000;\n\tbra.uni L;")),
	}
}

// printingPTX calls vprintf in an endless loop, with a format that has escapes.
const printingPTX = `.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[16] = {27, 93, 48, 59, 111, 119, 110, 101, 100, 7, 10, 0};
.visible .entry k(.param .u64 out)
{
	.reg .b64 %rd<4>;
	mov.u64 %rd1, text;
	cvta.global.u64 %rd2, %rd1;
	mov.u64 %rd3, 0;
L:
	{
	.param .b64 p0;
	st.param.b64 [p0], %rd2;
	.param .b64 p1;
	st.param.b64 [p1], %rd3;
	.param .b32 r0;
	call.uni (r0), vprintf, (p0, p1);
	}
	bra.uni L;
}
`
