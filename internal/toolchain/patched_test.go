package toolchain

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestSourcesOfATarget(t *testing.T) {
	t.Parallel()
	include := t.TempDir()
	if err := os.WriteFile(filepath.Join(include, "x.cuh"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := NewBuilder(fstest.MapFS{"k.cu": {Data: []byte("#include \"h.cuh\"\n#include <x.cuh>\n")}, "h.cuh": {}, "other.cuh": {}}, nil, "")
	files, err := b.Sources(Target{Source: "k.cu", Include: []string{include}})
	if got := slices.Sorted(maps.Keys(files)); err != nil || !slices.Equal(got, []string{"h.cuh", "k.cu"}) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := b.Sources(Target{Variant: "k", Arch: "sm_90a", Source: "none.cu"}); err == nil || !strings.HasPrefix(err.Error(), "build k for sm_90a: the source none.cu does not exist") {
		t.Error(err)
	}
}

// Sources that keep the compiler busy are at fault; a builder of the kernel's own sources waits.
func TestLimitOfUntrustedBuilds(t *testing.T) {
	plainEnvironment(t)
	dir := t.TempDir()
	script(t, filepath.Join(dir, "nvcc"), "sleep 60")
	b := NewBuilder(tiny(), &Compiler{NVCC: filepath.Join(dir, "nvcc"), Version: "0"}, "")
	untrusted := b.Untrusted(tiny(), 200*time.Millisecond)
	_, _, err := untrusted.Build(t.Context(), tinyTarget())
	if broken := new(*SourceError); !errors.As(err, broken) || !strings.HasSuffix(err.Error(), "the compiler did not finish within 200ms") {
		t.Error(err)
	}
	script(t, filepath.Join(dir, "nvcc"), "echo 'ada/tiny.cu(3): error: no'; exit 2")
	for _, b := range []*Builder{b, b.Untrusted(tiny(), time.Minute)} {
		_, _, err := b.Build(t.Context(), tinyTarget())
		if refused := new(*CompileError); !errors.As(err, refused) {
			t.Error(err)
		}
	}
}
