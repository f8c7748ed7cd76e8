package catalog

import (
	"errors"
	"slices"

	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
)

// Ladder returns the newest runs of all stages and selections of a kernel on a device, in the order
// of the spec. The entries are newest first; read returns the run of an id. Runs that cannot be read
// are passed over. The error joins their reasons; the runs beside it are valid.
func Ladder(kernel *spec.Kernel, device string, entries []ledger.Entry, read func(id string) (*run.Run, error)) ([]*run.Run, error) {
	byVariant := map[string][]ledger.Entry{}
	for _, e := range entries {
		if e.Kernel == kernel.Name && e.Device == device {
			byVariant[e.Variant] = append(byVariant[e.Variant], e)
		}
	}
	var names []string
	for _, stage := range kernel.Stages {
		names = append(names, stage.Name)
	}
	for _, s := range kernel.Selections {
		names = append(names, s.Name)
	}
	runs := []*run.Run{}
	var unreadable []error
	for _, name := range names {
		r, err := Newest(byVariant[name], read)
		unreadable = append(unreadable, Reasons(err)...)
		if r == nil {
			continue
		}
		if r.Change == "" && len(r.Parts) == 0 { // an old record, or a stage without a parent
			r.Change = change(kernel, name, r.Parent)
		}
		runs = append(runs, r)
	}
	return runs, errors.Join(unreadable...)
}

// change is the difference between two variants of the present spec, or empty.
func change(kernel *spec.Kernel, variant, parent string) string {
	v, errV := kernel.Variant(variant)
	p, errP := kernel.Variant(parent)
	if errV != nil || errP != nil {
		return ""
	}
	return v.Diff(p)
}

// Newest is the newest run with times, else the newest run, or nil. Parts of selections are skipped:
// they have other shapes and another parent than a run of their stage. Runs that cannot be read are
// passed over; the error joins their reasons, also beside a run.
func Newest(entries []ledger.Entry, read func(id string) (*run.Run, error)) (*run.Run, error) {
	slices.SortStableFunc(entries, func(a, b ledger.Entry) int {
		untimed := func(e ledger.Entry) int {
			if e.Headline.P50US == nil {
				return 1
			}
			return 0
		}
		return untimed(a) - untimed(b)
	})
	var unreadable []error
	for _, e := range entries {
		r, err := read(e.ID)
		switch {
		case err != nil:
			unreadable = append(unreadable, err)
		case r.PartOf == "":
			return r, errors.Join(unreadable...)
		}
	}
	return nil, errors.Join(unreadable...)
}

// Reasons are the errors that an error joins, or the error alone; none of nil.
func Reasons(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
