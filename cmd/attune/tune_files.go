package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// checkFiles refuses options that would overwrite the recording, the space, or each other's file. A
// file may have several paths: by links, or by another spelling.
func (o replayOptions) checkFiles() error {
	read := []struct{ path, is string }{
		{o.replay, "the recording that --replay reads"}, {o.space, "the space that --space reads"},
	}
	written := []struct{ flag, path string }{{"--journal", o.journal}, {"--export", o.export}, {"--plot", o.plot}}
	var errs []error
	for i, w := range written {
		for _, r := range read {
			if sameFile(w.path, r.path) {
				errs = append(errs, fmt.Errorf("%s %s is %s; name another file", w.flag, w.path, r.is))
			}
		}
		for _, other := range written[:i] {
			if sameFile(w.path, other.path) {
				errs = append(errs, fmt.Errorf("%s and %s name the same file, %s; name two", other.flag, w.flag, w.path))
			}
		}
	}
	if o.plot != "" && !strings.EqualFold(filepath.Ext(o.plot), ".svg") {
		errs = append(errs, fmt.Errorf("--plot %s: the plot is an SVG; its name ends in .svg", o.plot))
	}
	if _, err := os.Stat(o.journal); o.resume && o.journal != "" && errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, fmt.Errorf("there is no journal %s to resume; without --resume a new search starts", o.journal))
	}
	return errors.Join(errs...)
}

// sameFile reports whether two paths name one file, which may not exist yet.
func sameFile(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX == nil && errY == nil {
		return os.SameFile(x, y)
	}
	return resolved(a) == resolved(b)
}

// resolved is the absolute path of a file without links. The file itself may be missing.
func resolved(path string) string {
	if target, err := os.Readlink(path); err == nil { // a link to a file that does not exist yet
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		folder = filepath.Dir(path)
	}
	absolute, err := filepath.Abs(filepath.Join(folder, filepath.Base(path)))
	if err != nil {
		return path
	}
	return absolute
}
