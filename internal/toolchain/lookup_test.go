package toolchain

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLookup finds a build in the cache, and compiles nothing.
func TestLookup(t *testing.T) {
	compiler, cacheDir := pinned(t), t.TempDir()
	builder := NewBuilder(tiny(), compiler, cacheDir)
	if _, _, err := builder.Lookup(tinyTarget()); err == nil || !strings.Contains(err.Error(), "attune build plain --arch sm_89") {
		t.Errorf("a target that was never built: %v", err)
	}
	built, _ := mustBuild(t, builder, tinyTarget())
	found, origin, err := builder.Lookup(tinyTarget())
	if err != nil || origin != FromCache {
		t.Fatalf("%s, %v", origin, err)
	}
	if diff := cmp.Diff(built, found); diff != "" {
		t.Errorf("(-built +found):\n%s", diff)
	}
	missing := tinyTarget()
	missing.Source = "no.cu"
	if _, _, err := builder.Lookup(missing); err == nil {
		t.Error("a source that does not exist is no error")
	}
}

// TestLookupShipped finds shipped PTX with and without a compiler.
func TestLookupShipped(t *testing.T) {
	target, s := stage(t, "stage1", "sm_89")
	image, origin, err := NewBuilder(sdpa(t), nil, t.TempDir()).Lookup(target)
	if err != nil || origin != FromShipped || image.Record.CodeHash != s.Record.CodeHash {
		t.Errorf("%s, %v", origin, err)
	}
}
