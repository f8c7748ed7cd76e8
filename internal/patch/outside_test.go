package patch

import (
	"strings"
	"testing"
)

func TestOutside(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "float x;\n", "#include <cstdint>\n", "#include \"../k.cuh\"\n", "#  include <cuda/std/array>\n",
		"#if __has_include(<cuda_fp8.h>)\n#endif\n", "// includes nothing\n", "#/* why */include \"h.cuh\" // here\n",
	} {
		if err := Outside("sub/h.cuh", nil, []byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{
		"#include \"/etc/passwd\"\n", "#include </etc/passwd>\n", "#include <../../etc/passwd>\n", "#include \"../../k.cuh\"\n",
		"#define F \"/etc/passwd\"\n#include F\n", "# \\\n include \"/etc/passwd\"\n", "#inc\\\nlude \"/etc/passwd\"\n",
		"#inc\\  \nlude </etc/passwd>\n", "%:include \"/etc/passwd\"\n", "??=include \"/etc/passwd\"\n", "#/**/include/**/\"/etc/passwd\"\n",
		"#/*\n*/include \"/etc/passwd\"\n", "#include /*\n*/ \"/etc/passwd\"\n", "const char* s = R\"(/*)\";\n#include \"/etc/passwd\"\n",
		"#include_next </etc/passwd>\n", "#import \"/etc/passwd\"\n", "#embed \"k.cu\"\n", "%:embed </etc/passwd>\n",
		"#if __has_include(\"/root/.ssh/id_rsa\")\n#endif\n", "#if __has_include(NAME)\n#endif\n", "#if __has_embed(<../x>)\n#endif\n",
		"#include <x\n", "#include\n",
	} {
		err := Outside("sub/h.cuh", []byte("#include <cstdint>\n"), []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "sub/h.cuh: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
		if err := Outside("sub/h.cuh", []byte(text), []byte(text+"float x;\n")); err != nil {
			t.Errorf("%q, which the source had: %v", text, err)
		}
	}
}

func FuzzOutside(f *testing.F) {
	f.Add("#include \"/etc/passwd\"\n")
	f.Add("#/*\n*/include <a/../b>\n")
	f.Fuzz(func(t *testing.T, text string) {
		if err := Outside("h.cuh", nil, []byte(text)); err != nil && strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%q", err)
		}
		if err := Outside("h.cuh", []byte(text), []byte(text)); err != nil {
			t.Errorf("an unchanged source: %v", err)
		}
	})
}
