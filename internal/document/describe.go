package document

import (
	"fmt"

	"attune/internal/profile"
	"attune/internal/run"
)

// Describe returns the files of a record that people read, by name: report.md, or profile.md of profiles,
// and the plots of a search and of profiles. The lab writes them with the record.
func Describe(record any) (map[string][]byte, error) {
	switch r := record.(type) {
	case *run.Run:
		return map[string][]byte{MarkdownFile: (&RunStudy{Run: r}).Document().WithoutFigures().Markdown()}, nil
	case *run.Bench:
		return map[string][]byte{MarkdownFile: (&BenchStudy{Bench: r}).Document().WithoutFigures().Markdown()}, nil
	case *run.SelectionTuning:
		return map[string][]byte{run.TuningReport: SelectionTuning(r).Markdown()}, nil
	case run.FinishedSearch:
		return (&TuningStudy{Tuning: r.Tuning, Evaluations: r.Evaluations}).Document().recordFiles(run.TuningReport), nil
	case profile.Set:
		return ProfileDocument(r.Variant, r.Profiles).recordFiles("profile.md"), nil
	}
	return nil, fmt.Errorf("document: no document describes a %T", record)
}

// recordFiles are the document and its plots as files of a record.
func (d *Document) recordFiles(name string) map[string][]byte {
	d = d.inRecord()
	files := map[string][]byte{name: d.Markdown()}
	for _, f := range d.Figures() {
		files[d.file(f)] = f.Plot.SVG()
	}
	return files
}
