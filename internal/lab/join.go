package lab

import (
	"context"
	"fmt"
	"slices"

	"attune/internal/gate"
	"attune/internal/problem"
	"attune/internal/run"
)

// Join records a request whose problems several machines have checked without a clock. Machine i had
// Part{i, len(machines)}, and machines[i] are the runs that it recorded. Each joined run is passed to
// done as by Run.
func (l *Lab) Join(ctx context.Context, request Request, machines [][]*run.Run, done func(*run.Run)) error {
	request.Problem = l.problem()
	p, err := request.plan(l.Device.facts.Arch)
	if err != nil {
		return err
	}
	ids := map[string]string{} // of joined runs by variant
	keep := func(r *run.Run) error {
		err := l.record(ctx, r, nil)
		ids[r.Variant] = r.ID
		done(r)
		return err
	}
	for _, e := range p.entries {
		var joined []*run.Run
		for _, part := range e.parts {
			pieces, err := piecesOf(e, part, machines)
			if err != nil {
				return err
			}
			one := l.joinPieces(p.instances(part.variant, part.shapes), pieces)
			if same := one.MeasuredAs; same != nil {
				one.MeasuredAs = &run.MeasuredAs{Run: ids[same.Variant], Variant: same.Variant}
			}
			if err := keep(one); err != nil {
				return err
			}
			joined = append(joined, one)
		}
		if e.selection != nil {
			if err := keep(l.join(p, e, joined)); err != nil {
				return err
			}
		}
	}
	return nil
}

// piecesOf are the runs of a part of an entry, one of each machine.
func piecesOf(e entry, part part, machines [][]*run.Run) ([]*run.Run, error) {
	of := ""
	if e.selection != nil {
		of = e.selection.Name
	}
	var pieces []*run.Run
	for i, runs := range machines {
		at := slices.IndexFunc(runs, func(r *run.Run) bool { return r.Variant == part.variant.String() && r.PartOf == of })
		if at < 0 {
			return nil, fmt.Errorf("part %d of %d has no run of %s", i+1, len(machines), part.variant)
		}
		pieces = append(pieces, runs[at])
	}
	return pieces, nil
}

// joinPieces makes one run of those of a variant on parts of its problems. As in a run of all, a problem
// that ends the check is the last one.
func (l *Lab) joinPieces(problems []problem.Instance, pieces []*run.Run) *run.Run {
	var reasons failureReasons
	var rows []run.Correctness
	var ended *run.Run // the piece whose check ended early
	for i, one := range problems {
		piece, at := pieces[i%len(pieces)], i/len(pieces)
		if at >= len(piece.Correctness) {
			ended = piece
			break
		}
		row := piece.Correctness[at]
		rows = append(rows, row)
		reasons.add(l.instanceName(one), &row)
	}
	wrong := reasons.texts()
	whole := *base(pieces, ended)
	whole.Correctness, whole.Requested.Problems = append([]run.Correctness{}, rows...), len(problems)
	whole.Lines = nil
	gates := gatesOf(&whole)
	switch {
	case ended == nil:
		gates.Correctness = gate.Correctness(wrong)
	case len(wrong) > 0 && ended.Failure != "":
		own := ended.Reasons.Correctness
		gates.Correctness = gate.Correctness(append(wrong, own[len(own)-1]))
	}
	for i, piece := range pieces {
		if gates.Correctness.Status == gate.Pass {
			if whole.Lines = whole.Lines.Join(piece.Lines); i == 0 {
				whole.Lines = piece.Lines
			}
		}
		joinMachine(&whole, piece)
	}
	whole.SetGates(gates)
	whole.Verdict = gates.Verdict(false)
	return &whole
}

// base is the piece that a joined run takes the rest from: the one that ended early, else one that is
// wrong, whose later gates say so.
func base(pieces []*run.Run, ended *run.Run) *run.Run {
	if ended != nil {
		return ended
	}
	return pieces[max(0, slices.IndexFunc(pieces, func(r *run.Run) bool { return r.Gates.Correctness != gate.Pass }))]
}

// gatesOf are the checks of a run's gates.
func gatesOf(r *run.Run) gate.Gates {
	return gate.Gates{
		Resources:   gate.Check{Status: r.Gates.Resources, Reasons: r.Reasons.Resources},
		Correctness: gate.Check{Status: r.Gates.Correctness, Reasons: r.Reasons.Correctness},
		Performance: gate.Check{Status: r.Gates.Performance, Reasons: r.Reasons.Performance},
		Profile:     gate.Check{Status: r.Gates.Profile, Reasons: r.Reasons.Profile},
	}
}

// joinMachine adds what a piece records of its device.
func joinMachine(whole, piece *run.Run) {
	if piece.Time.Before(whole.Time) {
		whole.Time = piece.Time
	}
	if whole.Loaded == nil { // a piece without problems loads nothing
		whole.Loaded, whole.Ran = piece.Loaded, piece.Ran
	}
	if s, own := whole.Requested.Simulation, piece.Requested.Simulation; s != nil && own != nil && own.Schedules > s.Schedules {
		with := *s
		with.Schedules = own.Schedules
		whole.Requested.Simulation = &with
	}
}
