package toolchain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLaunch(t *testing.T) {
	for _, c := range []struct {
		name, ptx string
		want      Launch
	}{
		{
			"bytes with the zeros at the end left out",
			".visible .entry k()\n.global .align 4 .b8 attune_launch[12] = {128, 0, 0, 0, 32};\n",
			Launch{Threads: 128, QueryRows: 32},
		},
		{
			"all bytes",
			".visible .global .align 4 .b8 attune_launch[12] = {0, 1, 0, 0, 64, 0, 0, 0, 0, 192, 1, 0};",
			Launch{Threads: 256, QueryRows: 64, DynamicSharedBytes: 0x1C000},
		},
		{
			"bytes over several lines",
			".global .align 4 .b8 attune_launch[12] = {0, 4, 0, 0,\n1, 0, 0, 0,\n255, 255, 255, 255};",
			Launch{Threads: 1024, QueryRows: 1, DynamicSharedBytes: 1<<32 - 1},
		},
		{
			"words",
			".global .align 4 .u32 attune_launch[3] = {256, 64, 99328};",
			Launch{Threads: 256, QueryRows: 64, DynamicSharedBytes: 99328},
		},
		{
			"words of bits, fewer than all, in hexadecimal",
			".const .align 4 .b32 attune_launch[3] = {0x20, 0x10};",
			Launch{Threads: 32, QueryRows: 16},
		},
		{
			"blocks that stay",
			".global .align 4 .b8 attune_launch[16] = {128, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 2};",
			Launch{Threads: 128, QueryRows: 32, BlocksPerMultiprocessor: 2},
		},
		{
			"clusters",
			".global .align 4 .b8 attune_launch[20] = {128, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 16};",
			Launch{Threads: 128, QueryRows: 32, BlocksPerMultiprocessor: 1, Cluster: 16},
		},
		{"clusters of one", ".global .align 4 .u32 attune_launch[5] = {128, 32, 0, 0, 1};", Launch{Threads: 128, QueryRows: 32}},
		{
			"tensor maps",
			".global .align 4 .u32 attune_launch[3] = {128, 32};\n.visible .global .align 4 .b8 attune_tensor_maps[32] = " +
				"{0, 0, 0, 0, 0, 1, 0, 0, 64, 0, 0, 0, 64, 0, 0, 0, 3, 0, 0, 0, 32, 0, 0, 0, 0, 1, 0, 0};",
			Launch{Threads: 128, QueryRows: 32, TensorMaps: []TensorMap{{0, 256, 64, 64}, {3, 32, 256, 0}}},
		},
		{
			"sums in FP32",
			".global .align 4 .u32 attune_launch[3] = {128, 32};\n.visible .global .align 4 .u32 attune_outputs[1] = {1};",
			Launch{Threads: 128, QueryRows: 32, LSE: LSEInFP32},
		},
		{
			"sums of what was rounded",
			".global .align 4 .u32 attune_launch[3] = {128, 32};\n.visible .global .align 4 .b8 attune_outputs[4] = {2};",
			Launch{Threads: 128, QueryRows: 32, LSE: LSERounded},
		},
		{
			"sums of rounded lines",
			".global .align 4 .u32 attune_launch[3] = {128, 32};\n.visible .global .align 4 .u32 attune_outputs[1] = {3};",
			Launch{Threads: 128, QueryRows: 32, LSE: LSELines},
		},
		{
			"BF16",
			".global .align 4 .u32 attune_launch[3] = {128, 32};\n.visible .global .align 4 .b8 attune_outputs[8] = {0, 0, 0, 0, 1};",
			Launch{Threads: 128, QueryRows: 32, Output: BF16},
		},
		{
			"no output beside o",
			".global .align 4 .u32 attune_launch[3] = {128, 32};\n.visible .global .align 4 .u32 attune_outputs[1];",
			Launch{Threads: 128, QueryRows: 32},
		},
	} {
		got, err := parseLaunch(c.ptx)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestLaunchRefuses(t *testing.T) {
	array := func(kind, declared, values string) string {
		return fmt.Sprintf(".global .align 4 .%s attune_launch[%s]%s;", kind, declared, values)
	}
	maps := func(kind, declared, values string) string {
		return array("u32", "3", " = {128, 32}") + fmt.Sprintf("\n.global .align 4 .%s attune_tensor_maps[%s]%s;", kind, declared, values)
	}
	outputs := func(declared, values string) string {
		return array("u32", "3", " = {128, 32}") + fmt.Sprintf("\n.global .align 4 .u32 attune_outputs[%s] = {%s};", declared, values)
	}
	for _, c := range []struct{ name, ptx, want string }{
		{"outputs of three words", outputs("3", "1, 1, 1"), "attune_outputs has 3 words, want 1 or 2"},
		{"sums of another kind", outputs("1", "4"), "attune_outputs says 4 of lse and 0 of bf16; want 0 (none), 1"},
		{"a format of another kind", outputs("2", "0, 2"), "attune_outputs says 0 of lse and 2 of bf16"},
		{"outputs that are no number", outputs("1", "x"), "attune_outputs: element 0"},
		{"none", ".visible .entry k()", "no array attune_launch; a kernel defines it with ATTUNE_LAUNCH"},
		{"only its use", "mov.u64 %rd1, attune_launch;", "no array attune_launch"},
		{"a scalar", ".global .align 4 .u32 attune_launch = 3;", "no array attune_launch"},
		{"halves", array("b16", "6", " = {128, 0, 32}"), "no array attune_launch"},
		{"too short", array("b8", "8", " = {128, 0, 0, 0, 32}"), "attune_launch has 2 words, want 3 to 5"},
		{"too long", array("u32", "6", " = {128, 32, 0, 1, 1, 1}"), "attune_launch has 6 words, want 3 to 5"},
		{"a length that overflows", array("u32", "4611686018427387907", " = {128, 32, 0}"), "want whole words, and 256 bytes at most"},
		{"a length beyond all numbers", array("b8", strings.Repeat("9", 40), ""), "want whole words"},
		{"more words than declared", array("u32", "3", " = {128, 32, 0, 1}"), "more elements than it declares"},
		{"more bytes than declared", array("b8", "12", " = {1,0,0,0,1,0,0,0,0,0,0,0,0}"), "more elements than it declares"},
		{"no byte", array("b8", "12", " = {256, 0, 0, 0, 32}"), "element 0"},
		{"no word", array("u32", "3", " = {128, 4294967296}"), "element 1"},
		{"negative", array("u32", "3", " = {128, 32, -1}"), "element 2"},
		{"no number", array("b8", "12", " = {128, 0, 0, 0, x}"), "element 4"},
		{"nothing but zeros", array("b8", "12", ""), "0 threads and 0 query rows"},
		{"too many threads", array("u32", "3", " = {1025, 32}"), "1025 threads"},
		{"no rows", array("u32", "3", " = {128}"), "0 query rows"},
		{"half a word", array("b8", "13", " = {128, 0, 0, 0, 32}"), "13 elements of 1 bytes, want whole words"},
		{"too large a cluster", array("u32", "5", " = {128, 32, 0, 0, 17}"), "clusters of 17 blocks; want 16 at most"},
		{"half a map", maps("u32", "6", " = {0, 32, 64, 64, 1, 32}"), "attune_tensor_maps has 6 words, want 4 for each map"},
		{"a map of what is no tensor", maps("u32", "4", " = {4, 32, 64, 64}"), "map 0: it is of argument 4; want 0 (q), 1 (k), 2 (v) or 3 (o)"},
		{"a second map of no rows", maps("u32", "8", " = {0, 32, 64, 64, 1, 0, 64, 64}"), "map 1: its box has 0 rows"},
		{"a map of too many rows", maps("u32", "4", " = {0, 257, 64, 64}"), "its box has 257 rows"},
		{"a map of no bytes", maps("b8", "16", " = {0, 0, 0, 0, 32}"), "a row of its box has 0 bytes"},
		{"a map of odd rows", maps("u32", "4", " = {0, 32, 56, 64}"), "a row of its box has 56 bytes; want a multiple of 16"},
		{"a map of a strange swizzle", maps("u32", "4", " = {0, 32, 64, 48}"), "its swizzle is 48 bytes"},
		{"a map wider than its swizzle", maps("u32", "4", " = {0, 32, 128, 64}"), "128 bytes, which is more than the swizzle's 64"},
	} {
		got, err := parseLaunch(c.ptx)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, error %v, want one with %q", c.name, got, err, c.want)
		}
	}
}

func FuzzLaunch(f *testing.F) {
	f.Add(".global .align 4 .b8 attune_launch[12] = {128, 0, 0, 0, 32};")
	f.Add(".global .align 4 .b8 attune_launch[12] = {0, 1, 0, 0, 64, 0, 0, 0, 0, 192, 1, 0};")
	f.Add(".global .align 4 .u32 attune_launch[3] = {256, 64, 99328};")
	f.Add(".global .align 4 .u32 attune_launch[3];")
	f.Add(".global .align 4 .b32 attune_launch[3] = {0x20 0x10,,\n4_0};")
	f.Add(".global .align 4 .u32 attune_launch[5] = {256, 64, 99328, 1, 2};\n.global .align 4 .u32 attune_tensor_maps[8] = {0, 64, 64, 64, 3, 64, 128};")
	f.Fuzz(func(t *testing.T, ptx string) {
		got, err := parseLaunch(ptx)
		if err != nil {
			if !cmp.Equal(got, Launch{}) {
				t.Errorf("%+v comes with the error %v", got, err)
			}
			return
		}
		if got.Threads < 1 || got.Threads > 1024 || got.QueryRows < 1 || got.DynamicSharedBytes < 0 || got.Cluster < 0 || got.Cluster > 16 {
			t.Errorf("%+v is no launch", got)
		}
		// What was read, written in nvcc's way, reads the same.
		written := fmt.Sprintf(".global .align 4 .u32 attune_launch[5] = {%d, %d, %d, %d, %d};",
			got.Threads, got.QueryRows, got.DynamicSharedBytes, got.BlocksPerMultiprocessor, got.Cluster)
		if n := len(got.TensorMaps); n > 0 {
			written += fmt.Sprintf("\n.global .align 4 .u32 attune_tensor_maps[%d] = {", 4*n)
			for _, m := range got.TensorMaps {
				written += fmt.Sprintf("%d, %d, %d, %d, ", m.Argument, m.Rows, m.InnerBytes, m.SwizzleBytes)
			}
			written += "};"
		}
		if again, err := parseLaunch(written); err != nil || !cmp.Equal(again, got) {
			t.Errorf("%s reads %+v, %v, want %+v", written, again, err, got)
		}
	})
}

func TestPortablePaths(t *testing.T) {
	const dir = "/tmp/attune-build-123"
	for file, want := range map[string]string{
		dir + "/ada/sdpa.cu":                                                "ada/sdpa.cu",
		dir + "/ada/../common/ptx.cuh":                                      "common/ptx.cuh",
		dir + "/include/own.cuh":                                            "include/own.cuh",
		dir + "4/ada/sdpa.cu":                                               "sdpa.cu", // another folder, whose name begins alike
		"/usr/local/cuda/include/cuda_fp16.h":                               "cuda/cuda_fp16.h",
		"/usr/local/cuda/bin/../targets/x86_64-linux/include/crt/mma.h":     "cuda/crt/mma.h",
		"/opt/cuda/targets/sbsa-linux/include/cuda/std/limits":              "cuda/cuda/std/limits",
		"/home/someone/.cache/attune/nvidia/cu13/bin/..//include/crt/mma.h": "cuda/crt/mma.h",
		"/usr/lib/somewhere/stddef.h":                                       "stddef.h",
		"ada/sdpa.cu":                                                       "ada/sdpa.cu",
		"cuda/crt/mma.h":                                                    "cuda/crt/mma.h",
	} {
		ptx := fmt.Sprintf("\t.file\t1 %q\n", file)
		if got, want := string(portablePTX([]byte(ptx), dir)), fmt.Sprintf("\t.file\t1 %q\n", want); got != want {
			t.Errorf("%q becomes %q, want %q", ptx, got, want)
		}
	}
}

// internalPTX is what nvcc writes in a folder, with the hash of the folder's path in names: plain, and as lists of bytes that nvcc
// breaks after 40 numbers.
func internalPTX(dir, hash string) string {
	name := "_ZN28_INTERNAL_" + hash + "_5_in_cu_k30_GLOBAL__N__" + hash + "_5_in_cu_k5twiceEPKf"
	var ptx strings.Builder
	fmt.Fprintf(&ptx, ".version 9.0\n.func  (.param .b32 func_retval0) %s(\n\t.param .b64 %s_param_0\n)\n{\n\tret;\n}\n", name, name)
	fmt.Fprintf(&ptx, "\t.file\t1 \"%s/ada/in.cu\"\n\t.section\t.debug_str\n\t{\n", dir)
	for i := range 30 {
		// The name moves along, so that the line breaks come at every place in it.
		fmt.Fprintf(&ptx, "$L__info_string%d:\n", i)
		text := strings.Repeat("x", i) + name + "\x00"
		for len(text) > 0 {
			n := min(40, len(text))
			fmt.Fprintf(&ptx, "%s\n", byteListLine([]byte(text[:n])))
			text = text[n:]
		}
	}
	ptx.WriteString("\t}\n")
	return ptx.String()
}

func TestPortableNames(t *testing.T) {
	want := internalPTX(".", "00000000")
	want = strings.Replace(want, "./ada", "ada", 1)
	for dir, hash := range map[string]string{"/tmp/a": "ccff5b3c", "/var/tmp/some where": "551d3d3d"} {
		in := internalPTX(dir, hash)
		before := strings.Clone(in)
		got := portablePTX([]byte(in), dir)
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", dir, diff)
		}
		if again := portablePTX(got, dir); !bytes.Equal(got, again) {
			t.Error("portable PTX is changed once more")
		}
		if in != before {
			t.Error("the PTX given was changed in place")
		}
	}
}

