package lab

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"attune/internal/crash"
	"attune/internal/problem"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// Proof says which knobs reach the machine code. Each value of each knob was built as the only
// change to each stage.
type Proof struct {
	Arch  string      `json:"arch,omitempty"` // requested; if empty, each stage is built for its newest
	Knobs []KnobProof `json:"knobs"`
}

// KnobProof is the effect of one knob.
type KnobProof struct {
	Knob   string       `json:"knob"`
	Fate   Fate         `json:"fate"`
	Values []ValueProof `json:"values"`
}

// ValueProof lists, for one value of a knob, the variants that it was tried on.
type ValueProof struct {
	Value      int      `json:"value"`
	Own        []string `json:"own"`         // have the value already
	Alive      []string `json:"alive"`       // get different code
	Equal      []string `json:"equal"`       // get the same code
	NotAllowed []string `json:"not_allowed"` // violate a constraint
	Broken     []string `json:"broken"`      // do not compile with the value, or without it
}

// Fate is the overall effect of a knob.
type Fate string

// The fates of a knob.
const (
	Alive   Fate = "alive"   // some change of it changes the code
	Dead    Fate = "dead"    // no change does
	Untried Fate = "untried" // one value, no constraint lets it change alone, or no stage for this architecture has it
)

// Failed reports whether a knob is dead, or a value does not compile.
func (p *Proof) Failed() bool {
	return slices.ContainsFunc(p.Knobs, func(k KnobProof) bool {
		return k.Fate == Dead || slices.ContainsFunc(k.Values, func(v ValueProof) bool { return len(v.Broken) > 0 })
	})
}

// ProofRequest says what to prove.
type ProofRequest struct {
	Arch  string
	Brief bool // stop at the first change of a knob that changes the code
}

// Prove builds every change of one knob in one stage, several at once, and compares the code with
// the stage's. A value that no stage has or allows is tried on variants of the covering set. So are
// all values of a knob that cannot change alone in any stage.
func (l *Lab) Prove(ctx context.Context, r ProofRequest) (*Proof, error) {
	stages, cover, err := l.provable(r.Arch)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &prover{lab: l, brief: r.Brief, builds: l.startBuilds(ctx, r.Arch)}
	defer p.builds.stop()
	proof := &Proof{Arch: r.Arch, Knobs: make([]KnobProof, len(l.Kernel.Knobs))}
	changes := make([][]change, len(l.Kernel.Knobs))
	for i := range l.Kernel.Knobs {
		proof.Knobs[i], changes[i] = knobChanges(l.Kernel, stages, cover, i)
		p.planned += len(changes[i])
	}
	var work crash.Group
	for i := range changes {
		work.Go(func() {
			if err := p.prove(&proof.Knobs[i], changes[i]); err != nil {
				cancel(err) // ends the builds of the other knobs too
			}
		})
	}
	work.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return proof, nil
}

// provable are the stages and the covering set for an architecture. It is an error if there is no
// stage.
func (l *Lab) provable(arch string) (stages, cover []spec.Variant, err error) {
	for _, stage := range l.Kernel.Stages {
		if _, refused := Arch(stage, arch, ""); refused != nil {
			err = cmp.Or(err, refused)
		} else {
			stages = append(stages, stage.Variant())
		}
	}
	if len(stages) == 0 {
		return nil, nil, err
	}
	cover = slices.DeleteFunc(l.Kernel.Cover(), func(v spec.Variant) bool {
		_, err := Arch(v.Stage(), arch, "")
		return err != nil
	})
	return stages, cover, nil
}

// change is one value of a knob, tried on a variant.
type change struct {
	value         int // index of the value
	before, after spec.Variant
}

