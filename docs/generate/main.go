// Command generate writes docs/results.md and the figures of README.md from the records of results/. It
// runs in the root of the repository:
//
//	go run ./docs/generate
//
// A test of this package compares both with the committed ones. Everything on them is printed as it was
// recorded.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/kernels"
)

func main() {
	if err := write(context.Background(), "."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// write writes the documents of the repository in a folder.
func write(ctx context.Context, root string) error {
	files, err := generate(ctx, root)
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, name), text, 0o644))
	}
	return err
}

// generate returns the documents by their paths.
func generate(ctx context.Context, root string) (map[string][]byte, error) {
	r, err := readResults(ctx, filepath.Join(root, "results"))
	if err != nil {
		return nil, err
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return nil, err
	}
	readme, err = replaceHeadline(readme, headlineMarkdown(r))
	return map[string][]byte{"docs/results.md": resultsMarkdown(r), "README.md": readme}, err
}

// replaceHeadline puts the figures between their marks in the README.
func replaceHeadline(readme []byte, figures string) ([]byte, error) {
	const begin, end = "<!-- headline -->\n", "<!-- /headline -->"
	before, rest, found := bytes.Cut(readme, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return nil, errors.New("README.md has no marks of the headline figures")
	}
	return slices.Concat(before, []byte(begin+figures+end), after), nil
}

// readResults reads the ledger and sanitizers.json beside it.
func readResults(ctx context.Context, folder string) (results, error) {
	r := results{Parts: map[string]*run.Run{}}
	kept, err := ledger.Open(ctx, folder)
	if err != nil {
		return r, err
	}
	defer kept.Close()
	if err := r.readRuns(ctx, kept); err != nil {
		return r, err
	}
	if err := r.readOthers(ctx, document.Reader{Ledger: kept}); err != nil {
		return r, err
	}
	text, err := os.ReadFile(filepath.Join(folder, "sanitizers.json"))
	if err != nil {
		return r, err
	}
	var table struct{ Outcomes []sanitized }
	err = json.Unmarshal(text, &table)
	r.Sanitizers = table.Outcomes
	return r, err
}

// readRuns reads the newest run of each stage and selection, and the champions.
func (r *results) readRuns(ctx context.Context, kept *ledger.Ledger) error {
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		return err
	}
	entries, err := kept.List(ctx, ledger.Filter{Kernel: kernel.Name, Device: "cuda"})
	if err != nil {
		return err
	}
	read := func(id string) (*run.Run, error) { return catalog.Run(ctx, kept, id) }
	if r.Ladder, err = catalog.Ladder(kernel, "cuda", entries, read); err != nil {
		return err
	}
	for _, stage := range r.Ladder {
		for _, p := range stage.Parts {
			if r.Parts[p.Run], err = read(p.Run); err != nil {
				return err
			}
		}
	}
	champions, err := kept.Champions(ctx)
	if err != nil {
		return err
	}
	for _, c := range champions.Now() {
		promoted, err := read(c.Run)
		if err != nil {
			return err
		}
		r.Champions = append(r.Champions, championRun{Champion: c, Promoted: promoted})
	}
	return nil
}

// readOthers reads the benches with their samples, and the searches, the oldest first.
func (r *results) readOthers(ctx context.Context, from document.Reader) error {
	benches, err := from.Ledger.Benches()
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(slices.Values(benches)) {
		study, err := from.Bench(ctx, id)
		if err != nil || len(study.LeftOut) > 0 {
			return fmt.Errorf("bench %s: %w %v", id, err, study.LeftOut)
		}
		if study.Bench.Problem != nil {
			r.Examples = append(r.Examples, study.Bench)
		} else {
			r.Benches = append(r.Benches, study.Bench)
		}
	}
	tunings, err := from.Ledger.Tunings()
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(slices.Values(tunings)) {
		study, err := from.Tuning(ctx, id)
		if err != nil {
			return err
		}
		r.Tunings = append(r.Tunings, study.Tuning)
	}
	return nil
}
