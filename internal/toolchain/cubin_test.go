package toolchain

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestCodeHash(t *testing.T) {
	compiler := pinned(t)
	cacheDir := t.TempDir()
	build := func(source string, scale int) *Image {
		t.Helper()
		target := tinyTarget()
		target.Knobs = map[string]int{"SCALE": scale}
		image, _ := mustBuild(t, NewBuilder(with(tiny(), target.Source, source), compiler, cacheDir), target)
		return image
	}
	source := string(tiny()["ada/tiny.cu"].Data)
	plain := build(source, 3)
	same := func(name string, other *Image) {
		t.Helper()
		if bytes.Equal(plain.Cubin, other.Cubin) || plain.Record.PTXHash == other.Record.PTXHash {
			t.Fatalf("%s: the line information is the same, so this test checks nothing", name)
		}
		if plain.Record.CodeHash != other.Record.CodeHash {
			t.Errorf("%s: the hash differs", name)
		}
	}
	differs := func(name string, other *Image) {
		t.Helper()
		if plain.Record.CodeHash == other.Record.CodeHash {
			t.Errorf("%s: the hash is the same", name)
		}
	}
	same("lines moved", build("\n\n\n// Text.\n\n"+source, 3))
	differs("another constant", build(source, 4))
	differs("more shared memory with the same instructions", build(strings.Replace(source, "tile[64]", "tile[128]", 1), 3))
	differs("another launch", build(strings.Replace(source, "(64, 16, 0)", "(64, 16, 512)", 1), 3))
	t.Run("invalid cubins", func(t *testing.T) { testInvalidCubins(t, plain.Cubin) })
}

func testInvalidCubins(t *testing.T, cubin []byte) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		cubin []byte
		want  string
	}{
		{"empty", nil, "read the machine code"},
		{"garbage", []byte("\x7fELF and no header"), "read the machine code"},
		{"cut short", cubin[:len(cubin)/2], "read the machine code"},
		{"a program for the host", []byte(readFile(t, self)), "no section .text.*"},
		{"constants without instructions", bytes.ReplaceAll(cubin, []byte(".text."), []byte(".tent.")), "no section .text.*"},
	} {
		if hash, err := codeHash(c.cubin); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, error %v, want one with %q", c.name, hash, err, c.want)
		}
	}
}
