package toolchain

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// launchCase is PTX and the launch contract in it.
type launchCase struct {
	name, ptx string
	want      Launch
}

func TestLaunch(t *testing.T) {
	checkLaunches(t, []launchCase{
		{
			"bytes without the trailing zeros",
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
			"untyped words in hexadecimal, without the trailing zero",
			".const .align 4 .b32 attune_launch[3] = {0x20, 0x10};",
			Launch{Threads: 32, QueryRows: 16},
		},
		{
			"persistent blocks",
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
	})
}

func TestLaunchOutputs(t *testing.T) {
	checkLaunches(t, []launchCase{
		{
			"LSE in FP32",
			".global .align 4 .u32 attune_launch[3] = {128, 32};\n.visible .global .align 4 .u32 attune_outputs[1] = {1};",
			Launch{Threads: 128, QueryRows: 32, LSE: LSEInFP32},
		},
		{
			"LSE after rounding",
			".global .align 4 .u32 attune_launch[3] = {128, 32};\n.visible .global .align 4 .b8 attune_outputs[4] = {2};",
			Launch{Threads: 128, QueryRows: 32, LSE: LSERounded},
		},
		{
			"BF16",
			".global .align 4 .u32 attune_launch[3] = {128, 32};\n.visible .global .align 4 .b8 attune_outputs[8] = {0, 0, 0, 0, 1};",
			Launch{Threads: 128, QueryRows: 32, Output: BF16},
		},
		{
			"no output besides O",
			".global .align 4 .u32 attune_launch[3] = {128, 32};\n.visible .global .align 4 .u32 attune_outputs[1];",
			Launch{Threads: 128, QueryRows: 32},
		},
	})
}

func checkLaunches(t *testing.T, cases []launchCase) {
	t.Helper()
	for _, c := range cases {
		got, err := parseLaunch(c.ptx)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestInvalidLaunch(t *testing.T) {
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
		{"an unknown LSE", outputs("1", "3"), "attune_outputs has lse 3 and bf16 0; want lse 0 (none), 1"},
		{"an unknown format", outputs("2", "0, 2"), "attune_outputs has lse 0 and bf16 2"},
		{"outputs that are not a number", outputs("1", "x"), "attune_outputs: element 0"},
		{"none", ".visible .entry k()", "no array attune_launch; a kernel defines it with ATTUNE_LAUNCH"},
		{"only its use", "mov.u64 %rd1, attune_launch;", "no array attune_launch"},
		{"a scalar", ".global .align 4 .u32 attune_launch = 3;", "no array attune_launch"},
		{"halves", array("b16", "6", " = {128, 0, 32}"), "no array attune_launch"},
		{"too short", array("b8", "8", " = {128, 0, 0, 0, 32}"), "attune_launch has 2 words, want 3 to 5"},
		{"too long", array("u32", "6", " = {128, 32, 0, 1, 1, 1}"), "attune_launch has 6 words, want 3 to 5"},
		{"a length that overflows", array("u32", "4611686018427387907", " = {128, 32, 0}"), "want whole words and at most 256 bytes"},
		{"a length beyond int64", array("b8", strings.Repeat("9", 40), ""), "want whole words"},
		{"more words than declared", array("u32", "3", " = {128, 32, 0, 1}"), "more elements than it declares"},
		{"more bytes than declared", array("b8", "12", " = {1,0,0,0,1,0,0,0,0,0,0,0,0}"), "more elements than it declares"},
		{"not a byte", array("b8", "12", " = {256, 0, 0, 0, 32}"), "element 0"},
		{"not a word", array("u32", "3", " = {128, 4294967296}"), "element 1"},
		{"negative", array("u32", "3", " = {128, 32, -1}"), "element 2"},
		{"not a number", array("b8", "12", " = {128, 0, 0, 0, x}"), "element 4"},
		{"only zeros", array("b8", "12", ""), "0 threads and 0 query rows"},
		{"too many threads", array("u32", "3", " = {1025, 32}"), "1025 threads"},
		{"no rows", array("u32", "3", " = {128}"), "0 query rows"},
		{"half a word", array("b8", "13", " = {128, 0, 0, 0, 32}"), "13 elements of 1 bytes, want whole words"},
		{"too large a cluster", array("u32", "5", " = {128, 32, 0, 0, 17}"), "clusters of 17 blocks; want at most 16"},
		{"half a map", maps("u32", "6", " = {0, 32, 64, 64, 1, 32}"), "attune_tensor_maps has 6 words, want 4 for each map"},
		{"a map of an unknown tensor", maps("u32", "4", " = {4, 32, 64, 64}"), "map 0: its tensor is argument 4; want 0 (q), 1 (k), 2 (v) or 3 (o)"},
		{"a second map of no rows", maps("u32", "8", " = {0, 32, 64, 64, 1, 0, 64, 64}"), "map 1: its box has 0 rows"},
		{"a map of too many rows", maps("u32", "4", " = {0, 257, 64, 64}"), "its box has 257 rows"},
		{"a map of no bytes", maps("b8", "16", " = {0, 0, 0, 0, 32}"), "a row of its box has 0 bytes"},
		{"a map of odd rows", maps("u32", "4", " = {0, 32, 56, 64}"), "a row of its box has 56 bytes; want a multiple of 16"},
		{"a map of an unknown swizzle", maps("u32", "4", " = {0, 32, 64, 48}"), "its swizzle is 48 bytes"},
		{"a map wider than its swizzle", maps("u32", "4", " = {0, 32, 128, 64}"), "128 bytes, more than the swizzle's 64"},
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
			t.Errorf("%+v is not a valid launch", got)
		}
		// The contract, written in nvcc's form, parses to the same contract.
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
			t.Errorf("%s parses to %+v, %v, want %+v", written, again, err, got)
		}
	})
}
