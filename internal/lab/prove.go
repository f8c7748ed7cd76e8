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

// Proof says which knobs reach the machine code. Each value of each knob was built as the only departure from each stage.
type Proof struct {
	Arch  string      `json:"arch,omitempty"` // the one asked for; else each stage is built for its newest
	Knobs []KnobProof `json:"knobs"`
}

// KnobProof is what turning one knob does.
type KnobProof struct {
	Knob   string       `json:"knob"`
	Fate   Fate         `json:"fate"`
	Values []ValueProof `json:"values"`
}

// ValueProof is what one value of a knob does, by the variants around which it was tried.
type ValueProof struct {
	Value      int      `json:"value"`
	Own        []string `json:"own"`         // have it themselves
	Alive      []string `json:"alive"`       // give other code with it
	Equal      []string `json:"equal"`       // give the same code
	NotAllowed []string `json:"not_allowed"` // break a rule with it
	Broken     []string `json:"broken"`      // do not compile with it, or not even without
}

// Fate is what becomes of a knob.
type Fate string

// The fates of a knob.
const (
	Alive   Fate = "alive"   // some departure changes the code
	Dead    Fate = "dead"    // none does
	Untried Fate = "untried" // it has one value, or no rule lets it be turned by itself
)

// Failed says whether the proof has found a knob that does nothing, or a departure that does not compile.
func (p *Proof) Failed() bool {
	return slices.ContainsFunc(p.Knobs, func(k KnobProof) bool {
		return k.Fate == Dead || slices.ContainsFunc(k.Values, func(v ValueProof) bool { return len(v.Broken) > 0 })
	})
}

// ProofRequest is what to prove.
type ProofRequest struct {
	Arch  string
	Brief bool // leave a knob alone as soon as it has changed the code once
}

// Prove builds every departure from a stage by one knob, several at once, and compares its code with the stage's. A value that no stage has or allows, and a knob
// that no stage can be left by, is tried around variants of the covering set.
func (l *Lab) Prove(ctx context.Context, r ProofRequest) (*Proof, error) {
	p := &prover{lab: l, request: r, codes: map[string]func() (code, error){}}
	departures, err := p.plan()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	proof := &Proof{Arch: r.Arch, Knobs: make([]KnobProof, len(l.Kernel.Knobs))}
	for i, knob := range l.Kernel.Knobs {
		p.work.Go(func() {
			if err := p.prove(ctx, knob, departures[i], &proof.Knobs[i]); err != nil {
				cancel(err) // and the builds that are under way
			}
		})
	}
	p.work.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return proof, nil
}

// prover builds each variant once.
type prover struct {
	lab     *Lab
	request ProofRequest
	planned int
	work    sync.WaitGroup

	mu     sync.Mutex
	judged int
	codes  map[string]func() (code, error)
}

// departure is a value of a knob, to be tried around a variant.
type departure struct {
	value   int
	around  spec.Variant
	variant spec.Variant // around with the value
	kind    departureKind
}

func (d departure) builds() bool { return d.kind == toBuild }

type departureKind int

const (
	toBuild departureKind = iota
	isOwn
	notAllowed
)

// plan lists the departures of each knob.
func (p *prover) plan() ([][]departure, error) {
	kernel := p.lab.Kernel
	var stages []spec.Variant
	var refusal error
	for _, stage := range kernel.Stages {
		if _, err := p.arch(stage); err != nil {
			refusal = cmp.Or(refusal, err)
			continue
		}
		stages = append(stages, stage.Variant())
	}
	if len(stages) == 0 {
		return nil, refusal
	}
	cover := slices.DeleteFunc(kernel.Cover(), func(v spec.Variant) bool { _, err := p.arch(v.Stage()); return err != nil })
	all := make([][]departure, len(kernel.Knobs))
	for i, knob := range kernel.Knobs {
		turns := false // a stage can be left by this knob
		var strange []int
		for _, value := range knob.Values {
			tries := departuresFrom(kernel, stages, i, value)
			turns = turns || slices.ContainsFunc(tries, departure.builds)
			if !slices.ContainsFunc(tries, func(d departure) bool { return d.kind != notAllowed }) {
				strange = append(strange, value)
			}
			all[i] = append(all[i], tries...)
		}
		if !turns {
			strange = knob.Values
		}
		for _, value := range strange {
			all[i] = append(all[i], departuresAside(kernel, cover, i, value)...)
		}
		for _, d := range all[i] {
			if d.builds() {
				p.planned++
			}
		}
	}
	return all, nil
}

// mostAside is around how many variants that are no stages a value is tried.
const mostAside = 2

