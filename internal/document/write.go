package document

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"attune/internal/plot"
)

// Names of the files of a report. Plots are report-*.svg.
const (
	MarkdownFile = "report.md"
	HTMLFile     = "report.html"
)

// Files are the files of the report by name: Markdown, its plots, and the page that has all in one.
func (d *Document) Files() (map[string][]byte, error) {
	page, err := d.Page()
	if err != nil {
		return nil, err
	}
	marked := fmt.Appendf(nil, "<!-- %s -->\n%s", Mark, d.Markdown())
	files := map[string][]byte{MarkdownFile: marked, HTMLFile: page}
	for _, f := range d.Figures() {
		files[d.file(f)] = f.Plot.SVG()
	}
	return files, nil
}

// Write writes the files of a report into a folder. It replaces files of an earlier report and removes
// its plots. A file of another origin under one of the names is an error, and nothing is written.
func Write(folder string, files map[string][]byte) error {
	if info, err := os.Stat(folder); err == nil && !info.IsDir() {
		return fmt.Errorf("%s is a file; a report needs a folder: name another", folder)
	}
	var foreign []string
	for name := range files {
		if err := Replaceable(filepath.Join(folder, name)); err != nil {
			foreign = append(foreign, name)
		}
	}
	if len(foreign) > 0 {
		slices.Sort(foreign)
		return fmt.Errorf("%s has files that no report wrote: %s; move them, or name another folder", folder, strings.Join(foreign, ", "))
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write a report: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(escapeGlob(folder), "report-*.svg"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if _, again := files[filepath.Base(path)]; !again && Replaceable(path) == nil {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("remove a plot of an earlier report: %w", err)
			}
		}
	}
	for name, data := range files {
		if err := WriteFile(filepath.Join(folder, name), data); err != nil {
			return err
		}
	}
	return nil
}

// escapeGlob makes a pattern of a path that matches only the path.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// WriteFile writes one file, whole or not at all.
func WriteFile(path string, data []byte) error {
	if err := Replaceable(path); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return fmt.Errorf("write a report: %w", err)
	}
	defer os.Remove(temporary.Name()) // after a failure; else it has another name
	_, err = temporary.Write(data)
	err = errors.Join(err, temporary.Chmod(0o644), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write a report: %w", err)
	}
	return nil
}

// Replaceable is an error if a path names something that no report wrote.
func Replaceable(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no plain file; name another", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	head := make([]byte, 512)
	n, _ := file.Read(head) // of an empty file there is nothing to lose
	if n > 0 && !bytes.Contains(head[:n], []byte(Mark)) && !bytes.Contains(head[:n], []byte(`class="`+plot.Class+`"`)) {
		return fmt.Errorf("%s exists and no report wrote it; move it, or name another file", path)
	}
	return nil
}
