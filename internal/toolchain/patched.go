package toolchain

import (
	"io/fs"
	"strings"
	"time"
)

// Sources returns the files of the kernel's folder that a build of the target reads, by path. Headers
// that are found by -I are not among them.
func (b *Builder) Sources(t Target) (map[string][]byte, error) {
	files, _, err := b.sources(t)
	if err != nil {
		return nil, buildError(t, err)
	}
	own := map[string][]byte{}
	for name, text := range files {
		if !strings.HasPrefix(name, outsidePrefix) {
			own[name] = text
		}
	}
	return own, nil
}

// Untrusted returns a builder of other sources of the same kernel, with the same compiler, cache and
// flags. A compilation that takes longer than the limit is the fault of the sources.
func (b *Builder) Untrusted(kernel fs.FS, limit time.Duration) *Builder {
	return &Builder{kernel: kernel, compiler: b.compiler, cache: b.cache, slots: b.slots, Dir: b.Dir, tree: b.tree, path: b.path, limit: limit}
}