func (p *prover) arch(stage *spec.Stage) (string, error) { return Arch(stage, p.request.Arch, "") }

// departuresFrom tries a value of a knob around variants.
func departuresFrom(kernel *spec.Kernel, around []spec.Variant, knob, value int) []departure {
	var all []departure
	for _, v := range around {
		own, has := v.Value(kernel.Knobs[knob].Name)
		if !has {
			continue
		}
		d := departure{value: value, around: v}
		if own == value {
			d.kind = isOwn
		} else if turned, ok := turn(kernel, v, knob, value); ok {
			d.variant = turned
		} else {
			d.kind = notAllowed
		}
		all = append(all, d)
	}
	return all
}

// departuresAside finds pairs of variants, one of the covering set, that differ in nothing but the knob, of which one has the value.
func departuresAside(kernel *spec.Kernel, cover []spec.Variant, knob, value int) []departure {
	var all []departure
	for _, v := range cover {
		own, has := v.Value(kernel.Knobs[knob].Name)
		if !has {
			continue
		}
		for _, other := range kernel.Knobs[knob].Values {
			switch turned, ok := turn(kernel, v, knob, other); {
			case other == own || !ok:
			case own == value:
				all = append(all, departure{value: value, around: turned, variant: v})
			case other == value:
				all = append(all, departure{value: value, around: v, variant: turned})
			}
		}
	}
	return all[:min(len(all), mostAside)]
}

// turn gives a variant with another value of a knob, if the rules allow it.
func turn(kernel *spec.Kernel, v spec.Variant, knob, value int) (spec.Variant, bool) {
	text := v.Stage().Name
	for _, s := range v.Values() {
		if s.Knob == kernel.Knobs[knob].Name {
			s.Value = value
		}
		text += "+" + s.String()
	}
	turned, err := kernel.Variant(text)
	return turned, err == nil // the text is right, so an error is a rule
}

// prove decides the fate of one knob.
func (p *prover) prove(ctx context.Context, knob spec.Knob, departures []departure, proof *KnobProof) error {
	*proof = KnobProof{Knob: knob.Name, Fate: Untried}
	for _, value := range knob.Values {
		proof.Values = append(proof.Values, ValueProof{
			Value: value, Own: []string{}, Alive: []string{}, Equal: []string{}, NotAllowed: []string{}, Broken: []string{},
		})
	}
	if !p.request.Brief { // all at once; otherwise one after the other
		for _, d := range departures {
			if d.builds() {
				p.work.Go(func() { _, _ = p.code(ctx, d.variant) }) // what it gives is asked for below
			}
		}
	}
	for _, d := range departures {
		if p.request.Brief && proof.Fate == Alive {
			return nil
		}
		v := &proof.Values[slices.Index(knob.Values, d.value)]
		fate, list, err := p.judge(ctx, d, v)
		if err != nil {
			return err
		}
		*list = append(*list, d.around.String())
		if fate == Alive || proof.Fate == Untried {
			proof.Fate = fate
		}
	}
	return nil
}

// judge compares a departure with what it departs from, and names the list that it belongs to.
func (p *prover) judge(ctx context.Context, d departure, v *ValueProof) (Fate, *[]string, error) {
	switch d.kind {
	case isOwn:
		return Untried, &v.Own, nil
	case notAllowed:
		return Untried, &v.NotAllowed, nil
	}
	without, err := p.code(ctx, d.around)
	with, errWith := p.code(ctx, d.variant)
	err = cmp.Or(err, errWith)
	var refused *toolchain.CompileError
	p.tell(d.variant)
	switch {
	case errors.As(err, &refused):
		return Untried, &v.Broken, nil
	case err != nil:
		return Untried, nil, err
	case with == without:
		return Dead, &v.Equal, nil
	}
	return Alive, &v.Alive, nil
}

func (p *prover) tell(v spec.Variant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lab.tell(Event{Variant: v.String(), Doing: "built", Done: p.judged, Total: p.planned})
	p.judged++
}

// code builds a variant, once for all who ask.
func (p *prover) code(ctx context.Context, v spec.Variant) (code, error) {
	p.mu.Lock()
	build := p.codes[v.String()]
	if build == nil {
		build = sync.OnceValues(func() (code, error) {
			arch, err := p.arch(v.Stage())
			if err != nil {
				return code{}, err
			}
			image, _, err := p.lab.Builder.Build(ctx, Target(p.lab.Kernel, v, arch))
			if err != nil {
				return code{}, err
			}
			return codeOf(image), nil
		})
		p.codes[v.String()] = build
	}
	p.mu.Unlock()
	return build()
}
