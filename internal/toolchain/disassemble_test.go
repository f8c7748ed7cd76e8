package toolchain

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

func TestDisassemble(t *testing.T) {
	compiler := pinned(t)
	image, _ := mustBuild(t, NewBuilder(tiny(), compiler, t.TempDir()), tinyTarget())
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	text, err := Disassemble(t.Context(), compiler, image.Cubin)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".text.tiny:", "EXIT", "BAR.SYNC"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text has no %s", want)
		}
	}
	if _, err := Disassemble(t.Context(), compiler, []byte("garbage")); err == nil || !strings.Contains(err.Error(), "nvdisasm") {
		t.Errorf("garbage: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Disassemble(ctx, compiler, image.Cubin); err == nil {
		t.Error("a cancelled disassembly returns a text")
	}
	if left := names(t, tmp); len(left) > 0 {
		t.Errorf("not deleted: %v", left)
	}
	t.Setenv("TMPDIR", filepath.Join(tmp, "gone"))
	if _, err := Disassemble(t.Context(), compiler, image.Cubin); err == nil {
		t.Error("without a temporary folder there is a text")
	}
}

func TestDisassembler(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin)
	compiler := &Compiler{NVCC: filepath.Join(dir, "nvcc")}
	if _, err := Disassemble(t.Context(), compiler, nil); err == nil || !strings.Contains(err.Error(), "`attune toolchain install`") {
		t.Errorf("no nvdisasm: %v", err)
	}
	for _, place := range []string{bin, dir} { // nvdisasm beside nvcc has precedence
		script(t, filepath.Join(place, "nvdisasm"), "")
		if got, err := Disassembler(compiler); err != nil || got != filepath.Join(place, "nvdisasm") {
			t.Errorf("%q, %v, want the one in %s", got, err, place)
		}
	}
}
