package lab

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"attune/internal/spec"
	"attune/internal/toolchain"
)

// Proof says which knobs reach the machine code. Each value of each knob was built as the only change
// to each stage.
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
	Untried Fate = "untried" // it has one value, or no constraint lets it change alone
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

// Prove builds every change of one knob in one stage, several at once, and compares the code with the
// stage's. A value that no stage has or allows is tried on variants of the covering set. So are all
// values of a knob that cannot change alone in any stage.
func (l *Lab) Prove(ctx context.Context, r ProofRequest) (*Proof, error) {
	p := &prover{lab: l, request: r}
	changes, err := p.plan()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.builds = l.startBuilds(ctx, r.Arch)
	defer p.builds.stop()
	proof := &Proof{Arch: r.Arch, Knobs: make([]KnobProof, len(l.Kernel.Knobs))}
	var work sync.WaitGroup
	for i, knob := range l.Kernel.Knobs {
		work.Go(func() {
			if err := p.prove(knob, changes[i], &proof.Knobs[i]); err != nil {
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

type prover struct {
	lab     *Lab
	request ProofRequest
	builds  *builds
	planned int // changes to build

	mu   sync.Mutex
	done int // changes that were compared
}

// change is one value of a knob, tried on a variant.
type change struct {
	value  int
	before spec.Variant
	after  spec.Variant // before, with the value
	kind   changeKind
}

func (c change) builds() bool { return c.kind == toBuild }

type changeKind int

const (
	toBuild changeKind = iota
	isOwn              // the variant has the value already
	notAllowed
)

// plan lists the changes of each knob.
func (p *prover) plan() ([][]change, error) {
	kernel := p.lab.Kernel
	var stages []spec.Variant
	var refusal error
	for _, stage := range kernel.Stages {
		if _, err := Arch(stage, p.request.Arch, ""); err != nil {
			refusal = cmp.Or(refusal, err)
			continue
		}
		stages = append(stages, stage.Variant())
	}
	if len(stages) == 0 {
		return nil, refusal
	}
	cover := slices.DeleteFunc(kernel.Cover(), func(v spec.Variant) bool {
		_, err := Arch(v.Stage(), p.request.Arch, "")
		return err != nil
	})
	all := make([][]change, len(kernel.Knobs))
	for i := range kernel.Knobs {
		all[i] = knobChanges(kernel, stages, cover, i)
		for _, c := range all[i] {
			if c.builds() {
				p.planned++
			}
		}
	}
	return all, nil
}

// knobChanges lists the changes of one knob: in every stage, and in variants of the covering set for
// values that the stages do not reach.
func knobChanges(kernel *spec.Kernel, stages, cover []spec.Variant, knob int) []change {
	var all []change
	var unreached []int
	changesAlone := false
	for _, value := range kernel.Knobs[knob].Values {
		tries := stageChanges(kernel, stages, knob, value)
		changesAlone = changesAlone || slices.ContainsFunc(tries, change.builds)
		if !slices.ContainsFunc(tries, func(c change) bool { return c.kind != notAllowed }) {
			unreached = append(unreached, value)
		}
		all = append(all, tries...)
	}
	if !changesAlone {
		unreached = kernel.Knobs[knob].Values
	}
	for _, value := range unreached {
		all = append(all, coverChanges(kernel, cover, knob, value)...)
	}
	return all
}

// stageChanges tries a value of a knob on the stages that have the knob.
func stageChanges(kernel *spec.Kernel, stages []spec.Variant, knob, value int) []change {
	var all []change
	for _, v := range stages {
		own, has := v.Value(kernel.Knobs[knob].Name)
		if !has {
			continue
		}
		c := change{value: value, before: v}
		if own == value {
			c.kind = isOwn
		} else if changed, ok := withValue(kernel, v, knob, value); ok {
			c.after = changed
		} else {
			c.kind = notAllowed
		}
		all = append(all, c)
	}
	return all
}

// maxCoverChanges limits the variants of the covering set that a value is tried on.
const maxCoverChanges = 2

// coverChanges finds pairs of variants that differ only in the knob. One of each pair is in the
// covering set, and one has the value.
func coverChanges(kernel *spec.Kernel, cover []spec.Variant, knob, value int) []change {
	var all []change
	for _, v := range cover {
		own, has := v.Value(kernel.Knobs[knob].Name)
		if !has {
			continue
		}
		for _, other := range kernel.Knobs[knob].Values {
			switch changed, ok := withValue(kernel, v, knob, other); {
			case other == own || !ok:
			case own == value:
				all = append(all, change{value: value, before: changed, after: v})
			case other == value:
				all = append(all, change{value: value, before: v, after: changed})
			}
		}
	}
	return all[:min(len(all), maxCoverChanges)]
}

// withValue is a variant with another value of a knob, if the constraints allow it.
func withValue(kernel *spec.Kernel, v spec.Variant, knob, value int) (spec.Variant, bool) {
	text := v.Stage().Name
	for _, s := range v.Values() {
		if s.Knob == kernel.Knobs[knob].Name {
			s.Value = value
		}
		text += "+" + s.String()
	}
	changed, err := kernel.Variant(text)
	return changed, err == nil // the text is well-formed, so an error is a constraint
}

// prove finds the fate of one knob.
func (p *prover) prove(knob spec.Knob, changes []change, proof *KnobProof) error {
	*proof = KnobProof{Knob: knob.Name, Fate: Untried}
	for _, value := range knob.Values {
		proof.Values = append(proof.Values, ValueProof{
			Value: value, Own: []string{}, Alive: []string{}, Equal: []string{}, NotAllowed: []string{}, Broken: []string{},
		})
	}
	if !p.request.Brief { // in brief, a build starts when its result is needed
		for _, c := range changes {
			if c.builds() {
				p.builds.start(c.after)
			}
		}
	}
	for _, c := range changes {
		if p.request.Brief && proof.Fate == Alive {
			return nil
		}
		v := &proof.Values[slices.Index(knob.Values, c.value)]
		fate, list, err := p.compare(c, v)
		if err != nil {
			return err
		}
		*list = append(*list, c.before.String())
		if fate == Alive || proof.Fate == Untried {
			proof.Fate = fate
		}
	}
	return nil
}

// compare compares the code before and after a change, and returns the list that the variant belongs
// to.
func (p *prover) compare(c change, v *ValueProof) (Fate, *[]string, error) {
	switch c.kind {
	case isOwn:
		return Untried, &v.Own, nil
	case notAllowed:
		return Untried, &v.NotAllowed, nil
	}
	before, err := p.builds.image(c.before)
	after, errAfter := p.builds.image(c.after)
	err = cmp.Or(err, errAfter)
	var refused *toolchain.CompileError
	p.progress(c.after)
	switch {
	case errors.As(err, &refused):
		return Untried, &v.Broken, nil
	case err != nil:
		return Untried, nil, err
	case codeOf(after) == codeOf(before):
		return Dead, &v.Equal, nil
	}
	return Alive, &v.Alive, nil
}

func (p *prover) progress(v spec.Variant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lab.progress(Progress{Subject: v.String(), Step: "built", Done: p.done, Total: p.planned})
	p.done++
}
