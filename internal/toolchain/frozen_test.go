package toolchain

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"
)

// A frozen builder reads each file once, also the absence of a file, and names those that changed.
func TestFrozenBuilder(t *testing.T) {
	folder := fstest.MapFS{"k.cu": {Data: []byte("one")}, "same.cuh": {Data: []byte("same")}}
	plain := NewBuilder(folder, nil, "")
	frozen := plain.Frozen()
	if frozen.Frozen() != frozen || len(plain.Edited()) != 0 {
		t.Error("a frozen builder is frozen again, or a plain one has edited files")
	}
	read := func() string {
		text, err := fs.ReadFile(frozen.Folder(), "k.cu")
		_, missing := fs.ReadFile(frozen.Folder(), "new.cuh")
		_, other := fs.ReadFile(frozen.Folder(), "same.cuh")
		if err != nil || other != nil || !errors.Is(missing, fs.ErrNotExist) {
			t.Errorf("%v, %v, %v", err, other, missing)
		}
		return string(text)
	}
	if read() != "one" || len(frozen.Edited()) != 0 {
		t.Errorf("%q", frozen.Edited())
	}
	folder["k.cu"], folder["new.cuh"] = &fstest.MapFile{Data: []byte("two")}, &fstest.MapFile{}
	if read() != "one" || !slices.Equal(frozen.Edited(), []string{"k.cu", "new.cuh"}) {
		t.Errorf("%q", frozen.Edited())
	}
}