// What only looks like the names that nvcc makes is left alone.
func TestPortablePTXLeavesTheRest(t *testing.T) {
	for _, ptx := range []string{
		"",
		"_INTERNAL_",
		"// _INTERNAL_\n.version 9.0\n",
		"_INTERNAL_12345g78_x",
		"_GLOBAL__N__1234567",
		".b8 95,73,78,84,69,82,78,65,76,95",
		".b8 95,73,78,84,69,82,78,65,76,95\n$L__info_string1:\n.b8 48,49,50,51,52,53,54,55", // two strings
		".b8 1,2,300\n.b8 x\n.b8\n",
		"\t.b8 95,73,78",
		".file 1 ada/in.cu\n",
		"\t.file\t1 \"/tmp/a\n/include/b\"\n",
	} {
		if got := string(portablePTX([]byte(ptx), "/tmp/a")); got != ptx {
			t.Errorf("%q becomes %q", ptx, got)
		}
	}
}

func FuzzPortablePTX(f *testing.F) {
	f.Add([]byte(internalPTX("/tmp/a", "ccff5b3c")), "/tmp/a")
	f.Add([]byte("\t.file\t1 \"/usr/local/cuda/bin/../targets/x86_64-linux/include/crt/mma.h\"\n"), "/tmp/a")
	f.Add([]byte("_INTERNAL_\n.b8 95,73,78,84,69,82,78,65,76,95\n.b8 097,98,99,100\n.b8 101,102,48,49,50\n"), "")
	f.Add([]byte(".file 1 \"/\"\n.file 2 \"\"\n.file 3 \"/include/\"\n.file 4 \"//a//include/../b\""), "/")
	f.Fuzz(func(t *testing.T, ptx []byte, dir string) {
		given := bytes.Clone(ptx)
		once := portablePTX(ptx, dir)
		if !bytes.Equal(given, ptx) {
			t.Error("the PTX given was changed in place")
		}
		if twice := portablePTX(once, dir); !bytes.Equal(once, twice) {
			t.Errorf("once:\n%q\ntwice:\n%q", once, twice)
		}
		if bytes.Count(ptx, []byte("\n")) != bytes.Count(once, []byte("\n")) {
			t.Errorf("the number of lines changes:\n%q\n%q", ptx, once)
		}
		if internal := internalHash.FindSubmatch(once); internal != nil && string(internal[1]) != "00000000" {
			t.Errorf("a hash is left: %q", internal[0])
		}
	})
}
