package toolchain

import "fmt"

// Lookup returns the image of a target without compiling it: from the cache, or else from the
// kernel's shipped PTX.
func (b *Builder) Lookup(t Target) (*Image, Origin, error) {
	files, _, err := b.sources(t)
	if err != nil {
		return nil, "", buildError(t, err)
	}
	if b.compiler != nil {
		key := b.key(t, files.hash())
		if files.computed() {
			key = hashOfChecked(key)
		}
		if image, _ := b.cache.load(key, t); image != nil { // a damaged build is built again by Build
			return image, FromCache, nil
		}
	}
	image, err := shipped(b.kernel, t, files.hash())
	if err != nil {
		return nil, "", fmt.Errorf("%s has no build in the cache and is not shipped; `attune build %s --arch %s` builds it", t, t.Variant, t.Arch)
	}
	return image, FromShipped, nil
}
