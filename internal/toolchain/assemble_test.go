package toolchain

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestAssemble(t *testing.T) {
	compiler := pinned(t)
	image, _ := mustBuild(t, NewBuilder(tiny(), compiler, t.TempDir()), tinyTarget())
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	assemble := func(ptx []byte) string {
		t.Helper()
		hash, err := Assemble(t.Context(), compiler, ptx, "sm_89")
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	own := assemble(image.PTX)
	if own != image.Record.CodeHash {
		t.Errorf("the hash is %s, the build has %s", own, image.Record.CodeHash)
	}
	// Dead code does not change the machine code; removing a barrier does.
	idle := changed(t, image.PTX, "\tbar.sync \t0;", "\tbar.sync \t0;\n\t{ .reg .u32 %idle; mov.u32 %idle, 77; }")
	if assemble(idle) != own {
		t.Error("PTX with an additional dead line is other machine code")
	}
	if assemble(changed(t, image.PTX, "\tbar.sync \t0;", "")) == own {
		t.Error("PTX without its barrier is the same machine code")
	}
	if left := names(t, tmp); len(left) > 0 {
		t.Errorf("not deleted: %v", left)
	}
}

// changed is PTX in which one text is replaced.
func changed(t *testing.T, ptx []byte, before, after string) []byte {
	t.Helper()
	if bytes.Count(ptx, []byte(before)) != 1 {
		t.Fatalf("%q does not occur exactly once in\n%s", before, ptx)
	}
	return bytes.Replace(ptx, []byte(before), []byte(after), 1)
}

func TestAssembleInvalidPTX(t *testing.T) {
	compiler := pinned(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var refused *CompileError
	_, err := Assemble(t.Context(), compiler, []byte(".version 8.0\n.target sm_89\n.address_size 64\nnonsense\n"), "sm_89")
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "PTX for sm_89 does not compile") || !strings.Contains(err.Error(), "image.ptx") {
		t.Errorf("nonsense: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), tmp) {
		t.Errorf("the error contains a machine path: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Assemble(ctx, compiler, nil, "sm_89"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if left := names(t, tmp); len(left) > 0 {
		t.Errorf("not deleted: %v", left)
	}
	t.Setenv("TMPDIR", filepath.Join(tmp, "gone"))
	if _, err := Assemble(t.Context(), compiler, nil, "sm_89"); err == nil {
		t.Error("without a temporary folder there is a hash")
	}
}