// knobChanges begins the proof of a knob, and lists the changes to build.
func knobChanges(kernel *spec.Kernel, stages, cover []spec.Variant, knob int) (KnobProof, []change) {
	k := kernel.Knobs[knob]
	proof := KnobProof{Knob: k.Name, Fate: Untried}
	var changes []change
	var unreached, all []int // indexes of values
	for i, value := range k.Values {
		v := ValueProof{Value: value, Own: []string{}, Alive: []string{}, Equal: []string{}, NotAllowed: []string{}, Broken: []string{}}
		reached := false
		for _, stage := range stages {
			own, has := stage.Value(k.Name)
			after, allowed := withValue(kernel, stage, k.Name, value)
			switch {
			case !has:
			case own == value:
				v.Own, reached = append(v.Own, stage.String()), true
			case allowed:
				changes, reached = append(changes, change{i, stage, after}), true
			default:
				v.NotAllowed = append(v.NotAllowed, stage.String())
			}
		}
		if !reached {
			unreached = append(unreached, i)
		}
		all, proof.Values = append(all, i), append(proof.Values, v)
	}
	if len(changes) == 0 {
		unreached = all
	}
	for _, i := range unreached {
		changes = append(changes, coverChanges(kernel, cover, k, i)...)
	}
	return proof, changes
}

// maxCoverChanges limits the variants of the covering set that a value is tried on.
const maxCoverChanges = 2

// coverChanges finds pairs of variants that differ only in the knob. One of each pair is in the
// covering set, and one has the value.
func coverChanges(kernel *spec.Kernel, cover []spec.Variant, k spec.Knob, value int) []change {
	var all []change
	for _, v := range cover {
		own, has := v.Value(k.Name)
		if !has {
			continue
		}
		for _, other := range k.Values {
			switch changed, ok := withValue(kernel, v, k.Name, other); {
			case other == own || !ok:
			case own == k.Values[value]:
				all = append(all, change{value, changed, v})
			case other == k.Values[value]:
				all = append(all, change{value, v, changed})
			}
		}
	}
	return all[:min(len(all), maxCoverChanges)]
}

// withValue is a variant with another value of a knob, if the constraints allow it.
func withValue(kernel *spec.Kernel, v spec.Variant, knob string, value int) (spec.Variant, bool) {
	text := v.Stage().Name
	for _, s := range v.Values() {
		if s.Knob == knob {
			s.Value = value
		}
		text += "+" + s.String()
	}
	changed, err := kernel.Variant(text)
	return changed, err == nil // the text is well-formed, so an error is a constraint
}

// prover builds changes and compares their code.
type prover struct {
	lab     *Lab
	brief   bool
	builds  *builds
	planned int // changes to build

	mu   sync.Mutex
	done int // changes that were compared
}

// prove finds the fate of one knob.
func (p *prover) prove(proof *KnobProof, changes []change) error {
	if !p.brief { // in brief, a build starts when its result is needed
		for _, c := range changes {
			p.builds.start(c.after)
		}
	}
	for _, c := range changes {
		if p.brief && proof.Fate == Alive {
			return nil
		}
		if err := p.compare(proof, c); err != nil {
			return err
		}
	}
	return nil
}

// compare compares the code before and after a change.
func (p *prover) compare(proof *KnobProof, c change) error {
	v, name := &proof.Values[c.value], c.before.String()
	before, err := p.builds.image(c.before)
	after, errAfter := p.builds.image(c.after)
	p.progress(c.after)
	var refused *toolchain.CompileError
	var broken *toolchain.SourceError
	switch err := cmp.Or(err, errAfter); {
	case errors.As(err, &refused), errors.As(err, &broken):
		v.Broken = append(v.Broken, name)
	case err != nil:
		return err
	case p.codeOf(c.after, after) != p.codeOf(c.before, before):
		v.Alive, proof.Fate = append(v.Alive, name), Alive
	default:
		v.Equal = append(v.Equal, name)
		if proof.Fate == Untried {
			proof.Fate = Dead
		}
	}
	return nil
}

func (p *prover) codeOf(v spec.Variant, image *toolchain.Image) Code {
	return CodeOf(p.lab.problem(), problem.Build{Variant: v, Image: image})
}

func (p *prover) progress(v spec.Variant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lab.progress(Progress{Subject: v.String(), Step: "built", Done: p.done, Total: p.planned})
	p.done++
}
