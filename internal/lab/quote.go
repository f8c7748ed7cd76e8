package lab

import (
	"attune/internal/finding"
	"attune/internal/form"
	"attune/internal/problem"
)

// quote adds the source lines that findings name, so that a record shows them after the sources have
// changed. Findings of sources that cannot be read keep their places alone.
func (l *Lab) quote(b problem.Build, lists ...[]finding.Finding) {
	var files map[string][]byte
	sources := func(file string) []byte {
		if files == nil {
			files, _ = l.Builder.Sources(form.Target(l.Kernel, b.Variant, b.Image.Record.Arch))
		}
		return files[file]
	}
	for _, list := range lists {
		for i := range list {
			list[i].Quote(sources)
		}
	}
}
