package toolchain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPortablePaths(t *testing.T) {
	const dir = "/tmp/attune-build-123"
	for file, want := range map[string]string{
		dir + "/ada/sdpa.cu":                                                "ada/sdpa.cu",
		dir + "/ada/../common/ptx.cuh":                                      "common/ptx.cuh",
		dir + "/include/own.cuh":                                            "include/own.cuh",
		dir + "4/ada/sdpa.cu":                                               "sdpa.cu", // same prefix
		"/usr/local/cuda/include/cuda_fp16.h":                               "cuda/cuda_fp16.h",
		"/usr/local/cuda/bin/../targets/x86_64-linux/include/crt/mma.h":     "cuda/crt/mma.h",
		"/opt/cuda/targets/sbsa-linux/include/cuda/std/limits":              "cuda/cuda/std/limits",
		"/home/someone/.cache/attune/nvidia/cu13/bin/..//include/crt/mma.h": "cuda/crt/mma.h",
		"/usr/lib/somewhere/stddef.h":                                       "stddef.h",
		"ada/sdpa.cu":                                                       "ada/sdpa.cu",
		"cuda/crt/mma.h":                                                    "cuda/crt/mma.h",
	} {
		ptx := fmt.Sprintf("\t.file\t1 %q\n", file)
		if got, want := string(portablePTX([]byte(ptx), dir, compilerFlags{})), fmt.Sprintf("\t.file\t1 %q\n", want); got != want {
			t.Errorf("%q becomes %q, want %q", ptx, got, want)
		}
	}
}

// internalPTX is PTX as nvcc writes it in a folder. The hash of the folder's path is in names: in
// plain text, and in byte lists that nvcc breaks after 40 numbers.
func internalPTX(dir, hash string) string {
	name := "_ZN28_INTERNAL_" + hash + "_5_in_cu_k30_GLOBAL__N__" + hash + "_5_in_cu_k5twiceEPKf"
	var ptx strings.Builder
	fmt.Fprintf(&ptx, ".version 9.0\n.func  (.param .b32 func_retval0) %s(\n\t.param .b64 %s_param_0\n)\n{\n\tret;\n}\n", name, name)
	fmt.Fprintf(&ptx, "\t.file\t1 \"%s/ada/in.cu\"\n\t.section\t.debug_str\n\t{\n", dir)
	for i := range 30 {
		// The growing prefix puts the line break at every position of the name.
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
		got := portablePTX([]byte(in), dir, compilerFlags{})
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", dir, diff)
		}
		if again := portablePTX(got, dir, compilerFlags{}); !bytes.Equal(got, again) {
			t.Error("portable PTX is changed again")
		}
		if in != before {
			t.Error("the argument was changed in place")
		}
	}
}

// Text that only resembles nvcc's names is unchanged.
func TestPortablePTXKeepsOtherText(t *testing.T) {
	for _, ptx := range []string{
		"",
		"_INTERNAL_",
		"// _INTERNAL_\n.version 9.0\n",
		"_INTERNAL_12345g78_x",
		"_GLOBAL__N__1234567",
		".b8 95,73,78,84,69,82,78,65,76,95",
		".b8 95,73,78,84,69,82,78,65,76,95\n$L__info_string1:\n.b8 48,49,50,51,52,53,54,55",
		".b8 1,2,300\n.b8 x\n.b8\n",
		"\t.b8 95,73,78",
		".file 1 ada/in.cu\n",
		"\t.file\t1 \"/tmp/a\n/include/b\"\n",
	} {
		if got := string(portablePTX([]byte(ptx), "/tmp/a", compilerFlags{})); got != ptx {
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
		once := portablePTX(ptx, dir, compilerFlags{})
		if !bytes.Equal(given, ptx) {
			t.Error("the argument was changed in place")
		}
		if twice := portablePTX(once, dir, compilerFlags{}); !bytes.Equal(once, twice) {
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
