package peer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"attune/internal/array"
	"attune/internal/problem"
	"attune/internal/python"
	"attune/internal/spec"
)

// Functions parses the peers of a declared kernel, with commas: names of its [[peer]] tables, whose
// files are in dir, and FILE.py:FUNCTION. "all" is every [[peer]], "none" is none.
func Functions(text string, rules []spec.PeerRule, dir string) ([]Peer, error) {
	var all []Peer
	for name := range strings.SplitSeq(text, ",") {
		var found []Peer
		if file, function, ok := cutLast(name, ":"); ok {
			found = []Peer{{Kind: Python, Name: function, File: file, Function: function}}
		}
		for _, r := range rules {
			if name == r.Name || name == allPeers {
				found = append(found, Peer{Kind: Python, Name: r.Name, File: filepath.Join(dir, filepath.FromSlash(r.File)), Function: r.Function})
			}
		}
		if len(found) == 0 && name != allPeers && name != noPeer {
			return nil, unknownFunction(name, rules)
		}
		for _, p := range found {
			var err error
			if all, err = addFunction(all, p); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// cutLast cuts a text around the last separator.
func cutLast(text, separator string) (before, after string, ok bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

func unknownFunction(name string, rules []spec.PeerRule) error {
	known := []string{}
	for _, r := range rules {
		known = append(known, r.Name)
	}
	known = append(known, allPeers, noPeer, "and FILE.py:FUNCTION")
	return fmt.Errorf("unknown peer %q; there are %s", name, strings.Join(known, ", "))
}

// addFunction adds a peer with the absolute path of its file, unless it is there.
func addFunction(all []Peer, p Peer) ([]Peer, error) {
	if p.Function == "" || p.File == "" {
		return nil, fmt.Errorf("peer %s:%s: want FILE.py:FUNCTION", p.File, p.Function)
	}
	info, err := os.Stat(p.File)
	switch {
	case err != nil:
		return nil, fmt.Errorf("peer %s: there is no file %s", p.Name, p.File)
	case info.IsDir():
		return nil, fmt.Errorf("peer %s: %s is a folder; want FILE.py:FUNCTION", p.Name, p.File)
	}
	if p.File, err = filepath.Abs(p.File); err != nil { // the helper runs in another folder
		return nil, err
	}
	for _, other := range all {
		if other == p {
			return all, nil
		}
		if other.Name == p.Name {
			return nil, fmt.Errorf("two peers have the name %s: %s:%s and %s:%s; give one of them another", p.Name,
				other.File, other.Function, p.File, p.Function)
		}
	}
	return append(all, p), nil
}

// Sources describes the functions among peers for a record, by name: file, function and the SHA-256
// of the file. It is nil if there are none.
func Sources(peers []Peer) map[string]string {
	var all map[string]string
	for _, p := range peers {
		if p.Kind != Python {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[p.Name] = filepath.Base(p.File) + ":" + p.Function
		if text, err := os.ReadFile(p.File); err == nil {
			all[p.Name] += fmt.Sprintf(" sha256:%x", sha256.Sum256(text))
		}
	}
	return all
}

// id is the helper's name of a peer.
func (p Peer) id() string {
	if p.Kind == Python {
		return p.File + ":" + p.Function
	}
	return p.Kind
}

// prepareFunction makes a function ready for the inputs of a declared problem.
func (h *Helper) prepareFunction(ctx context.Context, p Peer, data problem.PeerData, g Graph) error {
	if err := h.writeArrays(data.Arrays); err != nil {
		return &Error{Why: "write its inputs: " + err.Error(), Do: "set TMPDIR to a folder with free space"}
	}
	r := request{
		Op: "prepare", Peer: p.id(), Launches: g.Launches, Copies: g.Copies, Inputs: h.version,
		File: p.File, Function: p.Function, Axes: data.Axes, Outputs: h.arrayFiles(outputPrefix, data.Outputs),
	}
	r.Arrays = h.arrayFiles(inputPrefix, data.Arrays)
	if _, err := h.call(ctx, r); err != nil {
		return err
	}
	h.launches[p], h.outputs[p] = g.Launches, data.Outputs
	return nil
}

// Prefixes of the files of arrays; a number follows, since a name may be that of another file.
const (
	inputPrefix  = "in"
	outputPrefix = "out"
)

func (h *Helper) arrayFiles(prefix string, arrays []*array.Array) []arrayFile {
	files := []arrayFile{}
	for i, a := range arrays {
		files = append(files, arrayFile{a.Name, a.Type, append([]int{}, a.Shape...), h.file(prefix + strconv.Itoa(i))})
	}
	return files
}

// writeArrays writes inputs to the folder, unless they are in it already.
func (h *Helper) writeArrays(arrays []*array.Array) error {
	if h.arrays != nil && slices.Equal(h.arrays, arrays) {
		return nil
	}
	h.inputs, h.arrays = nil, nil
	for i, a := range arrays {
		if err := os.WriteFile(h.file(inputPrefix+strconv.Itoa(i)), a.Data, 0o600); err != nil {
			return err
		}
	}
	h.arrays = append([]*array.Array{}, arrays...)
	h.version++
	return nil
}

// functionOutputs are the outputs of a prepared function. The helper has checked them; what it
// writes is checked again.
func (h *Helper) functionOutputs(ctx context.Context, p Peer) (map[string][]float64, error) {
	want := h.outputs[p]
	files := h.arrayFiles(outputPrefix, want)
	for _, f := range files {
		if err := os.Remove(f.File); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, &Error{Why: "remove its earlier output: " + err.Error()}
		}
	}
	r, err := h.call(ctx, request{Op: "output", Peer: p.id(), Outputs: files})
	if err != nil {
		return nil, err
	}
	if len(r.Outputs) != len(want) {
		return nil, &Error{Why: fmt.Sprintf("it returned %d outputs; want %d", len(r.Outputs), len(want))}
	}
	values := map[string][]float64{}
	for i, a := range want {
		if values[a.Name], err = readOutput(a, r.Outputs[i], files[i].File); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// readOutput reads an output: of the declared type, or an integer of another size as 64 bits.
func readOutput(want *array.Array, got arrayFile, path string) ([]float64, error) {
	fits := got.DType == want.Type || got.DType == array.I64 && !want.Type.Float()
	if got.Name != want.Name || !fits || !slices.Equal(got.Shape, want.Shape) {
		return nil, &Error{Why: fmt.Sprintf("it returned %s of %v as %s; want %s of %v as %s",
			python.OneLine(string(got.DType), 80), got.Shape, python.OneLine(got.Name, 80), want.Type, want.Shape, want.Name)}
	}
	a := &array.Array{Type: got.DType, Shape: want.Shape}
	var err error
	if a.Data, err = os.ReadFile(path); err != nil {
		return nil, &Error{Why: "it wrote no output: " + err.Error()}
	}
	if bytes := a.Len() * a.Type.Bytes(); len(a.Data) != bytes {
		return nil, &Error{Why: fmt.Sprintf("its output %s has %d bytes; want %d", want.Name, len(a.Data), bytes)}
	}
	return a.Floats(), nil
}
