package lab

import "attune/internal/run"

// reportName is the file of a record that a person reads first.
const reportName = "report.md"

// documents returns the files of a run's record, with report.md if the lab has a renderer.
func (l *Lab) documents(r *run.Run) (map[string][]byte, error) {
	files, err := r.Documents()
	if err != nil || l.Render == nil {
		return files, err
	}
	files[reportName] = l.Render(r)
	return files, nil
}

// benchDocuments returns the files of a bench's record, with report.md if the lab has a renderer.
func (l *Lab) benchDocuments(b *run.Bench) (map[string][]byte, error) {
	files, err := b.Documents()
	if err != nil || l.RenderBench == nil {
		return files, err
	}
	if files[reportName], err = l.RenderBench(b); err != nil {
		return nil, err
	}
	return files, nil
}
